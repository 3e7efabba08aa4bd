//! What all control-plane pods have in common.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::{
    Capabilities, Container, EnvVar, HTTPGetAction, HostAlias, HostPathVolumeSource, Pod, PodSecurityContext, PodSpec,
    Probe, ResourceRequirements, SELinuxOptions, SeccompProfile, SecurityContext, Volume, VolumeMount,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::super::{Component, RESTARTED_AT};
use super::Context;

/// What one component has of its own.
#[derive(Default)]
pub(super) struct Parts {
    pub(super) annotations: BTreeMap<String, String>,
    /// Whether the program is named, or left to the image's entrypoint.
    pub(super) names_program: bool,
    pub(super) arguments: Vec<String>,
    pub(super) environment: Vec<(&'static str, String)>,
    pub(super) mounts: Vec<Mount>,
    pub(super) probes: Option<Probes>,
    /// `cpu` and, where one is asked for, `memory`.
    pub(super) requests: Vec<(&'static str, &'static str)>,
    pub(super) capabilities: Vec<&'static str>,
    pub(super) host_names: Vec<(String, &'static str)>,
    /// In seconds; the kubelet kills what has not ended by then.
    pub(super) grace: i64,
}

/// A file or folder of the node, at the same path in the pod.
pub(super) struct Mount {
    name: String,
    path: PathBuf,
    kind: &'static str,
    read_only: bool,
}

impl Mount {
    /// A folder that has to be there.
    pub(super) fn folder(name: impl Into<String>, path: impl Into<PathBuf>) -> Self {
        Self {
            name: name.into(),
            path: path.into(),
            // Not `DirectoryOrCreate`: an empty folder where the certificates should be would only be found later.
            kind: "Directory",
            read_only: true,
        }
    }

    /// A file that has to be there. Replacing it is not seen inside, so only for what is read once.
    pub(super) fn file(name: impl Into<String>, path: impl Into<PathBuf>) -> Self {
        Self {
            kind: "File",
            ..Self::folder(name, path)
        }
    }

    /// A folder the pod writes to.
    pub(super) fn writable(name: impl Into<String>, path: impl Into<PathBuf>) -> Self {
        Self {
            kind: "DirectoryOrCreate",
            read_only: false,
            ..Self::folder(name, path)
        }
    }
}

/// Where the kubelet asks how it is, on the node's loopback.
pub(super) struct Probes {
    pub(super) port: u16,
    pub(super) scheme: &'static str,
    pub(super) alive: &'static str,
    pub(super) ready: &'static str,
}

impl Probes {
    fn probe(&self, context: &Context<'_>, path: &str, timing: Probe) -> Probe {
        Probe {
            http_get: Some(HTTPGetAction {
                host: Some(context.state.loopback().to_string()),
                path: Some(path.to_owned()),
                // A number and no named port: a declared port on the host's network would make the kubelet's admission
                // compare a pod with the one it replaces.
                port: IntOrString::Int(self.port.into()),
                scheme: Some(self.scheme.to_owned()),
                ..HTTPGetAction::default()
            }),
            ..timing
        }
    }

    /// kubeadm's: eight failures, 10 s apart, before it is restarted.
    fn liveness(&self, context: &Context<'_>) -> Probe {
        self.probe(context, self.alive, timing(10, 10, 8))
    }

    /// kubeadm's.
    fn readiness(&self, context: &Context<'_>) -> Probe {
        self.probe(context, self.ready, timing(0, 1, 3))
    }

    /// As long as kubeadm's (240 s), but asked every 2 s and from the start on: until it succeeds the pod counts as not
    /// ready, and kubeadm's first question comes after 10 s.
    fn startup(&self, context: &Context<'_>) -> Probe {
        self.probe(context, self.alive, timing(0, 2, 120))
    }
}

fn timing(delay: i32, period: i32, failures: i32) -> Probe {
    Probe {
        initial_delay_seconds: Some(delay),
        period_seconds: Some(period),
        failure_threshold: Some(failures),
        timeout_seconds: Some(15),
        ..Probe::default()
    }
}

/// Puts a component's parts into the frame.
pub(super) fn assemble(component: Component, context: &Context<'_>, parts: Parts) -> Pod {
    let name = component.name();
    let volumes = parts.mounts.iter().map(volume).collect();
    let mut annotations = parts.annotations.clone();
    if let Some(restarted_at) = context.restarted_at {
        annotations.insert(RESTARTED_AT.to_owned(), restarted_at.to_owned());
    }
    let labels = [("component", name), ("tier", "control-plane")];
    let owned = |(key, value): (&str, &str)| (key.to_owned(), value.to_owned());
    let aliases = parts.host_names.iter().map(|(address, host_name)| HostAlias {
        ip: address.clone(),
        hostnames: Some(vec![(*host_name).to_owned()]),
    });
    let aliases: Vec<HostAlias> = aliases.collect();
    Pod {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            namespace: Some("kube-system".to_owned()),
            labels: Some(labels.map(owned).into()),
            annotations: (!annotations.is_empty()).then_some(annotations),
            ..ObjectMeta::default()
        },
        spec: Some(PodSpec {
            host_network: Some(true),
            host_aliases: (!aliases.is_empty()).then_some(aliases),
            priority: Some(SYSTEM_NODE_CRITICAL),
            priority_class_name: Some("system-node-critical".to_owned()),
            security_context: Some(security_context(context)),
            termination_grace_period_seconds: Some(parts.grace),
            containers: vec![container(component, context, parts)],
            volumes: Some(volumes),
            ..PodSpec::default()
        }),
        status: None,
    }
}

/// The value of the priority class: no admission plugin fills it in for a static pod.
const SYSTEM_NODE_CRITICAL: i32 = 2_000_001_000;

fn container(component: Component, context: &Context<'_>, parts: Parts) -> Container {
    let name = component.name();
    let variables = parts.environment.into_iter().map(|(name, value)| EnvVar {
        name: name.to_owned(),
        value: Some(value),
        ..EnvVar::default()
    });
    let variables: Vec<EnvVar> = variables.collect();
    let requests = parts.requests.iter();
    let requests = requests.map(|(resource, amount)| ((*resource).to_owned(), Quantity((*amount).to_owned())));
    let requests: BTreeMap<String, Quantity> = requests.collect();
    let capabilities = parts.capabilities.iter().map(|capability| (*capability).to_owned());
    let capabilities: Vec<String> = capabilities.collect();
    let probes = parts.probes.as_ref();
    Container {
        name: name.to_owned(),
        image: Some(context.image(component)),
        // The payload has put the image there, under this name and verified; anything else shall not run.
        image_pull_policy: Some("Never".to_owned()),
        command: parts.names_program.then(|| vec![name.to_owned()]),
        args: Some(parts.arguments),
        env: (!variables.is_empty()).then_some(variables),
        startup_probe: probes.map(|probes| probes.startup(context)),
        liveness_probe: probes.map(|probes| probes.liveness(context)),
        readiness_probe: probes.map(|probes| probes.readiness(context)),
        resources: (!requests.is_empty()).then(|| ResourceRequirements {
            requests: Some(requests),
            ..ResourceRequirements::default()
        }),
        security_context: (!capabilities.is_empty()).then(|| SecurityContext {
            capabilities: Some(Capabilities {
                add: Some(capabilities),
                drop: None,
            }),
            ..SecurityContext::default()
        }),
        volume_mounts: Some(parts.mounts.iter().map(volume_mount).collect()),
        ..Container::default()
    }
}

fn security_context(context: &Context<'_>) -> PodSecurityContext {
    PodSecurityContext {
        seccomp_profile: Some(SeccompProfile {
            type_: "RuntimeDefault".to_owned(),
            localhost_profile: None,
        }),
        // The type of a container is confined to files that carry its label, and those of the node do not.
        se_linux_options: context.inputs.selinux_confines.then(|| SELinuxOptions {
            type_: Some("spc_t".to_owned()),
            ..SELinuxOptions::default()
        }),
        ..PodSecurityContext::default()
    }
}

fn volume(mount: &Mount) -> Volume {
    Volume {
        name: mount.name.clone(),
        host_path: Some(HostPathVolumeSource {
            path: text(&mount.path),
            type_: Some(mount.kind.to_owned()),
        }),
        ..Volume::default()
    }
}

fn volume_mount(mount: &Mount) -> VolumeMount {
    VolumeMount {
        name: mount.name.clone(),
        mount_path: text(&mount.path),
        read_only: mount.read_only.then_some(true),
        ..VolumeMount::default()
    }
}

pub(super) fn text(path: &Path) -> String {
    path.display().to_string()
}
