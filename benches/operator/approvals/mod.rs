//! B5, a burst of certificate requests of as many nodes: from the moment each is sent to the moment its approval is seen on
//! a watch. One in ten is forged, and has to stay as it is.

mod approvers;
mod burst;

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use http::Method;
use serde_json::json;
use stratum::host::clock;

use crate::bed::Bed;
use crate::harness::api::{Api, Call};
use crate::harness::audit::LOADER;
use crate::measure::between_floors;
use crate::subject::{self, IDENTITIES, Running};
use crate::table::{Entry, Figure, Table, Target, progress, seconds};
use burst::{Burst, Seen, Signer, address, node, send};

pub(crate) async fn run(bed: &Bed, table: &mut Table) -> Result<()> {
    let (nodes, scales) = if bed.arguments.quick {
        (100, &[1, 20][..])
    } else {
        (5000, &[1, 100, 1000, 5000][..])
    };
    // Of its own: five thousand Nodes would be in the way of every other benchmark.
    let bed = bed.another().await?;
    let measured = measure(&bed, nodes, scales, table).await;
    bed.end().await?;
    measured
}

async fn measure(bed: &Bed, nodes: usize, scales: &[usize], table: &mut Table) -> Result<()> {
    let loader = bed.plane.connect_as(LOADER).await?;
    progress(&format!(" loading {nodes} Nodes"));
    let all = (0..nodes).map(|number| {
        let body = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": node(number)},
            "status": {"addresses": [{"type": "InternalIP", "address": address(number)},
                {"type": "Hostname", "address": node(number)}]}});
        Call::new(Method::POST, "/api/v1/nodes").body("application/json", body.to_string())
    });
    loader.all(all.collect()).await?;
    adopt(bed, nodes).await?;
    approvers::let_joiners_ask(bed).await?;
    for signer in [Signer::Serving, Signer::Client] {
        for &scale in scales {
            progress(&format!(" {scale} requests, {signer:?}"));
            let burst = Burst::make(signer, scale)?;
            row(bed, &loader, &burst, table).await?;
        }
    }
    progress(" three instances");
    let scale = scales.iter().copied().filter(|scale| *scale <= 1000).max();
    let burst = Burst::make(Signer::Serving, scale.unwrap_or(1))?;
    three(bed, &loader, &burst, table).await
}

/// Lets stratum see all Nodes once, so that no burst pays for that.
async fn adopt(bed: &Bed, nodes: usize) -> Result<()> {
    let running = start(bed, "b5").await?;
    let began = clock::monotonic();
    subject::adopted(bed, nodes).await?;
    progress(&format!(
        "  {nodes} Nodes adopted in {}",
        seconds(began.elapsed().as_secs_f64())
    ));
    end(running).await
}

async fn start(bed: &Bed, name: &str) -> Result<Running> {
    let folder = bed.fresh(name)?;
    let running = subject::start(bed, name, &folder)?;
    ensure!(subject::ready(&running).await?, "{name} ended at its start");
    Ok(running)
}

async fn end(running: Running) -> Result<()> {
    let mut child = running.child;
    child
        .terminate(Duration::from_secs(20))
        .await
        .context("ending the operator")?;
    Ok(())
}

/// Frees names that were claimed, for the next round.
async fn free_names(loader: &Api, names: Vec<String>) -> Result<()> {
    let free = |name| Call::new(Method::DELETE, format!("{IDENTITIES}/{name}"));
    loader.all(names.into_iter().map(free).collect()).await?;
    Ok(())
}

