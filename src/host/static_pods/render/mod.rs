//! The manifests, as values: node state, layout and inputs in, a Pod out. Nothing here touches the disk.
//!
//! The flags are those `kubeadm` renders for Kubernetes 1.37; wherever ours differ, the reason stands beside it. What
//! decides about later rotations:
//! - whatever is *trusted* is a bundle (`ca-bundle.crt`), and whatever *signs* is a file of one certificate (`ca.crt`): they
//!   change at different moments;
//! - folders of certificates are mounted whole: a mounted file would stay the old one when it is replaced;
//! - every component talks to the API server and etcd of its own node, never to a shared address.

mod arguments;
mod elected;
mod etcd;
mod kube_apiserver;
mod kube_controller_manager;
mod kube_scheduler;
mod kube_vip;
mod pod;

use std::collections::BTreeMap;
use std::path::PathBuf;

use ipnet::IpNet;
use k8s_openapi::api::core::v1::Pod;

use super::super::layout::Layout;
use super::super::node_state::NodeState;
use super::profiles::{self, Registered};
use super::{Component, Error};

pub use arguments::Argument;
use arguments::Arguments;

/// What the manifests depend on beside the node's state and the layout.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inputs {
    /// Images other than those of [`super::super::images`].
    pub images: BTreeMap<Component, String>,
    /// The user's own arguments, put in place of ours of the same name.
    pub extra_arguments: BTreeMap<Component, Vec<Argument>>,
    /// Whether SELinux confines containers on this node.
    pub selinux_confines: bool,
    /// Folders of the node's certificate authorities of the world, which the API server trusts for webhooks and issuers
    /// of tokens; see [`super::trust_folders`].
    pub trust_folders: Vec<PathBuf>,
}

/// Renders a component's pod. `restarted_at` is the value of its restart annotation, if it has one.
///
/// # Errors
/// When the node's state lacks what the component cannot be without.
pub fn pod(
    component: Component,
    state: &NodeState,
    layout: &Layout,
    inputs: &Inputs,
    restarted_at: Option<&str>,
) -> Result<Pod, Error> {
    let context = Context {
        state,
        layout,
        inputs,
        restarted_at,
        profile: profiles::registered(state.profile),
    };
    let parts = match component {
        Component::Etcd => etcd::parts(&context)?,
        Component::KubeApiserver => kube_apiserver::parts(&context)?,
        Component::KubeControllerManager => kube_controller_manager::parts(&context),
        Component::KubeScheduler => kube_scheduler::parts(&context),
        Component::KubeVip => kube_vip::parts(&context)?,
    };
    Ok(pod::assemble(component, &context, parts))
}

/// Renders a component's manifest: the pod as YAML.
///
/// # Errors
/// As [`pod`].
pub fn manifest(
    component: Component,
    state: &NodeState,
    layout: &Layout,
    inputs: &Inputs,
    restarted_at: Option<&str>,
) -> Result<String, Error> {
    let pod = pod(component, state, layout, inputs, restarted_at)?;
    // A long argument stays on one line, where a search finds it.
    let options = serde_saphyr::ser_options! { prefer_block_scalars: false };
    let yaml = serde_saphyr::to_string_with_options(&pod, options).map_err(|error| Error::Yaml {
        subject: format!("the pod {component}"),
        reason: error.to_string(),
    })?;
    Ok(format!("{HEAD}{yaml}"))
}

const HEAD: &str = "# Written by stratum from node.yaml; what is edited here does not last.\n";

/// What every component is rendered from.
struct Context<'a> {
    state: &'a NodeState,
    layout: &'a Layout,
    inputs: &'a Inputs,
    restarted_at: Option<&'a str>,
    profile: Registered,
}

impl Context<'_> {
    fn image(&self, component: Component) -> String {
        let ours = || component.image().reference().to_owned();
        self.inputs.images.get(&component).cloned().unwrap_or_else(ours)
    }

    fn pki(&self, name: &str) -> String {
        pod::text(&self.layout.pki().join(name))
    }

    fn extra(&self, component: Component) -> &[Argument] {
        self.inputs.extra_arguments.get(&component).map_or(&[], Vec::as_slice)
    }

    /// Ours, then the profile's, then the user's: each replaces what is there of the same name.
    fn finish(&self, component: Component, mut arguments: Arguments) -> Vec<String> {
        let profile = self.profile.arguments.iter().filter(|(of, ..)| *of == component);
        let profile = profile.map(|(_, name, value)| Argument {
            name: (*name).to_owned(),
            value: (*value).to_owned(),
        });
        arguments.merge(&profile.collect::<Vec<_>>());
        arguments.merge(self.extra(component));
        arguments.into_flags()
    }
}

fn join(ranges: &[IpNet]) -> String {
    let ranges: Vec<String> = ranges.iter().map(ToString::to_string).collect();
    ranges.join(",")
}
