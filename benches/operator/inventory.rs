//! B6, many writers to one ConfigMap at the same time, each of whom has to get its own part in.

use anyhow::{Context, Result};
use http::Method;
use serde_json::Value;

use crate::bed::Bed;
use crate::harness::api::{Call, MERGE};
use crate::measure::between_floors;
use crate::subject;
use crate::table::{Entry, Figure, Table, Target, progress, seconds};

const NAMESPACE: &str = "b6";
/// The same limit as a ratio: 1.3 s where the floor, which is mostly the disk, took 0.6 s. A slow disk misses the first
/// and not the second, a slow writer both.
const OVER_FLOOR: f64 = 1.3 / 0.6;

pub(crate) async fn run(bed: &Bed, table: &mut Table) -> Result<()> {
    bed.empty_namespace(NAMESPACE).await?;
    let all = [(1, 1), (10, 1), (50, 1), (50, 5)];
    let some = if bed.arguments.quick { &all[1..2] } else { &all[..] };
    for &(writers, rounds) in some {
        progress(&format!(" {writers} writers, {rounds} each"));
        let measured = between_floors(
            async || {
                fresh(bed, "floor").await?;
                floor(bed, writers, rounds).await
            },
            async || {
                bed.empty_namespace(NAMESPACE).await?;
                subject::publish(bed, NAMESPACE, writers, rounds).await
            },
        )
        .await?;
        let published = measured.result;

        let mut entry = Entry::new("B6 inventory writers", format!("{writers} x {rounds}"));
        entry.floor = seconds(measured.floor);
        entry.stratum = seconds(published.seconds);
        let mut peers = Vec::new();
        for backoff in ["DefaultRetry", "DefaultBackoff"] {
            peers.push(peer(bed, writers, rounds, backoff).await?);
        }
        entry.peers = peers.join(", ");
        #[expect(clippy::cast_precision_loss, reason = "counts here are far below 2^52")]
        let (failures, lost, per_commit) = (
            published.failures as f64,
            published.lost as f64,
            published.requests as f64 / (writers * rounds) as f64,
        );
        entry.gate("gave up", Some(failures), Target::Exactly(0.0), Figure::Count);
        entry.gate("lost", Some(lost), Target::Exactly(0.0), Figure::Count);
        entry.gate(
            "requests per commit",
            Some(per_commit),
            Target::AtMost(9.0),
            Figure::Count,
        );
        if (writers, rounds) == (50, 1) {
            let limit = Target::AtMost(1.3);
            entry.gate("seconds", Some(published.seconds), limit, measured.figure.by_itself());
            let over = published.seconds / measured.floor;
            entry.gate("over floor", Some(over), Target::AtMost(OVER_FLOOR), measured.figure);
        }
        table.add(entry);
    }
    Ok(())
}

/// Each writer patches its own key: the server merges and repeats.
async fn floor(bed: &Bed, writers: usize, rounds: usize) -> Result<f64> {
    let path = format!("/api/v1/namespaces/{NAMESPACE}/configmaps/floor");
    let calls = (0..writers * rounds).map(|key| {
        let body = format!(r#"{{"data":{{"writer-{key}":"here"}}}}"#);
        Call::new(Method::PATCH, &path).body(MERGE, body)
    });
    let began = stratum::host::clock::monotonic();
    bed.api().each(calls.collect(), writers).await?;
    Ok(began.elapsed().as_secs_f64())
}

async fn peer(bed: &Bed, writers: usize, rounds: usize, backoff: &str) -> Result<String> {
    fresh(bed, "writers").await?;
    let (count, times) = (writers.to_string(), rounds.to_string());
    let arguments = [
        "--namespace",
        NAMESPACE,
        "--name",
        "writers",
        "--backoff",
        backoff,
        "--writers",
        &count,
        "--rounds",
        &times,
    ];
    let answer = bed.ask_peer("writers", &arguments).await?;
    let field = |name: &str| answer.get(name).and_then(Value::as_f64).context("a field of writers");
    Ok(format!(
        "client-go {backoff} {} ({} of {} gave up)",
        seconds(field("seconds")?),
        field("failures")?,
        field("commits")?
    ))
}

/// An empty ConfigMap.
async fn fresh(bed: &Bed, name: &str) -> Result<()> {
    let path = format!("/api/v1/namespaces/{NAMESPACE}/configmaps");
    let (status, _) = bed
        .api()
        .send(Call::new(Method::DELETE, format!("{path}/{name}")))
        .await?;
    anyhow::ensure!(status.is_success() || status == 404, "deleting {name}: {status}");
    let body = format!(r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"{name}"}}}}"#);
    bed.api()
        .call(Call::new(Method::POST, path).body("application/json", body))
        .await?;
    Ok(())
}
