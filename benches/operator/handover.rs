//! B11, hand-over of leadership: from the moment the leader is told to end, or is killed, until another instance holds the
//! Lease, as somebody sees it who watches. The peer's figure is to the end of its new leader's first write, which is one
//! request more.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal};
use serde_json::Value;
use stratum::host::clock;
use tokio::sync::oneshot;

use crate::bed::Bed;
use crate::harness::api::Call;
use crate::measure::median;
use crate::subject::{self, Running};
use crate::table::{Entry, Figure, Table, Target, seconds};

pub(crate) async fn run(bed: &Bed, table: &mut Table) -> Result<()> {
    let rounds = bed.arguments.rounds;
    let clean = hand_overs(bed, rounds, Signal::TERM).await?.and_then(median);
    // A Lease of 15 s has to run out each time.
    let crash = hand_overs(bed, if bed.arguments.quick { 0 } else { 1 }, Signal::KILL)
        .await?
        .and_then(median);
    let peer = peer(bed, rounds).await?;
    let figure = Figure::Time { noisy: false };
    let show = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), seconds);

    let mut entry = Entry::new("B11 clean hand-over", format!("median of {rounds}"));
    entry.stratum = show(clean);
    entry.peers = format!("controller-runtime, ReleaseOnCancel {}", seconds(peer));
    entry.gate("ms", clean.map(|clean| clean * 1e3), Target::AtMost(100.0), figure);
    entry.gate(
        "client-go over stratum",
        clean.map(|clean| peer / clean),
        Target::AtLeast(10.0),
        figure,
    );
    table.add(entry);
    if !bed.arguments.quick {
        let mut entry = Entry::new("B11 leader killed", "1");
        entry.stratum = show(crash);
        entry.peers = "kube-scheduler 17.8 s (measured elsewhere)".to_owned();
        entry.gate("s", crash, Target::AtMost(16.0), figure);
        table.add(entry);
    }
    Ok(())
}

/// Seconds of each hand-over; none when there is no operator to run.
async fn hand_overs(bed: &Bed, rounds: usize, signal: Signal) -> Result<Option<Vec<f64>>> {
    let folder = bed.fresh("b11")?;
    std::fs::create_dir(folder.join("stack"))?;
    let kind = if signal == Signal::TERM { "term" } else { "kill" };
    let mut leader = start(bed, &format!("b11-{kind}-0"), &folder).await?;
    let mut times = Vec::new();
    for round in 0..rounds {
        let Some(old) = leader else { return Ok(None) };
        subject::leads(bed, &old.node).await?;
        let Some(next) = start(bed, &format!("b11-{kind}-{}", round + 1), &folder).await? else {
            return Ok(None);
        };
        // The follower has to have seen the holder; what is measured is no start.
        clock::sleep(Duration::from_secs(3)).await;
        let (started, ready) = oneshot::channel();
        let (api, name) = (bed.api().clone(), next.node.clone());
        let holder = tokio::spawn(async move {
            api.watch(
                subject::LEASES,
                |event| subject::holds(event, "/object", &name),
                started,
            )
            .await
        });
        ready.await.context("the watch of the Lease did not start")?;
        let told = tell(&old, signal)?;
        let seen = tokio::time::timeout(Duration::from_secs(60), holder).await???;
        times.push(seen.saturating_duration_since(told).as_secs_f64());
        leader = Some(next);
    }
    Ok(leader.map(|_| times))
}

async fn start(bed: &Bed, node: &str, folder: &std::path::Path) -> Result<Option<Running>> {
    let running = subject::start(bed, node, folder)?;
    Ok(subject::ready(&running).await?.then_some(running))
}

fn tell(running: &Running, signal: Signal) -> Result<Instant> {
    let pid = i32::try_from(running.child.id())
        .ok()
        .and_then(Pid::from_raw)
        .context("a process id")?;
    let told = clock::monotonic();
    rustix::process::kill_process(pid, signal)?;
    Ok(told)
}

async fn peer(bed: &Bed, rounds: usize) -> Result<f64> {
    bed.empty_namespace("b11").await?;
    let body = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"handover"}}"#;
    let path = "/api/v1/namespaces/b11/configmaps";
    bed.api()
        .call(Call::new(http::Method::POST, path).body("application/json", body))
        .await?;
    let rounds = rounds.to_string();
    let answer = bed
        .ask_peer("handover", &["--namespace", "b11", "--rounds", &rounds])
        .await?;
    let milliseconds = answer
        .get("milliseconds")
        .and_then(Value::as_array)
        .context("no milliseconds")?;
    median(
        milliseconds
            .iter()
            .filter_map(Value::as_f64)
            .map(|ms| ms / 1e3)
            .collect(),
    )
    .context("no hand-over")
}
