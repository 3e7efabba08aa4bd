//! An etcd and a kube-apiserver of the run's own, empty, on loopback, with every write synced to disk as in production.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use http::Method;
use serde_json::json;
use stratum::host::clock;
use stratum::host::dev_plane::{DevPlane, Settings};

use super::api::{APPLY, Api, Call};
use super::audit::{Log, Requests};
use super::binaries::eventually;
use super::credentials::{Credentials, Pair};
use super::process;

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
/// The kind the operator keeps its memory of node names in, which it waits for.
const IDENTITIES: &str = include_str!("../../deploy/bootstrap/nodeidentities.yaml");

/// A control plane; dropping it ends it.
pub(crate) struct ControlPlane {
    /// A kubeconfig that may do everything.
    pub(crate) admin: PathBuf,
    /// The bare client.
    pub(crate) api: Api,
    /// Where logs of children may go.
    pub(crate) logs: PathBuf,
    log: tokio::sync::Mutex<Log>,
    plane: DevPlane,
    credentials: Credentials,
    address: SocketAddr,
}

impl ControlPlane {
    /// Starts one in `folder`, which exists and is empty. The children die with us, by `stratum` in their place. The
    /// control-plane nodes exist as objects only. With an audit policy, each request is logged before it has ended.
    pub(crate) async fn start(
        [etcd, kube_apiserver]: [PathBuf; 2],
        stratum: &Path,
        folder: &Path,
        nodes: &[&str],
        audit_policy: Option<&str>,
    ) -> Result<Self> {
        let mut settings = Settings::new(folder.join("plane"), [etcd, kube_apiserver], stratum);
        settings.etcd_arguments = vec![
            "--quota-backend-bytes=8589934592".to_owned(),
            "--log-level=warn".to_owned(),
        ];
        // Nothing makes ServiceAccounts here, so no Pod may wait for its own.
        settings.api_server_arguments = vec![
            "--disable-admission-plugins=ServiceAccount".to_owned(),
            // Emptying a namespace between two rounds is not measured, and takes half a minute with one.
            "--delete-collection-workers=16".to_owned(),
        ];
        if let Some(policy) = audit_policy {
            settings.audit_policy = Some(policy.to_owned());
            settings
                .api_server_arguments
                .push("--audit-log-mode=blocking".to_owned());
        }
        let plane = DevPlane::start(&settings).await?;
        let credentials = Credentials::load(plane.layout(), &folder.join("credentials"))?;
        let address = plane
            .server()
            .strip_prefix("https://")
            .context("the server's URL")?
            .parse()?;
        let api = Api::connect(address, &credentials, "bench").await?;
        api.namespace("kube-system").await?;
        let path = format!("{DEFINITIONS}/nodeidentities.stratum.ciq.com?fieldManager=bench");
        api.call(Call::new(Method::PATCH, path).body(APPLY, IDENTITIES)).await?;
        let served = async || {
            let list = Call::new(Method::GET, "/apis/stratum.ciq.com/v1/nodeidentities");
            Ok(api.send(list).await?.0.is_success().then_some(()))
        };
        let (limit, pace) = (Duration::from_secs(20), Duration::from_millis(50));
        eventually("the kind NodeIdentity", limit, pace, served).await?;
        for node in nodes {
            let body = json!({"apiVersion": "v1", "kind": "Node",
                "metadata": {"name": node, "labels": {"node-role.kubernetes.io/control-plane": ""}}});
            let path = format!("/api/v1/nodes/{node}?fieldManager=bench");
            api.call(Call::new(Method::PATCH, path).body(APPLY, body.to_string()))
                .await?;
        }
        Ok(Self {
            admin: credentials.kubeconfig(&plane.server(), "bench")?,
            api,
            logs: folder.to_owned(),
            log: tokio::sync::Mutex::new(Log::new(plane.audit_log())),
            plane,
            credentials,
            address,
        })
    }

    /// A kubeconfig for one more user that may do everything; the audit log tells users apart.
    pub(crate) fn kubeconfig(&self, user: &str) -> Result<PathBuf> {
        self.credentials.kubeconfig(&self.plane.server(), user)
    }

    /// A certificate for a server on loopback that the API server is to call.
    pub(crate) fn server_pair(&self, name: &str) -> Result<Pair> {
        self.credentials.server(name)
    }

    /// The PEM file of the authority it is verified with.
    pub(crate) fn authority(&self) -> &Path {
        self.credentials.authority()
    }

    /// A second connection.
    pub(crate) async fn connect(&self) -> Result<Api> {
        self.connect_as("bench").await
    }

    /// A connection of another user who may do everything.
    pub(crate) async fn connect_as(&self, user: &str) -> Result<Api> {
        Api::connect(self.address, &self.credentials, user).await
    }

    /// The API server's process id.
    pub(crate) fn api_server(&self) -> u32 {
        let [_, (_, api_server)] = self.plane.processes();
        api_server
    }

    /// CPU time of the API server.
    pub(crate) fn cpu(&self) -> Result<Duration> {
        process::cpu(self.api_server())
    }

    /// The audit log.
    pub(crate) fn audit_log(&self) -> PathBuf {
        self.plane.audit_log()
    }

    /// Requests answered so far, if there is an audit policy. A line comes a moment after its answer.
    pub(crate) async fn requests(&self) -> Result<Requests> {
        let mut log = self.log.lock().await;
        let mut length = log.length();
        loop {
            clock::sleep(Duration::from_millis(100)).await;
            let before = std::mem::replace(&mut length, log.length());
            if before == length {
                return log.requests();
            }
        }
    }

    /// Ends both processes and waits for it: what is in the folder is nobody's then.
    pub(crate) async fn end(self) -> Result<()> {
        Ok(self.plane.stop(Duration::from_secs(2)).await?)
    }
}

/// An address nobody listens on at this moment.
pub(crate) fn free_address() -> Result<SocketAddr> {
    Ok(std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?)
}
