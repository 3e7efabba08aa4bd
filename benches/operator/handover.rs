//! B11, hand-over of leadership: from the moment the leader is told to end, or is killed, until another instance holds the
//! Lease, as somebody sees it who watches. The peer's figure is to the end of its new leader's first write, which is one
//! request more.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use http::Method;
use rustix::process::{Pid, Signal};
use serde_json::{Value, json};
use stratum::host::clock;
use tokio::sync::oneshot;

use crate::bed::Bed;
use crate::harness::api::{APPLY, Call};
use crate::measure::{between_floors, median};
use crate::outage;
use crate::subject::{self, Running};
use crate::table::{Entry, Figure, Table, Target, seconds};

const NAMESPACE: &str = "b11";

pub(crate) async fn run(bed: &Bed, table: &mut Table) -> Result<()> {
    let rounds = bed.arguments.rounds;
    bed.empty_namespace(NAMESPACE).await?;
    let clean = between_floors(
        async || floor(bed).await,
        async || Ok(hand_overs(bed, rounds, Signal::TERM).await?.and_then(median)),
    )
    .await?;
    // A Lease of 15 s has to run out each time.
    let crash = hand_overs(bed, if bed.arguments.quick { 0 } else { 1 }, Signal::KILL)
        .await?
        .and_then(median);
    let peer = peer(bed, rounds).await?;
    let figure = Figure::Time { noisy: false };
    let show = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), seconds);

    let mut entry = Entry::new("B11 clean hand-over", format!("median of {rounds}"));
    entry.floor = seconds(clean.floor);
    let (figure_clean, clean) = (clean.figure, clean.result);
    entry.stratum = show(clean);
    entry.peers = format!("controller-runtime, ReleaseOnCancel {}", seconds(peer));
    entry.gate(
        "ms",
        clean.map(|clean| clean * 1e3),
        Target::AtMost(100.0),
        figure_clean,
    );
    entry.gate(
        "client-go over stratum",
        clean.map(|clean| peer / clean),
        Target::AtLeast(10.0),
        figure_clean,
    );
    table.add(entry);
    if !bed.arguments.quick {
        let mut entry = Entry::new("B11 leader killed", "1");
        entry.stratum = show(crash);
        entry.peers = "kube-scheduler 17.8 s (measured elsewhere)".to_owned();
        entry.gate("s", crash, Target::AtMost(16.0), figure);
        table.add(entry);
    }
    outage::run(bed, table).await
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
    let Some(mut last) = leader else { return Ok(None) };
    // Whoever comes next does not have to wait for its Lease to run out.
    last.child.terminate(Duration::from_secs(10)).await?;
    Ok(Some(times))
}

/// What a hand-over cannot do without: two writes, one after the other, to let go and to take over.
async fn floor(bed: &Bed) -> Result<f64> {
    let path = format!("/api/v1/namespaces/{NAMESPACE}/configmaps/floor?fieldManager=bench");
    let write = |number: usize| {
        let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "floor"},
            "data": {"number": number.to_string()}});
        Call::new(Method::PATCH, &path).body(APPLY, body.to_string())
    };
    let times = bed.api().each((0..40).map(write).collect(), 1).await?;
    let one = median(times.iter().map(Duration::as_secs_f64).collect());
    Ok(one.context("no write")? * 2.0)
}

pub(crate) async fn start(bed: &Bed, node: &str, folder: &std::path::Path) -> Result<Option<Running>> {
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
    bed.empty_namespace(NAMESPACE).await?;
    let body = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"handover"}}"#;
    let path = format!("/api/v1/namespaces/{NAMESPACE}/configmaps");
    bed.api()
        .call(Call::new(Method::POST, path).body("application/json", body))
        .await?;
    let rounds = rounds.to_string();
    let answer = bed
        .ask_peer("handover", &["--namespace", NAMESPACE, "--rounds", &rounds])
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
