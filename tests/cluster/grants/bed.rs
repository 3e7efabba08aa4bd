//! A system namespace with bootstrap tokens and a Secret of grants of its own.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::client::Body;
use kube::core::PartialObjectMeta;
use kube::{Api, Client};
use stratum::controllers::concern::{self, Concern, chain};
use stratum::controllers::grants::join::{self, JoinError};
use stratum::controllers::grants::minting::{self, Minted, MintingError};
use stratum::controllers::grants::pruning::{GrantPruning, PruneError};
use stratum::controllers::metrics::{ByReason, ByState, Metrics, Word};
use stratum::host::clock;
use stratum::host::layout::Identity;
use stratum::pki::seal::CertificateKey;
use stratum::reconcilers::grants::NAME;
use stratum::reconcilers::grants::material::Material;
use stratum::reconcilers::grants::token::TokenId;
use tokio::sync::Notify;
use tokio_util::sync::{CancellationToken, DropGuard};
use zeroize::Zeroizing;

use crate::support::Cluster;

pub(crate) const SOON: Duration = Duration::from_secs(20);
/// The secret half of every token here.
pub(crate) const TOKEN_SECRET: &str = "0123456789abcdef";

pub(crate) struct Bed<'a> {
    pub(crate) cluster: &'a Cluster,
    pub(crate) namespace: String,
    pub(crate) admin: Client,
    pub(crate) operator: Client,
    metrics: Metrics,
}

pub(crate) fn id(text: &str) -> TokenId {
    text.parse().unwrap()
}

pub(crate) fn key(byte: u8) -> CertificateKey {
    CertificateKey::new([byte; 32])
}

/// CA material that can be told from that of others.
pub(crate) fn material(mark: &str) -> Material {
    let mut material = Material::new();
    for name in ["ca.crt", "ca.key", "etcd/ca.key"] {
        let content = format!("{name} of {mark}");
        material.insert(name, Zeroizing::new(content.into_bytes())).unwrap();
    }
    material
}

/// So many seconds from now, in whole seconds as tokens have it.
pub(crate) fn in_seconds(seconds: i64) -> String {
    let at = clock::now().as_second() + seconds;
    Timestamp::from_second(at).unwrap().to_string()
}

/// Whether the garbage collector deletes an object with these owners once only the objects with these UIDs exist.
pub(crate) fn is_collected(owners: &BTreeMap<String, String>, existing: &[&str]) -> bool {
    !owners.is_empty() && owners.values().all(|uid| !existing.contains(&uid.as_str()))
}

impl<'a> Bed<'a> {
    pub(crate) async fn new(cluster: &'a Cluster, purpose: &str) -> Self {
        Self::within(cluster, cluster.namespace(purpose).await).await
    }

    pub(crate) async fn within(cluster: &'a Cluster, namespace: String) -> Self {
        Self {
            namespace,
            admin: cluster.client().await,
            operator: cluster.client_as(Identity::Operator).await,
            metrics: Metrics::new(),
            cluster,
        }
    }

    pub(crate) async fn kubectl(&self, arguments: &[&str]) -> String {
        self.cluster.kubectl_in(&self.namespace, arguments).await
    }

    fn secrets(&self) -> Api<Secret> {
        Api::namespaced(self.admin.clone(), &self.namespace)
    }

    /// A token as YAML; `expiration` as it stands in its data.
    pub(crate) fn declared(&self, id: &str, expiration: Option<&str>) -> String {
        let expiration = expiration
            .map(|text| format!(", expiration: {text:?}"))
            .unwrap_or_default();
        format!(
            "apiVersion: v1\nkind: Secret\ntype: bootstrap.kubernetes.io/token\nmetadata: {{name: bootstrap-token-{id}, namespace: {}}}\nstringData: {{token-id: {id:?}, token-secret: {TOKEN_SECRET:?}, usage-bootstrap-authentication: \"true\", auth-extra-groups: \"system:bootstrappers:controllers\"{expiration}}}\n",
            self.namespace
        )
    }

    /// Makes a token and returns its UID.
    pub(crate) async fn token(&self, id: &str, expiration: Option<&str>) -> String {
        self.cluster.apply(&self.declared(id, expiration)).await;
        let secret = self.secrets().get(&format!("bootstrap-token-{id}")).await.unwrap();
        secret.metadata.uid.unwrap()
    }

