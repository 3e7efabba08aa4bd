//! The one place where the benchmarks call what they measure.
//!
//! Work that a pass does is measured in this process, like the floor and like what the flux harness reports: starting a
//! process is no part of it. What only the whole process can do (leading, watching a folder, being idle) is asked of the
//! real `stratum operator`.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::Value;
use stratum::controllers::concern::Concern;
use stratum::controllers::connection::{self, ClientSettings};
use stratum::controllers::inventory::store::Store;
use stratum::controllers::inventory::sync::InventorySync;
use stratum::controllers::manifests::{Manifests, Settings};
use stratum::host::child::{Child, Output, Program};
use stratum::host::clock;
use stratum::reconcilers::inventory::document::Entry;
use stratum::reconcilers::inventory::records::Documents;
use stratum::reconcilers::manifests::report::Counts;
use stratum::reconcilers::object::{GroupResource, ObjectId};

use crate::bed::{Bed, NODE};
use crate::harness::binaries::eventually;
use crate::harness::control_plane::free_address;

/// What one pass did.
#[derive(Clone, Debug)]
pub(crate) struct PassReport {
    /// How long it took.
    pub(crate) seconds: f64,
    pub(crate) counts: Counts,
    /// Whether nothing was refused.
    pub(crate) is_complete: bool,
}

/// The manifests concern over a folder, in this process, one pass at a time.
pub(crate) struct Passes(Manifests);

impl Passes {
    /// Opens it. `namespace` stands for `kube-system`; `resync` is the window in which applied objects are compared with
    /// the cluster once. The migration to the cluster's inventory is closed before, so that pruning is on.
    pub(crate) async fn open(bed: &Bed, folder: &Path, namespace: &str, resync: Duration) -> Result<Self> {
        let client = client(bed).await?;
        let (sync, _) = InventorySync::new(client.clone(), namespace, NODE, folder.to_owned());
        let root = kube::Api::all(client.clone()).get(namespace).await?;
        let seen = sync.observe(Arc::new(root)).await?;
        let plan = sync.decide(&seen, clock::now());
        sync.act(seen, plan).await?;
        let settings = Settings {
            node: NODE.to_owned(),
            folder: folder.to_owned(),
            state: bed.fresh(&format!("state-{namespace}"))?,
            system_namespace: namespace.to_owned(),
            resync,
            max_share: None,
            term: None,
        };
        Ok(Self(Manifests::new(settings, client.clone(), client).0))
    }

    /// One pass over what the folder holds now.
    pub(crate) async fn pass(&mut self) -> Result<PassReport> {
        let began = clock::monotonic();
        let (_, report) = self.0.pass_and_report().await?;
        Ok(PassReport {
            seconds: began.elapsed().as_secs_f64(),
            counts: report.total(),
            is_complete: report.is_complete(),
        })
    }
}

/// What became of many writers to one inventory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Published {
    pub(crate) seconds: f64,
    /// Writers that gave up.
    pub(crate) failures: usize,
    /// Entries that are not in the ConfigMap at the end.
    pub(crate) lost: usize,
    /// Requests they needed.
    pub(crate) requests: u64,
}

/// `writers` instances, each under a node name and over a connection of its own, publish `rounds` references one after
/// another by union into the inventory of `namespace`, all at the same time. The inventory exists before.
pub(crate) async fn publish(bed: &Bed, namespace: &str, writers: usize, rounds: usize) -> Result<Published> {
    let mut stores = Vec::new();
    for _ in 0..writers {
        let store = Store::new(client(bed).await?, namespace);
        // The first connection is not what is measured.
        store.load().await?;
        stores.push(store);
    }
    commit(stores.first().context("no writer")?, "writer-x", 0).await?;
    let before = bed.plane.requests().await?;
    let began = clock::monotonic();
    let all = stores.iter().enumerate().map(|(writer, store)| async move {
        let mut failures = 0;
        for round in 0..rounds {
            failures += usize::from(commit(store, &format!("writer-{writer}"), round).await.is_err());
        }
        failures
    });
    let failures = futures::future::join_all(all).await.into_iter().sum();
    let seconds = began.elapsed().as_secs_f64();
    let requests = bed.plane.requests().await?.since(&before).total();
    let stored = stores.first().context("no writer")?.load().await?;
    let there = stored.documents.inventory.map_or(0, |inventory| {
        let entries = inventory.nodes.0.values();
        entries.map(|entry| entry.iter().count()).sum()
    });
    Ok(Published {
        seconds,
        failures,
        lost: (writers * rounds + 1).saturating_sub(there),
        requests,
    })
}

