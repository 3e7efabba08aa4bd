//! B7, idle at scale: what the process holds and uses in a cluster of 5,000 Nodes, 50,000 Pods and 1,000 CSRs while Nodes
//! report their status, as kubelets do, 17 times a second, and CoreDNS's Pods come, go and change.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use http::Method;
use serde_json::json;
use stratum::host::child::Output;
use stratum::host::clock;
use tokio::sync::watch;

use crate::bed::Bed;
use crate::harness::api::{Api, Call, MERGE};
use crate::harness::audit::{Event, LOADER, Log};
use crate::harness::binaries::eventually;
use crate::harness::process::{self, Memory};
use crate::subject;
use crate::table::{Entry, Figure, Table, Target, progress};

struct Scale {
    nodes: usize,
    pods_per_node: usize,
    requests: usize,
    watch: Duration,
}

const FULL: Scale = Scale {
    nodes: 5000,
    pods_per_node: 10,
    requests: 1000,
    watch: Duration::from_secs(120),
};
const QUICK: Scale = Scale {
    nodes: 100,
    pods_per_node: 10,
    requests: 20,
    watch: Duration::from_secs(5),
};

/// What one process used.
struct Use {
    memory: Memory,
    /// Share of a core.
    cpu: f64,
}

pub(crate) async fn run(bed: &Bed, table: &mut Table) -> Result<()> {
    let scale = if bed.arguments.quick { QUICK } else { FULL };
    // Of its own: fifty thousand Pods would be in the way of every other benchmark.
    let bed = bed.another().await?;
    let measured = measure(&bed, &scale, table).await;
    bed.end().await?;
    measured
}

async fn measure(bed: &Bed, scale: &Scale, table: &mut Table) -> Result<()> {
    let loader = bed.plane.connect_as(LOADER).await?;
    load(&loader, scale).await?;
    let (stop, stopped) = watch::channel(false);
    let nodes = tokio::spawn(node_churn(loader.clone(), scale.nodes, stopped.clone()));
    let dns = tokio::spawn(dns_churn(loader, stopped));
    progress(" stratum");
    let (own, pod_requests) = stratum(bed, scale).await?;
    progress(" controller-runtime");
    let small = peer(bed, "nodes,csrs", scale).await?;
    let mut log = Log::new(bed.plane.audit_log());
    log.follow()?;
    let large = peer(bed, "nodes,pods", scale).await?;
    let seen = log.follow()?.iter().any(reads_all_pods);
    ensure!(
        seen,
        "controller-runtime's watch of all Pods is not in the audit log: nobody's would be"
    );
    let _ = stop.send(true);
    nodes.await?.context("the Nodes' reports")?;
    dns.await?.context("CoreDNS's Pods")?;

    let mut entry = Entry::new(
        "B7 idle",
        format!("{} Nodes, {} Pods", scale.nodes, scale.nodes * scale.pods_per_node),
    );
    let show = |used: &Use| {
        format!(
            "{:.0} MiB, {:.2} % of a core",
            mebibytes(used.memory.resident),
            used.cpu * 100.0
        )
    };
    entry.stratum = own.as_ref().map_or_else(
        || "-".to_owned(),
        |own| {
            let (peak, shared) = (mebibytes(own.memory.peak), mebibytes(own.memory.proportional));
            format!("{} (peak since start {peak:.0} MiB, PSS {shared:.0} MiB)", show(own))
        },
    );
    entry.peers = format!(
        "controller-runtime Nodes+CSRs {}; Nodes+Pods {}",
        show(&small),
        show(&large)
    );
    let own = own.as_ref();
    let resident = own.map(|own| mebibytes(own.memory.resident));
    entry.gate("RSS MiB", resident, Target::AtMost(25.0), Figure::Count);
    let peak = own.map(|own| mebibytes(own.memory.peak) / mebibytes(own.memory.resident));
    entry.gate("peak over RSS", peak, Target::AtMost(1.3), Figure::Count);
    let figure = Figure::Time { noisy: false };
    entry.gate(
        "% of a core",
        own.map(|own| own.cpu * 100.0),
        Target::AtMost(0.5),
        figure,
    );
    let smaller = resident.map(|resident| mebibytes(small.memory.resident) / resident);
    entry.gate(
        "controller-runtime over stratum",
        smaller,
        Target::AtLeast(2.5),
        Figure::Count,
    );
    entry.gate(
        "cluster-wide reads of Pods",
        pod_requests,
        Target::Exactly(0.0),
        Figure::Count,
    );
    table.add(entry);
    Ok(())
}

