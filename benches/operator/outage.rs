//! B11, an outage of the API server: it is stopped and continued while two operators stand ready and files keep changing.
//! What counts is how soon afterwards something new is written, and that there are never two who write.
//!
//! Judged from the API server's audit log, in a namespace in which only a leader has anything to write.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use jiff::Timestamp;
use rustix::process::{Pid, Signal};
use stratum::host::clock;
use tokio::sync::{Mutex, watch};

use crate::bed::Bed;
use crate::handover;
use crate::harness::audit::{Event, Log};
use crate::harness::objects;
use crate::subject;
use crate::table::{Entry, Figure, Table, Target, progress, seconds};

const NAMESPACE: &str = "b11-outage";
/// How often a new file is dropped.
const PACE: Duration = Duration::from_millis(250);

pub(crate) async fn run(bed: &Bed, table: &mut Table) -> Result<()> {
    let outages = if bed.arguments.quick { &[5][..] } else { &[5, 12] };
    for &outage in outages {
        progress(&format!(" outage of {outage} s"));
        let bed = bed.another().await?;
        let measured = through(&bed, Duration::from_secs(outage)).await;
        bed.end().await?;
        let seen = measured?;
        let mut entry = Entry::new("B11 API server outage", format!("{outage} s"));
        let by = if seen.writers.len() > 1 {
            "another leader"
        } else {
            "the same leader"
        };
        entry.stratum = format!("{} to a new write, by {by}", seconds(seen.first_write));
        // Within the renew deadline of 10 s nobody has lost anything. Beyond it a leader must have given up, and its Lease
        // runs out 15 s after its last renewal.
        entry.gate(
            "s",
            Some(seen.first_write),
            Target::AtMost(16.0),
            Figure::Time { noisy: false },
        );
        #[expect(clippy::cast_precision_loss, reason = "counts here are far below 2^52")]
        let (overlapping, writes) = (seen.overlapping as f64, seen.writes as f64);
        entry.gate("writes seen", Some(writes), Target::AtLeast(10.0), Figure::Count);
        entry.gate(
            "writes of two at once",
            Some(overlapping),
            Target::Exactly(0.0),
            Figure::Count,
        );
        table.add(entry);
    }
    Ok(())
}

/// What came of an outage.
struct Seen {
    /// Seconds from the end of the outage until the first object of a file dropped after it.
    first_write: f64,
    /// Who wrote, in the order of their first writes.
    writers: Vec<String>,
    writes: usize,
    /// Writes that came after another's first.
    overlapping: usize,
}

async fn through(bed: &Bed, outage: Duration) -> Result<Seen> {
    bed.empty_namespace(NAMESPACE).await?;
    let folder = bed.fresh("outage")?;
    let stack = folder.join("stack");
    std::fs::create_dir(&stack)?;
    let leader = handover::start(bed, "outage-0", &folder)
        .await?
        .context("no operator")?;
    subject::leads(bed, &leader.node).await?;
    let _follower = handover::start(bed, "outage-1", &folder)
        .await?
        .context("no operator")?;
    let (stop, stopped) = watch::channel(false);
    let dropped = Arc::new(Mutex::new(Vec::new()));
    let drops = tokio::spawn(drop_files(stack, Arc::clone(&dropped), stopped));
    // The follower has seen the holder by then, and some files are applied.
    clock::sleep(Duration::from_secs(3)).await;

    signal(bed, Signal::STOP)?;
    clock::sleep(outage).await;
    signal(bed, Signal::CONT)?;
    let resumed = clock::now();

    let mut log = Log::new(bed.plane.audit_log());
    let mut writes = Vec::new();
    let first = async {
        loop {
            writes.extend(log.follow()?.into_iter().filter(is_write));
            let dropped = dropped.lock().await;
            let is_new = |write: &&Event| number(write).and_then(|number| dropped.get(number)) >= Some(&resumed);
            if let Some(write) = writes.iter().find(is_new) {
                return anyhow::Ok(write.answered.duration_since(resumed).as_secs_f64());
            }
            drop(dropped);
            clock::sleep(Duration::from_millis(50)).await;
        }
    };
    let first_write = tokio::time::timeout(Duration::from_secs(90), first)
        .await
        .context("nothing was written within 90 s of the outage")??;
    // Whoever is late has a little time to show it.
    clock::sleep(Duration::from_secs(5)).await;
    writes.extend(log.follow()?.into_iter().filter(is_write));
    let _ = stop.send(true);
    drops.await??;
    Ok(judge(first_write, writes))
}

/// Drops files of one object each, and says when.
async fn drop_files(stack: PathBuf, dropped: Arc<Mutex<Vec<Timestamp>>>, stop: watch::Receiver<bool>) -> Result<()> {
    for number in 0.. {
        if *stop.borrow() {
            break;
        }
        let object = objects::objects(NAMESPACE, [number], 0);
        dropped.lock().await.push(clock::now());
        objects::write_file(&stack.join(format!("dropped-{number:05}.yaml")), &object)?;
        clock::sleep(PACE).await;
    }
    Ok(())
}

/// Which object was written, by its number.
fn number(write: &Event) -> Option<usize> {
    write.object_ref.name.strip_prefix("object-")?.parse().ok()
}

fn judge(first_write: f64, mut writes: Vec<Event>) -> Seen {
    writes.sort_by_key(|write| write.received);
    let mut writers: Vec<String> = Vec::new();
    for write in &writes {
        if !writers.iter().any(|known| known == write.user()) {
            writers.push(write.user().to_owned());
        }
    }
    let overlapping = writes.iter().filter(|write| {
        let later = writers.iter().skip_while(|known| *known != write.user()).skip(1);
        let mut firsts = later.filter_map(|other| writes.iter().find(|first| first.user() == other));
        firsts.any(|first| write.answered > first.received)
    });
    Seen {
        first_write,
        overlapping: overlapping.count(),
        writes: writes.len(),
        writers,
    }
}

/// A write of an operator that succeeded.
fn is_write(event: &Event) -> bool {
    event.object_ref.namespace == NAMESPACE
        && event.user().starts_with("outage-")
        && ["create", "update", "patch", "delete"].contains(&event.verb.as_str())
        && event.succeeded()
}

fn signal(bed: &Bed, signal: Signal) -> Result<()> {
    let pid = i32::try_from(bed.plane.api_server()).ok().and_then(Pid::from_raw);
    rustix::process::kill_process(pid.context("a process id")?, signal)?;
    Ok(())
}
