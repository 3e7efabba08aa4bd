//! The API server.

use std::collections::BTreeMap;

use super::super::super::etcd::client_url;
use super::super::super::node_state::API_SERVER_PORT;
use super::super::profiles;
use super::super::{ADMISSION_CONFIG_SHA256, AUDIT_POLICY_SHA256, AUTHENTICATION_CONFIG_SHA256, Component, Error};
use super::pod::{Mount, Parts, Probes, text};
use super::{Arguments, Context, join};

const COMPONENT: Component = Component::KubeApiserver;

pub(super) fn parts(context: &Context<'_>) -> Result<Parts, Error> {
    let mut mounts = vec![
        Mount::folder("pki", context.layout.pki()),
        Mount::folder("static-pod-files", context.layout.static_pod_files()),
    ];
    if context.profile.audits() {
        mounts.push(Mount::writable("audit-logs", context.layout.audit_logs()));
    }
    for (number, folder) in context.inputs.trust_folders.iter().enumerate() {
        mounts.push(Mount::folder(format!("trust-{number}"), folder));
    }
    Ok(Parts {
        annotations: annotations(context),
        names_program: true,
        arguments: context.finish(COMPONENT, arguments(context)?),
        mounts,
        // kubeadm asks at the advertised address. Loopback is there even when the network is not, and a network that is
        // down is no reason to restart an API server.
        probes: Some(Probes {
            port: API_SERVER_PORT,
            scheme: "HTTPS",
            alive: "/livez",
            ready: "/readyz",
        }),
        requests: vec![("cpu", "250m")],
        // With watches cut after 1 s what is left are requests in flight, which a client repeats: 30 s of a node without
        // an API server would be worse.
        grace: 15,
        ..Parts::default()
    })
}

/// The hashes of the files it reads at its start only. The first two are there when the profile brings such files.
fn annotations(context: &Context<'_>) -> BTreeMap<String, String> {
    let profile = &context.profile;
    let authentication = asks_for_authentication_file(context).then(profiles::authentication_sha256);
    let hashes = [
        (AUDIT_POLICY_SHA256, profile.plain_sha256()),
        (ADMISSION_CONFIG_SHA256, profile.admission_sha256()),
        (AUTHENTICATION_CONFIG_SHA256, authentication),
    ];
    let hashes = hashes
        .into_iter()
        .filter_map(|(key, hash)| Some((key.to_owned(), hash?)));
    hashes.collect()
}

/// Whether who needs no credential is said by our file: not when the user speaks about authentication, for the API server
/// takes one or the other.
fn asks_for_authentication_file(context: &Context<'_>) -> bool {
    let users = context.extra(COMPONENT).iter().map(|argument| argument.plain().name);
    let conflicts =
        |name: &str| matches!(name, "anonymous-auth" | "authentication-config") || name.starts_with("oidc-");
    !users.into_iter().any(|name| conflicts(&name))
}

fn arguments(context: &Context<'_>) -> Result<Arguments, Error> {
    let networks = &context.state.networks;
    if networks.services.is_empty() {
        return Err(Error::NoServices);
    }
    let mut arguments = Arguments::default();
    let mut set = |name, value: String| arguments.set(name, value);
    set("advertise-address", context.state.address().to_string());
    set("secure-port", API_SERVER_PORT.to_string());
    set("allow-privileged", "true".to_owned());
    set("authorization-mode", "Node,RBAC".to_owned());
    set("enable-admission-plugins", "NodeRestriction".to_owned());
    set("enable-bootstrap-token-auth", "true".to_owned());
    set("service-cluster-ip-range", join(&networks.services));
    set(
        "service-account-issuer",
        format!("https://kubernetes.default.svc.{}", networks.domain),
    );
    // Not kubeadm's: a debugging endpoint that nobody needs in a cluster, and the CIS benchmark asks for it.
    set("profiling", "false".to_owned());
    // Not kubeadm's: without it open watches hold up a stop for 30 to 60 s.
    set("shutdown-watch-termination-grace-period", "1s".to_owned());
    files(context, &mut set);
    Ok(arguments)
}

fn files(context: &Context<'_>, set: &mut impl FnMut(&'static str, String)) {
    let pki = |name| context.pki(name);
    set("tls-cert-file", pki("apiserver.crt"));
    set("tls-private-key-file", pki("apiserver.key"));
    // kubeadm names the one certificate that signs, here and below: it cannot have two trusted at a time.
    set("client-ca-file", pki("ca-bundle.crt"));
    set("etcd-servers", client_url(context.state.loopback()));
    set("etcd-cafile", pki("etcd/ca-bundle.crt"));
    set("etcd-certfile", pki("apiserver-etcd-client.crt"));
    set("etcd-keyfile", pki("apiserver-etcd-client.key"));
    // Not kubeadm's: without it a kubelet may be anybody, and whoever pretends to be one is told what is run on it.
    set("kubelet-certificate-authority", pki("ca-bundle.crt"));
    set("kubelet-client-certificate", pki("apiserver-kubelet-client.crt"));
    set("kubelet-client-key", pki("apiserver-kubelet-client.key"));
    set(
        "kubelet-preferred-address-types",
        "InternalIP,ExternalIP,Hostname".to_owned(),
    );
    // kubeadm names `sa.pub`, the half of the key that signs: here every key a token may still be signed with.
    set("service-account-key-file", pki("sa-verify.pub"));
    set("service-account-signing-key-file", pki("sa.key"));
    set("requestheader-client-ca-file", pki("front-proxy-ca-bundle.crt"));
    set("requestheader-allowed-names", "front-proxy-client".to_owned());
    set("requestheader-username-headers", "X-Remote-User".to_owned());
    set("requestheader-group-headers", "X-Remote-Group".to_owned());
    set("requestheader-extra-headers-prefix", "X-Remote-Extra-".to_owned());
    set("proxy-client-cert-file", pki("front-proxy-client.crt"));
    set("proxy-client-key-file", pki("front-proxy-client.key"));
    let rendered = |name: &str| text(&context.layout.static_pod_files().join(name));
    // Not kubeadm's, which lets anybody ask for anything without a credential and leaves it to the bindings. The kubelet's
    // probes and the discovery of a joining node have none, and need five paths.
    if asks_for_authentication_file(context) {
        set("authentication-config", rendered(profiles::AUTHENTICATION_FILE));
    }
    if context.profile.admission.is_some() {
        set("admission-control-config-file", rendered(profiles::ADMISSION_FILE));
    }
    for (name, file) in context.profile.plain_flags() {
        set(name, rendered(file));
    }
    if context.profile.audits() {
        set("audit-log-path", text(&context.layout.audit_logs().join("audit.log")));
    }
}