async fn load(api: &Api, scale: &Scale) -> Result<()> {
    progress(&format!(
        " loading {} Nodes and {} Pods",
        scale.nodes,
        scale.nodes * scale.pods_per_node
    ));
    api.namespace("b7").await?;
    let nodes = (0..scale.nodes).map(|number| {
        let body = json!({"apiVersion": "v1", "kind": "Node",
            "metadata": {"name": node(number), "labels": {"kubernetes.io/hostname": node(number)}},
            "status": status(number, 0)});
        Call::new(Method::POST, "/api/v1/nodes").body("application/json", body.to_string())
    });
    api.all(nodes.collect()).await?;
    let pods = (0..scale.nodes * scale.pods_per_node).map(|number| {
        let body = json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": format!("pod-{number:05}"), "labels": {"app": format!("app-{}", number % 100)}},
            "spec": {"nodeName": node(number % scale.nodes), "automountServiceAccountToken": false,
                "containers": [{"name": "main", "image": "registry.example/app:1",
                    "env": [{"name": "SETTING", "value": "a value of some length"}],
                    "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}}}]}});
        Call::new(Method::POST, "/api/v1/namespaces/b7/pods").body("application/json", body.to_string())
    });
    api.all(pods.collect()).await?;
    let request = request_of("system:node:node-00000")?;
    let requests = (0..scale.requests).map(|number| {
        let body = json!({"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
            "metadata": {"name": format!("request-{number:05}")},
            // A signer nobody here serves: they stay as they are.
            "spec": {"signerName": "bench.example/none", "usages": ["client auth"], "request": request}});
        let path = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
        Call::new(Method::POST, path).body("application/json", body.to_string())
    });
    api.all(requests.collect()).await?;
    Ok(())
}

/// A certificate request for a user, as the API takes it: PEM in base64.
fn request_of(user: &str) -> Result<k8s_openapi::ByteString> {
    let mut params = rcgen::CertificateParams::new(Vec::new())?;
    params.distinguished_name.push(rcgen::DnType::CommonName, user);
    let request = params.serialize_request(&rcgen::KeyPair::generate()?)?;
    Ok(k8s_openapi::ByteString(request.pem()?.into_bytes()))
}

fn node(number: usize) -> String {
    format!("node-{number:05}")
}

fn status(number: usize, beat: u64) -> serde_json::Value {
    let condition = |kind: &str, status: &str| json!({"type": kind, "status": status, "reason": "Reported", "message": format!("beat {beat}")});
    json!({
        "addresses": [{"type": "InternalIP", "address": format!("10.{}.{}.1", number / 250, number % 250)},
            {"type": "Hostname", "address": node(number)}],
        "capacity": {"cpu": "16", "memory": "64Gi", "pods": "110"},
        "conditions": [condition("Ready", "True"), condition("MemoryPressure", "False"),
            condition("DiskPressure", "False"), condition("PIDPressure", "False")],
        // The images a kubelet lists are most of a Node.
        "images": (0..20).map(|image| json!({"names": [format!("registry.example/some/image-{image}@sha256:{}", "0123456789abcdef".repeat(4))],
            "sizeBytes": 50_000_000})).collect::<Vec<_>>(),
    })
}

/// 17 changes of a Node's status a second: 5,000 kubelets, each every five minutes.
async fn node_churn(api: Api, nodes: usize, stop: watch::Receiver<bool>) -> Result<()> {
    let mut beat = 0;
    while !*stop.borrow() {
        beat += 1;
        let number = usize::try_from(beat * 2_654_435_761_u64 % u64::try_from(nodes)?)?;
        let body = json!({"status": {"conditions": status(number, beat).get("conditions")}});
        let path = format!("/api/v1/nodes/{}/status", node(number));
        api.call(Call::new(Method::PATCH, path).body(MERGE, body.to_string()))
            .await?;
        clock::sleep(Duration::from_millis(1000 / 17)).await;
    }
    Ok(())
}

/// CoreDNS in trouble: every second another one of its three Pods is ready or not, and every tenth second one is replaced.
async fn dns_churn(api: Api, stop: watch::Receiver<bool>) -> Result<()> {
    for number in 0..3 {
        api.call(dns_pod(number)).await?;
    }
    let mut beat = 0;
    while !*stop.borrow() {
        beat += 1;
        let number = beat % 3;
        let path = format!("{DNS_PODS}/coredns-{number}");
        if beat % 10 == 0 {
            // Gone at once: nobody runs it who would have to end it first.
            api.call(Call::new(Method::DELETE, format!("{path}?gracePeriodSeconds=0")))
                .await?;
            api.call(dns_pod(number)).await?;
        }
        let ready = if beat % 2 == 0 { "True" } else { "False" };
        let body = json!({"status": {"podIP": format!("10.200.0.{number}"),
            "conditions": [{"type": "Ready", "status": ready, "reason": format!("Beat{beat}")}]}});
        api.call(Call::new(Method::PATCH, format!("{path}/status")).body(MERGE, body.to_string()))
            .await?;
        clock::sleep(Duration::from_secs(1)).await;
    }
    Ok(())
}

const DNS_PODS: &str = "/api/v1/namespaces/kube-system/pods";

fn dns_pod(number: usize) -> Call {
    let body = json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": format!("coredns-{number}"), "labels": {"k8s-app": "kube-dns"}},
        "spec": {"nodeName": node(number), "automountServiceAccountToken": false,
            "containers": [{"name": "coredns", "image": "registry.example/coredns:1"}]}});
    Call::new(Method::POST, DNS_PODS).body("application/json", body.to_string())
}

async fn stratum(bed: &Bed, scale: &Scale) -> Result<(Option<Use>, Option<f64>)> {
    let folder = bed.fresh("b7")?;
    std::fs::create_dir(folder.join("stack"))?;
    let mut log = Log::new(bed.plane.audit_log());
    log.follow()?;
    let running = subject::start(bed, "b7", &folder)?;
    if !subject::ready(&running).await? {
        return Ok((None, None));
    }
    // A standby watches less than a leader, and one that sees Nodes for the first time has a record to write for each.
    subject::leads(bed, &running.node).await?;
    subject::adopted(bed, scale.nodes).await?;
    let used = used(running.child.id(), scale.watch).await?;
    let events = log.follow()?;
    let own: Vec<&Event> = events.iter().filter(|event| event.user() == running.node).collect();
    ensure!(!own.is_empty(), "the audit log knows nothing of the operator");
    let cluster_wide = own.iter().filter(|event| reads_all_pods(event)).count();
    #[expect(clippy::cast_precision_loss, reason = "a handful of requests")]
    let cluster_wide = cluster_wide as f64;
    Ok((Some(used), Some(cluster_wide)))
}

/// A list or watch of Pods in all namespaces that no label or field narrows down.
fn reads_all_pods(event: &Event) -> bool {
    let about = &event.object_ref;
    ["list", "watch"].contains(&event.verb.as_str())
        && about.resource == "pods"
        && about.namespace.is_empty()
        && !event.uri.contains("Selector=")
}

async fn peer(bed: &Bed, watch: &str, scale: &Scale) -> Result<Use> {
    let log = bed.plane.logs.join(format!("ctrlcache-{watch}.log"));
    let child = bed
        .peer("ctrlcache")
        .arguments(["--watch", watch])
        .dies_with_us(&bed.stratum)
        .start(&Output::Log(log.clone()))?;
    let synced = async || {
        anyhow::ensure!(
            child.exit().is_none(),
            "ctrlcache ended: {}",
            std::fs::read_to_string(&log)?
        );
        Ok(std::fs::read_to_string(&log)?.contains("syncedSeconds").then_some(()))
    };
    eventually(
        "controller-runtime's cache",
        Duration::from_secs(120),
        Duration::from_millis(100),
        synced,
    )
    .await?;
    // Its memory is what is compared.
    used(child.id(), scale.watch / 4).await
}

async fn used(pid: u32, watch: Duration) -> Result<Use> {
    // What the first lists needed is settled by then.
    clock::sleep(watch / 10).await;
    let (began, before) = (clock::monotonic(), process::cpu(pid)?);
    clock::sleep(watch).await;
    let cpu = (process::cpu(pid)? - before).as_secs_f64() / began.elapsed().as_secs_f64();
    Ok(Use {
        memory: process::memory(pid)?,
        cpu,
    })
}

fn mebibytes(bytes: u64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "memory of a process is far below 2^52")]
    let bytes = bytes as f64;
    bytes / f64::from(1 << 20)
}
