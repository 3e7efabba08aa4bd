//! What a new cluster needs before the operator may start: its bindings, this node, and the address of the API server.
//!
//! Everything is applied (server-side, forced), so that a binding somebody deleted is healed by doing it again. It is
//! carried out with a short-lived `system:masters` certificate that exists in memory only (design, section 3).

use std::time::Duration;

use jiff::SignedDuration;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::{Value, json};

use super::cluster::{self, CONTROL_PLANE_LABEL, CallError, definitions};
use super::hands;
use super::joining::publishing::{PublishError, publish_cluster_info};
use super::operator::SYSTEM_NAMESPACE;
use crate::host::clock;
use crate::host::pki_folder::Credential;
use crate::pki::certificate::{self, Certificate};
use crate::reconcilers::joining::cluster_info::NAMESPACE;
use crate::reconcilers::joining::kubeconfig;
use crate::reconcilers::manifests::resolve::{Resolved, resolve};
use crate::reconcilers::manifests::source::{self, SentinelValues, SourceError};

/// The bindings of the operator's two identities and of administrators, those of nodes, and the kind the operator itself
/// writes.
const FILES: [(&str, &str); 3] = [
    ("bootstrap/rbac.yaml", include_str!("../../deploy/bootstrap/rbac.yaml")),
    (
        "bootstrap/nodes.yaml",
        include_str!("../../deploy/bootstrap/nodes.yaml"),
    ),
    (
        "bootstrap/nodeidentities.yaml",
        include_str!("../../deploy/bootstrap/nodeidentities.yaml"),
    ),
];

/// How long a kind may take to be served. The operator waits for it anyway.
const ESTABLISHED_WITHIN: Duration = Duration::from_secs(10);

/// How long a connection may take.
const CONNECTED_WITHIN: Duration = Duration::from_secs(5);
/// How long a server may say, or take, nothing in the middle of a request.
const SILENT_FOR: Duration = Duration::from_secs(30);

/// How long the credential lives that may do everything, and is only in memory.
pub const LIFETIME: SignedDuration = SignedDuration::from_mins(10);

/// What a bootstrap writes besides the bindings.
#[derive(Clone, Debug)]
pub struct Facts {
    /// The name of a Node that is made, where no kubelet registers one.
    pub node: Option<String>,
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
    /// A credential in memory cannot be used.
    #[error("cannot use a credential that was made for this moment")]
    Kubeconfig(#[source] Box<kube::config::KubeconfigError>),
    /// The same.
    #[error("cannot make a client of a credential that was made for this moment")]
    Client(#[source] Box<kube::Error>),
    /// The API server refused or did not answer.
    #[error("cannot prepare the cluster for the operator")]
    Call(#[source] CallError),
    /// The bundle that was to be published is none.
    #[error("the cluster's CA bundle cannot be published")]
    Bundle(#[source] certificate::Error),
    /// Whoever joins cannot find the cluster.
    #[error(transparent)]
    Publish(#[from] PublishError),
}

/// A client with a credential that is only in memory. It is for a few requests at once: unlike the usual clients it
/// follows no files, and its certificate ends soon.
///
/// # Errors
/// When the server's URL, the authorities or the credential cannot be used.
pub async fn client(server: &str, certificate_authority: &str, credential: &Credential) -> Result<Client, Error> {
    client_within(server, certificate_authority, credential, SILENT_FOR).await
}

async fn client_within(
    server: &str,
    certificate_authority: &str,
    credential: &Credential,
    silent_for: Duration,
) -> Result<Client, Error> {
    let credential = (credential.certificate.as_str(), &credential.key);
    let kubeconfig = kubeconfig::render(server, certificate_authority, "bootstrap", credential);
    let kubeconfig = Kubeconfig::from_yaml(&kubeconfig).map_err(|source| Error::Kubeconfig(Box::new(source)))?;
    let options = KubeConfigOptions::default();
    let config = Config::from_custom_kubeconfig(kubeconfig, &options).await;
    let mut config = config.map_err(|source| Error::Kubeconfig(Box::new(source)))?;
    // By default nothing ends a request whose answer never comes.
    config.connect_timeout = Some(CONNECTED_WITHIN);
    config.read_timeout = Some(silent_for);
    config.write_timeout = Some(silent_for);
    Client::try_from(config).map_err(|source| Error::Client(Box::new(source)))
}

/// Applies the bindings and the Node, and publishes `kube-public/cluster-info`.
///
/// # Errors
/// When the API server refuses or does not answer.
pub async fn prepare(client: &Client, facts: &Facts) -> Result<(), Error> {
    let bundled = FILES.map(|(file, text)| (file, text.to_owned()));
    let mut made = vec![("kube-public", namespace(NAMESPACE))];
    made.extend(facts.node.as_deref().map(|name| ("node", node(name))));
    let mut declared = Vec::new();
    for (file, text) in bundled
        .into_iter()
        .chain(made.into_iter().map(|(file, body)| (file, format!("{body}\n"))))
    {
        let objects = source::parse(file, text.as_bytes(), &SentinelValues::default());
        declared.extend(objects.map_err(Error::Bundled)?);
    }
    let served = cluster::discover(client).await.map_err(Error::Call)?;
    let objects: Vec<_> = declared.iter().map(|object| (None, object)).collect();
    for object in resolve(&objects, &served).wanted {
        let Resolved { id, version, body, .. } = &*object;
        hands::apply(client, id, version, body).await.map_err(Error::Call)?;
        if id.resource.resource == "customresourcedefinitions" {
            // The operator, which watches the kind from its start, would find nothing and begin with a failure.
            let path = cluster::object_path(id, version);
            definitions::until_established(client, &path, clock::monotonic() + ESTABLISHED_WITHIN).await;
        }
    }
    let bundle = Certificate::bundle_from_pem(facts.certificate_authority.as_bytes()).map_err(Error::Bundle)?;
    publish_cluster_info(client, SYSTEM_NAMESPACE, &facts.server, &bundle).await?;
    Ok(())
}

fn node(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {
        "name": name, "labels": {CONTROL_PLANE_LABEL: ""}}})
}

fn namespace(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::pki_folder::master;
    use crate::pki::authority::Authority;
    use crate::pki::key::{Key, KeyKind, Serial};

    #[tokio::test]
    async fn a_server_that_says_nothing_is_not_waited_for_without_end() {
        let now = clock::now();
        let key = Key::generate(KeyKind::default()).unwrap();
        let authority = Authority::make("ca", key, Serial::random().unwrap(), now).unwrap();
        let credential = master(&authority, KeyKind::default(), LIFETIME, now).unwrap();
        let mute = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = format!("http://{}", mute.local_addr().unwrap());
        let trust = authority.certificate().to_pem();
        let soon = Duration::from_millis(200);
        let client = client_within(&server, &trust, &credential, soon).await.unwrap();
        let asked = client.apiserver_version();
        let answer = tokio::time::timeout(Duration::from_secs(60), asked).await;
        answer.expect("it is waited for").unwrap_err();
    }
}
