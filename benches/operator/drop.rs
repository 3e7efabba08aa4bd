//! B2b, drop latency: a file is put into a folder of many -> its object is seen by somebody who watches the cluster. The
//! real process, with its own watch of the folder.

use std::cell::Cell;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use http::Method;
use serde_json::Value;
use stratum::host::clock;
use tokio::sync::oneshot;

use crate::bed::Bed;
use crate::harness::api::Call;
use crate::harness::binaries::eventually;
use crate::harness::objects;
use crate::measure::{between_floors, median};
use crate::subject;
use crate::table::{Entry, Table, Target, seconds};

/// Where the operator keeps its record.
const INVENTORY: &str = "/api/v1/namespaces/kube-system/configmaps/stratum-addon-inventory";
const NAMESPACE: &str = "b2b-objects";
const DROPS: usize = 20;

pub(crate) async fn run(bed: &Bed, table: &mut Table) -> Result<()> {
    let many = if bed.arguments.quick { 10 } else { 1000 };
    bed.empty_namespace(NAMESPACE).await?;
    let folder = bed.fresh("b2b")?;
    let stack = folder.join("stack");
    objects::write(&stack, &objects::objects(NAMESPACE, 0..many, 0), 1)?;
    // Nothing is dropped twice: that would change nothing.
    let numbers = Cell::new(1000);
    let measured = between_floors(
        async || floor(bed, &numbers).await,
        async || stratum(bed, &folder, &numbers).await,
    )
    .await?;

    let mut entry = Entry::new("B2b drop to visible", format!("1 file into {many}"));
    entry.floor = seconds(measured.floor);
    let middle = measured.result.and_then(median);
    entry.stratum = middle.map_or_else(|| "-".to_owned(), seconds);
    entry.peers = "k3s polls every 15 s".to_owned();
    let limit = Target::AtMost(100.0);
    entry.gate(
        "median, ms",
        middle.map(|middle| middle * 1e3),
        limit,
        measured.figure.by_itself(),
    );
    table.add(entry);
    bed.empty_namespace(NAMESPACE).await
}

/// The number of the next ConfigMap: every 20th of the mix is one.
fn next(numbers: &Cell<usize>) -> usize {
    numbers.set(numbers.get() + 20);
    numbers.get()
}

/// One apply, seen by the same watch.
async fn floor(bed: &Bed, numbers: &Cell<usize>) -> Result<f64> {
    let mut latencies = Vec::new();
    for _ in 0..DROPS {
        let object = objects::objects(NAMESPACE, [next(numbers)], 0);
        let object = object.first().context("no object")?;
        let call = object.apply();
        let dropped = async || {
            bed.api().call(call).await?;
            Ok(())
        };
        latencies.push(seen_after(bed, &object.name, dropped).await?);
    }
    median(latencies).context("no drops")
}

async fn stratum(bed: &Bed, folder: &Path, numbers: &Cell<usize>) -> Result<Option<Vec<f64>>> {
    let mut running = subject::start(bed, "b2b", folder)?;
    if !subject::ready(&running).await? {
        return Ok(None);
    }
    let first = format!("/api/v1/namespaces/{NAMESPACE}/configmaps/object-00000");
    let applied = async || {
        let (status, _) = bed.api().send(Call::new(Method::GET, &first)).await?;
        Ok(status.is_success().then_some(()))
    };
    let (limit, pace) = (Duration::from_secs(30), Duration::from_millis(500));
    eventually("the folder is applied", limit, pace, applied).await?;
    let mut latencies = Vec::new();
    for _ in 0..DROPS {
        let object = objects::objects(NAMESPACE, [next(numbers)], 0);
        let name = object.first().context("no object")?.name.clone();
        let staged = bed.fresh("b2b-staged")?;
        objects::write(&staged, &object, 1)?;
        let target = folder.join("stack").join(format!("{name}.yaml"));
        let dropped = async || Ok(std::fs::rename(staged.join("objects-00000.yaml"), target)?);
        latencies.push(seen_after(bed, &name, dropped).await?);
        // Drops are apart: the pass of one has ended, with its UID on record, before the next comes.
        let recorded = async || {
            let inventory = bed.api().read(INVENTORY).await?;
            let text = inventory
                .pointer("/data/inventory")
                .and_then(Value::as_str)
                .unwrap_or_default();
            Ok(text.contains(&format!("\"{name}\": \"")).then_some(()))
        };
        eventually("the object is recorded", limit, pace, recorded).await?;
    }
    running.child.terminate(Duration::from_secs(10)).await?;
    Ok(Some(latencies))
}

/// Seconds from the start of `act` to the ConfigMap's event.
async fn seen_after(bed: &Bed, name: &str, act: impl AsyncFnOnce() -> Result<()>) -> Result<f64> {
    let api = bed.api().clone();
    let (started, ready) = oneshot::channel();
    let name = name.to_owned();
    let watching = tokio::spawn(async move {
        let wanted = |event: &Value| event.pointer("/object/metadata/name").and_then(Value::as_str) == Some(&name);
        let list = format!("/api/v1/namespaces/{NAMESPACE}/configmaps");
        let event = tokio::time::timeout(Duration::from_secs(30), api.watch(&list, wanted, started));
        event
            .await
            .with_context(|| format!("ConfigMap {name} was not seen within 30 s"))?
    });
    ready.await.context("the watch did not start")?;
    let began = clock::monotonic();
    act().await?;
    let seen = watching.await??;
    Ok(seen.saturating_duration_since(began).as_secs_f64())
}
