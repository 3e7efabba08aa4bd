//! A cluster of its own with an operator, and the people who send requests to it.

use std::time::Duration;

use http::Method;
use k8s_openapi::ByteString;
use kube::Client;
use kube::core::Status;
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair, SanType};
use serde_json::{Value, json};
use stratum::host::child::{Finished, Program};
use stratum::host::layout::Identity;
use tempfile::TempDir;
use tokio::sync::OnceCell;

use crate::support::operator::Operator;
use crate::support::requests::send;
use crate::support::{Cluster, Options, stratum, wait_for};

pub(crate) const SERVING: &str = "kubernetes.io/kubelet-serving";
pub(crate) const CLIENT: &str = "kubernetes.io/kube-apiserver-client-kubelet";
/// How long something may take that should be instant, on a machine that does other things too.
pub(crate) const SOON: Duration = Duration::from_secs(20);
const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";

pub(crate) struct Bed {
    pub(crate) cluster: Cluster,
    _operator: Operator,
    _folder: TempDir,
}

impl Bed {
    /// The one all tests of this subject share; they keep apart by the names of their nodes.
    pub(crate) async fn shared() -> &'static Self {
        static SHARED: OnceCell<Bed> = OnceCell::const_new();
        SHARED.get_or_init(Self::new).await
    }

    async fn new() -> Self {
        let cluster = Cluster::dedicated(Options::default()).await;
        cluster.apply(JOINERS).await;
        cluster.apply(ADDRESSES).await;
        cluster.register(&["one"]).await;
        let folder = tempfile::tempdir().unwrap();
        let operator = Operator::start(&cluster, folder.path(), "one");
        operator.leads().await;
        let ready = || async { (operator.get("/readyz").await.0 == 200).then_some(()) };
        wait_for("the operator to be ready", SOON, ready).await;
        Self {
            cluster,
            _operator: operator,
            _folder: folder,
        }
    }

    /// The kubelet of a node that has registered with these addresses.
    pub(crate) async fn node(&self, name: &str, addresses: &[(&str, &str)]) -> Client {
        let kubelet = self.cluster.kubelet(name).await;
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}});
        send(&kubelet, Method::POST, "/api/v1/nodes", &node).await.unwrap();
        report(&kubelet, name, addresses).await;
        kubelet
    }

    /// Somebody who joins with a bootstrap token.
    pub(crate) async fn joiner(&self, token: &str) -> Client {
        let user = format!("system:bootstrap:{token}");
        self.cluster.client_of(&user, &["system:bootstrappers"]).await
    }

    /// The object of a request, or none.
    pub(crate) async fn request(&self, name: &str) -> Value {
        let client = self.cluster.client().await;
        send(&client, Method::GET, &format!("{REQUESTS}/{name}"), &Value::Null)
            .await
            .unwrap()
    }

    /// Waits until a request is approved.
    pub(crate) async fn approved(&self, name: &str) {
        let approved = || async {
            conditions(&self.request(name).await)
                .contains(&"Approved".to_owned())
                .then_some(())
        };
        wait_for(&format!("request {name} to be approved"), SOON, approved).await;
    }

    /// Waits until an Event says in words why a request waits; returns them.
    pub(crate) async fn waits(&self, name: &str, reason: &str) -> String {
        let field = format!("involvedObject.name={name}");
        let told = || async {
            let events = self
                .cluster
                .kubectl_in(
                    "kube-system",
                    &["get", "events", "--field-selector", &field, "-o", "json"],
                )
                .await;
            let events: Value = serde_json::from_str(&events).unwrap();
            let events = events["items"].as_array().unwrap().clone();
            let event = events.into_iter().find(|event| event["reason"] == reason)?;
            Some(event["message"].as_str().unwrap().to_owned())
        };
        let message = wait_for(&format!("an Event {reason} of request {name}"), SOON, told).await;
        assert_eq!(conditions(&self.request(name).await), Vec::<String>::new(), "{message}");
        message
    }

    /// What the operator remembers of a name.
    pub(crate) async fn identity(&self, name: &str) -> Option<Value> {
        let client = self.cluster.client().await;
        let path = format!("/apis/stratum.ciq.com/v1/nodeidentities/{name}");
        match send(&client, Method::GET, &path, &Value::Null).await {
            Ok(found) => Some(found["spec"].clone()),
            Err(status) if status.is_not_found() => None,
            Err(status) => panic!("{status:?}"),
        }
    }

    /// Runs a command of ours as administrator; returns what it printed.
    pub(crate) async fn stratum(&self, arguments: &[&str]) -> String {
        let finished = self.try_stratum(arguments).await;
        let stderr = String::from_utf8_lossy(&finished.stderr);
        assert!(finished.exit.is_success(), "{arguments:?}: {stderr}");
        String::from_utf8(finished.stdout).unwrap()
    }

    /// Runs a command of ours as administrator, whose end is the test's to judge.
    pub(crate) async fn try_stratum(&self, arguments: &[&str]) -> Finished {
        let kubeconfig = self.cluster.kubeconfig(Identity::Admin);
        let program = Program::new(stratum())
            .arguments(arguments.iter().copied())
            .arguments(["--kubeconfig".as_ref(), kubeconfig.as_os_str()]);
        program.run(Vec::new()).await.unwrap()
    }

    /// Gives a request a condition as somebody else, with the rights of an administrator.
    pub(crate) async fn decide(&self, name: &str, condition: &str) {
        let verb = if condition == "Denied" { "deny" } else { "approve" };
        self.cluster.kubectl(&["certificate", verb, name]).await;
    }
}