/// One union of one reference into a node's entry.
async fn commit(store: &Store, node: &str, round: usize) -> Result<()> {
    let mut record = Entry::default();
    let id = ObjectId {
        resource: GroupResource::new("", "configmaps"),
        namespace: Some("default".to_owned()),
        name: format!("{node}-{round}"),
    };
    record.insert("stack".parse()?, &id, None);
    let change = |documents: &mut Documents| {
        documents.inventory.get_or_insert_default().union_into(node, &record);
        Ok(())
    };
    store.commit(None, None, change).await?;
    Ok(())
}

async fn client(bed: &Bed) -> Result<kube::Client> {
    let settings = ClientSettings::new(&bed.plane.admin, "bench");
    Ok(connection::client(&settings, None).await?)
}

/// The operators' Lease, as a list that can be watched.
pub(crate) const LEASES: &str =
    "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases?fieldSelector=metadata.name=stratum-operator";

/// A real `stratum operator` process.
pub(crate) struct Running {
    pub(crate) child: Child,
    pub(crate) node: String,
    pub(crate) listen: SocketAddr,
}

/// Starts one as node `node` over `folder`, and returns at once. Its user in the audit log is the node's name.
pub(crate) fn start(bed: &Bed, node: &str, folder: &Path) -> Result<Running> {
    let listen = free_address()?;
    let state = bed.fresh(&format!("state-{node}"))?;
    let kubeconfig = bed.plane.kubeconfig(node)?;
    let child = Program::new(&bed.stratum)
        .arguments([Path::new("operator"), Path::new("--kubeconfig"), &kubeconfig])
        .arguments([Path::new("--deployer-kubeconfig"), &kubeconfig])
        .arguments([Path::new("--manifests-dir"), folder])
        .arguments([Path::new("--state-dir"), &state])
        .arguments(["--node-name", node, "--listen", &listen.to_string()])
        .arguments(["--log-format", "json"])
        .dies_with_us(&bed.stratum)
        .start(&Output::Log(bed.plane.logs.join(format!("{node}.log"))))?;
    Ok(Running {
        child,
        node: node.to_owned(),
        listen,
    })
}

/// Waits until it is ready; whether it will be: a build without the command ends with a complaint about its usage.
pub(crate) async fn ready(running: &Running) -> Result<bool> {
    let ended = || running.child.exit().is_some();
    let asked = async || {
        if ended() {
            return Ok(Some(false));
        }
        Ok(readyz(running.listen).await.then_some(true))
    };
    eventually(
        "the operator is ready",
        Duration::from_secs(60),
        Duration::from_millis(2),
        asked,
    )
    .await
}

/// Waits until node `node` leads.
pub(crate) async fn leads(bed: &Bed, node: &str) -> Result<()> {
    let held = async || {
        let list = bed.api().read(LEASES).await?;
        Ok(holds(&list, "/items/0", node).then_some(()))
    };
    eventually(
        "the operator leads",
        Duration::from_secs(60),
        Duration::from_millis(50),
        held,
    )
    .await
}

/// The operators' memory of node names.
pub(crate) const IDENTITIES: &str = "/apis/stratum.ciq.com/v1/nodeidentities";

/// Waits until that memory has a record of so many Nodes, as it has a while after an operator has first seen them.
pub(crate) async fn adopted(bed: &Bed, nodes: usize) -> Result<()> {
    let adopted = async || {
        let list = bed.api().read(&format!("{IDENTITIES}?limit=1")).await?;
        let more = list
            .pointer("/metadata/remainingItemCount")
            .and_then(Value::as_u64)
            .unwrap_or_default();
        Ok((usize::try_from(more)? + 1 >= nodes).then_some(()))
    };
    let (limit, pace) = (Duration::from_secs(180), Duration::from_millis(200));
    eventually("all Nodes are adopted", limit, pace, adopted).await
}

/// Whether the Lease at `object` in `value` is held by node `node`: its name begins the holder's identity.
pub(crate) fn holds(value: &Value, object: &str, node: &str) -> bool {
    let identity = value.pointer(&format!("{object}/spec/holderIdentity"));
    identity
        .and_then(Value::as_str)
        .is_some_and(|identity| identity.starts_with(node))
}

async fn readyz(address: SocketAddr) -> bool {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let ask = async {
        let mut stream = tokio::net::TcpStream::connect(address).await?;
        stream
            .write_all(b"GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            .await?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await?;
        std::io::Result::Ok(answer)
    };
    ask.await.is_ok_and(|answer| answer.starts_with(b"HTTP/1.1 200"))
}
