//! Who approves beside stratum: the floor, a controller-runtime approver, and kube-controller-manager.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use futures::{StreamExt, TryStreamExt, stream};
use http::Method;
use serde_json::{Value, json};
use stratum::host::child::{Child, Output, Program};
use tokio::sync::{mpsc, oneshot};

use super::burst::{Burst, JOINERS, REQUESTS, Signer, send};
use super::free_names;
use crate::bed::Bed;
use crate::harness::api::{APPLY, Api, Call, MERGE};
use crate::harness::binaries::{self, eventually};
use crate::subject::IDENTITIES;

/// Approvals under way at one time in the floor, as stratum has it.
const APPROVALS: usize = 16;

/// Watch, and approve what is not forged: the least an approver can do. One that is to keep a name for whoever asks first
/// has to write that down before it approves, so for client certificates that is in the floor, too.
pub(super) async fn floor(bed: &Bed, loader: &Api, burst: &Burst) -> Result<f64> {
    let api = bed.plane.connect().await?;
    let (queue, names) = mpsc::unbounded_channel::<String>();
    let (started, ready) = oneshot::channel();
    let watching = {
        let watcher = bed.plane.connect().await?;
        tokio::spawn(async move {
            let pass_on = move |event: &Value| {
                let name = event
                    .pointer("/object/metadata/name")
                    .and_then(Value::as_str)
                    .unwrap_or_default();
                if event["type"] == "ADDED" && name.starts_with("good") {
                    let _ = queue.send(name.to_owned());
                }
                false
            };
            watcher.watch(REQUESTS, pass_on, started).await
        })
    };
    ready.await.context("the floor's watch")?;
    let signer = burst.signer;
    let approving = tokio::spawn(async move {
        let names = stream::unfold(names, |mut names| async { Some((names.recv().await?, names)) });
        let approve = |name: String| {
            let api = api.clone();
            async move {
                if signer == Signer::Client {
                    api.call(claim(&name)).await?;
                }
                let body =
                    json!({"status": {"conditions": [{"type": "Approved", "status": "True", "reason": "Floor"}]}});
                let call = Call::new(Method::PATCH, format!("{REQUESTS}/{name}/approval"));
                api.call(call.body(MERGE, body.to_string())).await.map(|_| ())
            }
        };
        names.map(approve).buffer_unordered(APPROVALS).try_collect::<()>().await
    });
    let seen = tokio::select! {
        seen = send(bed, loader, burst) => seen?,
        ended = approving => {
            ended??;
            bail!("the floor has stopped to approve");
        }
    };
    watching.abort();
    if signer == Signer::Client {
        let claimed = (0..burst.good).map(|number| format!("good-{number:05}"));
        free_names(loader, claimed.collect()).await?;
    }
    Ok(seen.p99())
}

fn claim(name: &str) -> Call {
    let body = json!({"apiVersion": "stratum.ciq.com/v1", "kind": "NodeIdentity",
        "metadata": {"name": name}, "spec": {}});
    Call::new(Method::POST, IDENTITIES).body("application/json", body.to_string())
}

/// Ours on controller-runtime, once its caches are synced.
pub(super) async fn controller_runtime(bed: &Bed, workers: usize) -> Result<Child> {
    let log = bed.plane.logs.join(format!("approver-{workers}.log"));
    let child = bed
        .peer("approver")
        .arguments(["--workers", &workers.to_string()])
        .dies_with_us(&bed.stratum)
        .start(&Output::Log(log.clone()))?;
    let synced = async || {
        ensure!(
            child.exit().is_none(),
            "approver ended: {}",
            std::fs::read_to_string(&log)?
        );
        Ok(std::fs::read_to_string(&log)?.contains("syncedSeconds").then_some(()))
    };
    eventually(
        "approver's caches are synced",
        Duration::from_secs(60),
        Duration::from_millis(20),
        synced,
    )
    .await?;
    Ok(child)
}

const BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
const STOCK: &str = "b5-stock-approval";

/// Binds a ClusterRole to those who join.
async fn bind(bed: &Bed, name: &str, role: &str) -> Result<()> {
    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": JOINERS}]});
    let path = format!("{BINDINGS}/{name}?fieldManager=bench");
    bed.api()
        .call(Call::new(Method::PATCH, path).body(APPLY, binding.to_string()))
        .await?;
    Ok(())
}

/// Lets those who join ask, as kubeadm does.
pub(super) async fn let_joiners_ask(bed: &Bed) -> Result<()> {
    bind(bed, "b5-joiners", "system:node-bootstrapper").await
}

/// The approval that kubeadm turns on, by kube-controller-manager with nothing else on and no limit to its client; once it
/// has approved one. [`withdraw`] takes back what it was allowed.
pub(super) async fn stock(bed: &Bed, loader: &Api) -> Result<Child> {
    let role = "system:certificates.k8s.io:certificatesigningrequests:nodeclient";
    bind(bed, STOCK, role).await?;
    let program = binaries::kube_controller_manager(&bed.stratum).await?;
    let kubeconfig = bed.plane.kubeconfig("kube-controller-manager")?;
    let log = bed.plane.logs.join("kube-controller-manager.log");
    let mut child = Program::new(program)
        .arguments([Path::new("--kubeconfig"), &kubeconfig])
        .arguments(["--controllers=certificatesigningrequest-approving-controller"])
        .arguments(["--kube-api-qps=100000", "--kube-api-burst=100000"])
        .arguments(["--leader-elect=false", "--secure-port=0"])
        .dies_with_us(&bed.stratum)
        .start(&Output::Log(log.clone()))?;
    let one = Burst::make(Signer::Client, 1)?;
    let first = tokio::select! {
        seen = send(bed, loader, &one) => seen.map(|_| ()),
        exit = child.wait() => bail!("kube-controller-manager ended ({}): {}", exit?, std::fs::read_to_string(&log)?),
    };
    first.context("kube-controller-manager's first approval")?;
    Ok(child)
}

/// Takes the right to the stock approval back.
pub(super) async fn withdraw(bed: &Bed) -> Result<()> {
    let binding = format!("{BINDINGS}/{STOCK}");
    bed.api().call(Call::new(Method::DELETE, binding)).await?;
    Ok(())
}