/// What kubeadm, too, lets bootstrap tokens do: ask.
const JOINERS: &str = "apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: joiners-ask}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: 'system:node-bootstrapper'}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: 'system:bootstrappers'}]
";

/// Where the API servers listen, and the address they share.
const ADDRESSES: &str = "apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: kubernetes, namespace: default, labels: {kubernetes.io/service-name: kubernetes}}
addressType: IPv4
endpoints: [{addresses: [10.8.0.1]}, {addresses: [10.8.0.2]}]
ports: [{name: https, port: 6443, protocol: TCP}]
---
apiVersion: v1
kind: ConfigMap
metadata: {name: cluster-info, namespace: kube-public}
data:
  kubeconfig: |
    {apiVersion: v1, kind: Config, clusters: [{name: '', cluster: {server: 'https://10.8.0.100:6443'}}]}
";

/// A kubelet tells its addresses.
pub(crate) async fn report(kubelet: &Client, name: &str, addresses: &[(&str, &str)]) {
    let addresses: Vec<Value> = addresses
        .iter()
        .map(|(kind, address)| json!({"type": kind, "address": address}))
        .collect();
    let path = format!("/api/v1/nodes/{name}/status");
    let status = json!({"status": {"addresses": addresses}});
    send(kubelet, Method::PATCH, &path, &status).await.unwrap();
}

/// The types of a request's conditions.
pub(crate) fn conditions(request: &Value) -> Vec<String> {
    let conditions = request["status"]["conditions"].as_array().cloned().unwrap_or_default();
    conditions
        .iter()
        .map(|condition| condition["type"].as_str().unwrap().to_owned())
        .collect()
}

/// A PKCS#10 for `user` in group system:nodes.
pub(crate) fn pkcs10(key: &KeyPair, user: &str, names: &[&str]) -> Vec<u8> {
    let mut parameters = CertificateParams::default();
    parameters.distinguished_name = DistinguishedName::new();
    parameters
        .distinguished_name
        .push(DnType::OrganizationName, "system:nodes");
    parameters.distinguished_name.push(DnType::CommonName, user);
    parameters.subject_alt_names = names
        .iter()
        .map(|name| match name.parse() {
            Ok(address) => SanType::IpAddress(address),
            Err(_) => SanType::DnsName((*name).try_into().unwrap()),
        })
        .collect();
    parameters.serialize_request(key).unwrap().pem().unwrap().into_bytes()
}

pub(crate) fn new_key() -> KeyPair {
    KeyPair::generate().unwrap()
}

/// Sends a request in the name of a kubelet for a serving certificate.
pub(crate) async fn ask_serving(client: &Client, request: &str, node: &str, names: &[&str]) {
    let pem = pkcs10(&new_key(), &format!("system:node:{node}"), names);
    ask(client, request, SERVING, &["digital signature", "server auth"], &pem).await;
}

/// Sends a joiner's request for a node's first client certificate.
pub(crate) async fn ask_client(client: &Client, request: &str, node: &str, key: &KeyPair) {
    let pem = pkcs10(key, &format!("system:node:{node}"), &[]);
    ask(client, request, CLIENT, &["digital signature", "client auth"], &pem).await;
}

pub(crate) async fn ask(client: &Client, name: &str, signer: &str, usages: &[&str], pem: &[u8]) {
    try_ask(client, name, signer, usages, pem).await.unwrap();
}

/// Sends a request that the API server may refuse to take.
pub(crate) async fn try_ask(
    client: &Client,
    name: &str,
    signer: &str,
    usages: &[&str],
    pem: &[u8],
) -> Result<Value, Box<Status>> {
    let object = json!({
        "apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": {"name": name},
        "spec": {"signerName": signer, "usages": usages, "request": ByteString(pem.to_vec())},
    });
    send(client, Method::POST, REQUESTS, &object).await
}
