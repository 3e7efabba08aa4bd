//! An etcd and a kube-apiserver of the run's own, empty, on loopback, with every write synced to disk as in production.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use http::Method;
use serde_json::json;
use stratum::host::dev_plane::{DevPlane, Settings};

use super::api::{APPLY, Api, Call};
use super::credentials::{Credentials, Pair};
use super::process;

/// A control plane; dropping it ends it.
pub(crate) struct ControlPlane {
    /// A kubeconfig that may do everything.
    pub(crate) admin: PathBuf,
    /// The bare client.
    pub(crate) api: Api,
    /// Where logs of children may go.
    pub(crate) logs: PathBuf,
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
        settings.api_server_arguments = vec!["--disable-admission-plugins=ServiceAccount".to_owned()];
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
        Api::connect(self.address, &self.credentials, "bench").await
    }

    /// CPU time of the API server.
    pub(crate) fn cpu(&self) -> Result<Duration> {
        let [_, (_, api_server)] = self.plane.processes();
        process::cpu(api_server)
    }

    /// The audit log.
    pub(crate) fn audit_log(&self) -> PathBuf {
        self.plane.audit_log()
    }

    /// Requests answered so far.
    pub(crate) async fn requests(&self) -> Result<Requests> {
        let metrics = self.api.call(Call::new(Method::GET, "/metrics")).await?;
        Ok(Requests::parse(&String::from_utf8_lossy(&metrics)))
    }
}

/// Answered requests by verb and resource, without those the API server sends to itself all the time and those of the
/// measurement.
#[derive(Clone, Debug, Default)]
pub(crate) struct Requests(BTreeMap<(String, String), u64>);

/// Resources that only the API server itself asks for in these runs, from its own loopback client.
const OWN_BUSINESS: [&str; 14] = [
    "apiservices",
    "customresourcedefinitions",
    "endpoints",
    "endpointslices",
    "flowschemas",
    "leases",
    "ipaddresses",
    "mutatingwebhookconfigurations",
    "prioritylevelconfigurations",
    "resourcequotas",
    "servicecidrs",
    "storageversions",
    "validatingadmissionpolicies",
    "validatingwebhookconfigurations",
];

impl Requests {
    fn parse(metrics: &str) -> Self {
        let mut counts = BTreeMap::new();
        for line in metrics.lines() {
            let Some((labels, count)) = line
                .strip_prefix("apiserver_request_total{")
                .and_then(|rest| rest.rsplit_once("} "))
            else {
                continue;
            };
            let label = |name: &str| {
                let from = labels.find(&format!("{name}=\""))? + name.len() + 2;
                labels.get(from..)?.split('"').next()
            };
            let resource = label("resource").unwrap_or_default();
            let subresource = label("subresource").unwrap_or_default();
            // What is no resource has its path as the subresource, with or without the first slash.
            let path = subresource.trim_start_matches('/');
            let ours = resource.is_empty() && ["metrics", "readyz"].contains(&path);
            if ours || OWN_BUSINESS.contains(&resource) {
                continue;
            }
            let resource = match (resource.is_empty(), path.is_empty()) {
                (true, _) => format!("/{path}"),
                (false, true) => resource.to_owned(),
                (false, false) => format!("{resource}/{path}"),
            };
            let verb = label("verb").unwrap_or_default().to_owned();
            // Counters are written as floating point numbers.
            let count: u64 = count.split('.').next().and_then(|n| n.parse().ok()).unwrap_or_default();
            *counts.entry((verb, resource)).or_default() += count;
        }
        Self(counts)
    }

    /// What came after `before`.
    pub(crate) fn since(&self, before: &Self) -> Self {
        let since = self.0.iter().filter_map(|(key, count)| {
            let more = count.saturating_sub(before.0.get(key).copied().unwrap_or_default());
            (more > 0).then(|| (key.clone(), more))
        });
        Self(since.collect())
    }

    /// All of them.
    pub(crate) fn total(&self) -> u64 {
        self.0.values().sum()
    }

    /// GETs of single objects: not discovery, and not the documents an API server serves.
    pub(crate) fn object_gets(&self) -> u64 {
        self.0
            .iter()
            .filter(|((verb, resource), _)| verb == "GET" && !resource.starts_with('/'))
            .map(|(_, count)| count)
            .sum()
    }

    /// Those of a verb as the metric spells it: `APPLY`, `DELETE`, `LIST`, `PATCH`, `PUT`, `WATCH`.
    pub(crate) fn verb(&self, verb: &str) -> u64 {
        self.0
            .iter()
            .filter(|((of, _), _)| of == verb)
            .map(|(_, count)| count)
            .sum()
    }
}

impl std::fmt::Display for Requests {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (index, ((verb, resource), count)) in self.0.iter().enumerate() {
            let separator = if index == 0 { "" } else { ", " };
            write!(formatter, "{separator}{count} {verb} {resource}")?;
        }
        Ok(())
    }
}

/// An address nobody listens on at this moment.
pub(crate) fn free_address() -> Result<SocketAddr> {
    Ok(std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?)
}
