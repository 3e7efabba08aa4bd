//! What a new cluster needs before the operator may start: its bindings, this node, and the address of the API server.
//!
//! Everything is applied (server-side, forced), so that a binding somebody deleted is healed by doing it again. It is
//! carried out with a short-lived `system:masters` certificate that exists in memory only (design, section 3).

use kube::Client;
use serde_json::{Value, json};

use super::cluster::{self, CONTROL_PLANE_LABEL, CallError};
use super::hands;
use crate::reconcilers::manifests::resolve::{Resolved, resolve};
use crate::reconcilers::manifests::source::{self, SentinelValues, SourceError};

/// The bindings of the operator's two identities and of administrators.
const RBAC: &str = include_str!("../../deploy/bootstrap/rbac.yaml");

/// What a bootstrap writes besides the bindings.
#[derive(Clone, Debug)]
pub struct Facts {
    /// This controller's node name.
    pub node: String,
    /// The URL under which workloads and joining nodes reach the API server.
    pub server: String,
    /// The cluster's CA bundle, PEM.
    pub certificate_authority: String,
}

/// Why a bootstrap stopped. It can be repeated.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A bundled file is no list of objects, which is a fault of this binary.
    #[error("the bundled bindings cannot be read")]
    Bundled(#[source] SourceError),
    /// The API server refused or did not answer.
    #[error("cannot prepare the cluster for the operator")]
    Call(#[source] CallError),
}

/// Applies the bindings, the Node and `kube-public/cluster-info`.
///
/// # Errors
/// When the API server refuses or does not answer.
pub async fn prepare(client: &Client, facts: &Facts) -> Result<(), Error> {
    let mut declared =
        source::parse("bootstrap/rbac.yaml", RBAC.as_bytes(), &SentinelValues::default()).map_err(Error::Bundled)?;
    for (file, body) in [
        ("node", node(facts)),
        ("kube-public", namespace("kube-public")),
        ("cluster-info", cluster_info(facts)),
    ] {
        let text = format!("{body}\n");
        declared.extend(source::parse(file, text.as_bytes(), &SentinelValues::default()).map_err(Error::Bundled)?);
    }
    let served = cluster::discover(client).await.map_err(Error::Call)?;
    let objects: Vec<_> = declared.iter().map(|object| (None, object)).collect();
    for object in resolve(&objects, &served).wanted {
        let Resolved { id, version, body, .. } = &*object;
        hands::apply(client, id, version, body).await.map_err(Error::Call)?;
    }
    Ok(())
}

fn node(facts: &Facts) -> Value {
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {
        "name": facts.node, "labels": {CONTROL_PLANE_LABEL: ""}}})
}

fn namespace(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
}

/// As kubeadm publishes it: a kubeconfig without a user.
fn cluster_info(facts: &Facts) -> Value {
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config", "contexts": [], "users": [], "preferences": {}, "current-context": "",
        "clusters": [{"name": "", "cluster": {"server": facts.server, "certificate-authority-data": base64(facts.certificate_authority.as_bytes())}}],
    });
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "cluster-info", "namespace": "kube-public"},
        "data": {"kubeconfig": kubeconfig.to_string()}})
}

/// Bytes as a kubeconfig's `*-data` fields hold them.
pub(crate) fn base64(bytes: &[u8]) -> String {
    let value = serde_json::to_value(k8s_openapi::ByteString(bytes.to_vec())).unwrap_or_default();
    value.as_str().unwrap_or_default().to_owned()
}
