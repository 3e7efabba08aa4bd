//! B12, size and start. The floor of a start is `true`: what the kernel and the loader cost.

use anyhow::Result;
use stratum::host::child::Program;
use stratum::host::clock;

use crate::bed::{Bed, finish};
use crate::harness::{objects, process};
use crate::measure::{between_floors, median};
use crate::subject;
use crate::table::{Entry, Figure, Table, Target, seconds};

const STARTS: usize = 20;

pub(crate) async fn run(bed: &Bed, table: &mut Table) -> Result<()> {
    table.add(size(bed)?);
    table.add(version(bed).await?);
    table.add(ready(bed).await?);
    Ok(())
}

fn size(bed: &Bed) -> Result<Entry> {
    #[expect(clippy::cast_precision_loss, reason = "sizes of files are far below 2^52")]
    let megabytes = |path: &std::path::Path| anyhow::Ok(process::size(path)? as f64 / 1e6);
    let stratum = megabytes(&bed.stratum)?;
    let mut entry = Entry::new("B12 executable", "-");
    entry.stratum = format!("{stratum:.1} MB");
    entry.peers = format!(
        "kubectl {:.1} MB, controller-runtime cache {:.1} MB",
        megabytes(&bed.kubectl().path)?,
        megabytes(&bed.peer("ctrlcache").path)?
    );
    entry.gate("MB", Some(stratum), Target::AtMost(25.0), Figure::Count);
    Ok(entry)
}

async fn version(bed: &Bed) -> Result<Entry> {
    let version = Program::new(&bed.stratum).arguments(["--version"]);
    let measured = between_floors(floor, async || starts(&version).await).await?;
    let kubectl = starts(&bed.kubectl().arguments(["version", "--client"])).await?;
    let mut entry = Entry::new("B12 --version", format!("median of {STARTS}"));
    entry.floor = seconds(measured.floor);
    entry.stratum = seconds(measured.result);
    entry.peers = format!("kubectl version --client {}", seconds(kubectl));
    let limit = Target::AtMost(5.0);
    entry.gate("ms", Some(measured.result * 1e3), limit, measured.figure.by_itself());
    Ok(entry)
}

/// The least a start can cost.
async fn floor() -> Result<f64> {
    starts(&Program::new("true")).await
}

/// Exec to ready, which is when every watch has listed once, on a cluster with nothing in it.
async fn ready(bed: &Bed) -> Result<Entry> {
    let folder = bed.fresh("b12")?;
    objects::write(&folder.join("stack"), &[], 1)?;
    let work = async || {
        let mut times = Vec::new();
        for start in 0..3 {
            let began = clock::monotonic();
            let mut running = subject::start(bed, &format!("b12-{start}"), &folder)?;
            if subject::ready(&running).await? {
                times.push(began.elapsed().as_secs_f64());
            }
            running.child.terminate(std::time::Duration::from_secs(10)).await?;
        }
        Ok(median(times))
    };
    let measured = between_floors(floor, work).await?;
    let time = measured.result;
    let mut entry = Entry::new("B12 start to ready", "empty cluster");
    entry.floor = seconds(measured.floor);
    entry.stratum = time.map_or_else(|| "-".to_owned(), seconds);
    let limit = Target::AtMost(150.0);
    entry.gate("ms", time.map(|time| time * 1e3), limit, measured.figure.by_itself());
    Ok(entry)
}

async fn starts(program: &Program) -> Result<f64> {
    let mut times = Vec::new();
    for _ in 0..STARTS {
        times.push(finish(program).await?.0.as_secs_f64());
    }
    Ok(median(times).unwrap_or_default())
}