/// One burst with stratum between two floors, then with the peers.
async fn row(bed: &Bed, loader: &Api, burst: &Burst, table: &mut Table) -> Result<()> {
    let mut requests = None;
    let between = between_floors(
        async || approvers::floor(bed, loader, burst).await,
        async || {
            let running = start(bed, "b5").await?;
            subject::leads(bed, &running.node).await?;
            let before = bed.plane.requests().await?;
            let seen = send(bed, loader, burst).await?;
            requests = Some(bed.plane.requests().await?.since(&before));
            end(running).await?;
            free_names(loader, burst.claims()).await?;
            Ok(seen)
        },
    )
    .await?;
    let own = between.result;
    let name = match burst.signer {
        Signer::Serving => "B5 serving certificates",
        Signer::Client => "B5 client certificates",
    };
    let mut entry = Entry::new(name, format!("{} requests", burst.good));
    entry.floor = format!("p99 {}", seconds(between.floor));
    entry.stratum = format!("{}, all in {}", own.text(), seconds(own.seconds));
    entry.gate(
        "p99 over floor",
        Some(own.p99() / between.floor),
        Target::AtMost(1.5),
        between.figure,
    );
    let peers = match burst.signer {
        Signer::Serving => serving_peers(bed, loader, burst).await?,
        Signer::Client => client_peers(bed, loader, burst).await?,
    };
    entry.peers = peers.text;
    if let (1000, Some(slow)) = (burst.good, peers.compared) {
        let faster = Some(slow.p99() / own.p99());
        entry.gate(peers.comparison, faster, peers.target, between.figure);
    }
    let requests = requests.context("stratum was not measured")?;
    // What every request is judged by has to be known already. The cluster's own addresses are read anew every half minute,
    // however many ask.
    let known = ["nodes", "nodeidentities", "certificatesigningrequests"];
    let gets = known.map(|what| requests.of("get", what)).iter().sum();
    let approvals = requests.of("update", "certificatesigningrequests/approval");
    entry.gate("approvals", count(approvals), exactly(burst.good), Figure::Count);
    entry.gate(
        "GETs of Nodes, records and requests",
        count(gets),
        Target::Exactly(0.0),
        Figure::Count,
    );
    let forged = count(u64::try_from(own.forged)?);
    entry.gate("forged and approved", forged, Target::Exactly(0.0), Figure::Count);
    table.add(entry);
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "counts here are far below 2^52")]
fn count(count: u64) -> Option<f64> {
    Some(count as f64)
}

#[expect(clippy::cast_precision_loss, reason = "counts here are far below 2^52")]
fn exactly(count: usize) -> Target {
    Target::Exactly(count as f64)
}

/// What peers did with a burst.
struct Peers {
    text: String,
    /// The one stratum is compared with.
    compared: Option<Seen>,
    comparison: &'static str,
    target: Target,
}

async fn serving_peers(bed: &Bed, loader: &Api, burst: &Burst) -> Result<Peers> {
    let mut text = Vec::new();
    let mut single = None;
    for workers in [1, 10] {
        if burst.good > 1000 && workers == 1 {
            continue;
        }
        let peer = approvers::controller_runtime(bed, workers).await?;
        let seen = send(bed, loader, burst).await?;
        drop(peer);
        text.push(format!("controller-runtime {workers} worker(s) {}", seen.text()));
        if workers == 1 {
            single = Some(seen);
        }
    }
    Ok(Peers {
        text: text.join("; "),
        compared: single,
        comparison: "1 worker over stratum",
        target: Target::AtLeast(15.0),
    })
}

/// kube-controller-manager has no eyes for whose name it is, so what it approves of the forged ones is told.
async fn client_peers(bed: &Bed, loader: &Api, burst: &Burst) -> Result<Peers> {
    let peer = approvers::stock(bed, loader).await?;
    let seen = send(bed, loader, burst).await;
    drop(peer);
    approvers::withdraw(bed).await?;
    let seen = seen?;
    Ok(Peers {
        text: format!(
            "kube-controller-manager {}, with {} of {} forged ones approved",
            seen.text(),
            seen.forged,
            burst.forged
        ),
        compared: Some(seen),
        comparison: "kube-controller-manager over stratum",
        target: Target::AtLeast(1.0),
    })
}

/// Three instances at once: one approves, and the others need not.
async fn three(bed: &Bed, loader: &Api, burst: &Burst, table: &mut Table) -> Result<()> {
    let mut running = Vec::new();
    for name in ["b5", "b5-b", "b5-c"] {
        running.push(start(bed, name).await?);
    }
    let before = bed.plane.requests().await?;
    let seen = send(bed, loader, burst).await?;
    let requests = bed.plane.requests().await?.since(&before);
    for one in running {
        end(one).await?;
    }
    let mut entry = Entry::new("B5 three instances", burst.good);
    entry.stratum = format!("{}, all in {}", seen.text(), seconds(seen.seconds));
    #[expect(clippy::cast_precision_loss, reason = "counts here are far below 2^52")]
    let (tries, good) = (
        requests.of("update", "certificatesigningrequests/approval") as f64,
        burst.good as f64,
    );
    // A request is approved once whatever happens: its resourceVersion sees to it. What is counted is who tried in vain.
    entry.gate(
        "tries for each approval",
        Some(tries / good),
        Target::AtMost(1.05),
        Figure::Count,
    );
    table.add(entry);
    Ok(())
}