    /// Changes when a token ends.
    pub(crate) async fn ends(&self, id: &str, expiration: &str) {
        let patch = serde_json::json!({"stringData": {"expiration": expiration}}).to_string();
        let name = format!("bootstrap-token-{id}");
        self.kubectl(&["patch", "secret", &name, "--type=merge", "-p", &patch])
            .await;
    }

    pub(crate) async fn revoke(&self, id: &str) {
        self.kubectl(&["delete", "secret", &format!("bootstrap-token-{id}")])
            .await;
    }

    /// Mints a grant as an administrator, with material named after its token.
    pub(crate) async fn mint(&self, name: &str, key: &CertificateKey) -> Result<Minted, MintingError> {
        minting::mint(&self.admin, &self.namespace, &id(name), key, &material(name)).await
    }

    /// A token that does not end by itself, with a grant; its UID.
    pub(crate) async fn granted(&self, id: &str) -> String {
        let uid = self.token(id, None).await;
        self.mint(id, &key(1)).await.unwrap();
        uid
    }

    pub(crate) async fn open(&self, name: &str, key: &CertificateKey) -> Result<Material, JoinError> {
        join::open(&self.admin, &self.namespace, &id(name), key).await
    }

    /// The Secret with the grants.
    pub(crate) async fn secret(&self) -> Secret {
        self.secrets().get(NAME).await.unwrap()
    }

    pub(crate) async fn keys(&self) -> Vec<String> {
        self.secret().await.data.unwrap_or_default().into_keys().collect()
    }

    /// The owners of the Secret: names and UIDs.
    pub(crate) async fn owners(&self) -> BTreeMap<String, String> {
        let owners = self.secret().await.metadata.owner_references.unwrap_or_default();
        owners.into_iter().map(|owner| (owner.name, owner.uid)).collect()
    }

    fn pruning(&self, client: Client) -> GrantPruning {
        GrantPruning::new(client, &self.namespace, self.metrics.grants.clone())
    }

    /// One pass of the operator.
    pub(crate) async fn pass(&self) {
        self.pass_of(self.operator.clone())
            .await
            .unwrap_or_else(|error| panic!("{}", chain(&error)));
    }

    /// One pass with somebody's client.
    pub(crate) async fn pass_of(&self, client: Client) -> Result<(), PruneError> {
        concern::pass(&self.pruning(client), Arc::new(PartialObjectMeta::default())).await?;
        Ok(())
    }

    /// The concern as the operator runs it, until the value is dropped.
    pub(crate) fn running(&self) -> DropGuard {
        let stop = CancellationToken::new();
        let observer = Arc::new(self.metrics.concerns.clone());
        tokio::spawn(concern::run(
            Arc::new(self.pruning(self.operator.clone())),
            observer,
            stop.clone(),
        ));
        stop.drop_guard()
    }

    /// Whether the watch of the concern that runs has listed.
    pub(crate) async fn watches(&self) {
        let concern = GrantPruning::NAME.into();
        let labels = stratum::controllers::metrics::ByConcern { concern };
        let listed = || async { (self.metrics.concerns.watch_ready.get_or_create(&labels).get() == 1).then_some(()) };
        crate::support::wait_for("the watch of the Secret", SOON, listed).await;
    }

    /// How many keys of the Secret are in a state, as the operator counts them.
    pub(crate) fn state(&self, state: &'static str) -> i64 {
        let labels = ByState { state: Word(state) };
        self.metrics.grants.grants.get_or_create(&labels).get()
    }

    /// How many entries were dropped for a reason.
    pub(crate) fn dropped(&self, reason: &'static str) -> u64 {
        let labels = ByReason { reason: Word(reason) };
        self.metrics.grants.dropped.get_or_create(&labels).get()
    }
}

/// A moment in the middle of a pass.
#[derive(Default)]
pub(crate) struct Pause {
    pub(crate) reached: Notify,
    pub(crate) over: Notify,
}

impl Pause {
    /// A client that holds its request `number` (from 1) back until the pause is over.
    pub(crate) fn before(self: &Arc<Self>, number: usize, client: Client) -> Client {
        let (pause, sent) = (Arc::clone(self), AtomicUsize::new(0));
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let (pause, client) = (Arc::clone(&pause), client.clone());
            let held = sent.fetch_add(1, Ordering::Relaxed) + 1 == number;
            async move {
                if held {
                    pause.reached.notify_one();
                    pause.over.notified().await;
                }
                client.send(request).await
            }
        });
        Client::new(service, "default")
    }
}
