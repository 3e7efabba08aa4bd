//! B3, resync: N applied objects are compared with the cluster once. What is compared here is CPU seconds of the API
//! server: a resync is spread over its window, so its length on the clock says nothing.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use http::Method;
use stratum::host::clock;

use crate::bed::Bed;
use crate::harness::api::Call;
use crate::harness::objects;
use crate::measure::{Effort, LARGE, Sample, Who, Work, contest, percentile_99};
use crate::subject::Passes;
use crate::table::{Figure, Table, Target, progress};

/// A window that does not end during a run.
pub(crate) const NEVER: Duration = Duration::from_secs(24 * 3600);
const WINDOW: Duration = Duration::from_secs(2);
const FLOOR: &str = "b3-floor";
const STRATUM: &str = "b3-stratum";
const FLUX: &str = "b3-flux";

pub(crate) async fn run(bed: &Bed, table: &mut Table) -> Result<()> {
    for &scale in bed.arguments.scale.iter().filter(|scale| **scale < LARGE) {
        progress(&format!(" {scale} objects"));
        // To each their own: an apply of somebody else is drift.
        for namespace in [FLOOR, STRATUM, FLUX, "b3-system"] {
            bed.empty_namespace(namespace).await?;
        }
        let stack = bed.fresh("b3")?;
        objects::write(&stack.join("stack"), &objects::objects(STRATUM, 0..scale, 0), 50)?;
        let mut passes = Passes::open(bed, &stack, "b3-system", WINDOW).await?;
        passes.pass().await?;
        let folder = bed.fresh("b3-flux")?;
        objects::write(&folder, &objects::objects(FLUX, 0..scale, 0), 50)?;
        bed.flux("apply", &folder).await?;
        let calls: Vec<Call> = objects::objects(FLOOR, 0..scale, 0)
            .iter()
            .map(objects::Object::apply)
            .collect();
        bed.api().all(calls.clone()).await?;
        let (idle_cpu, idle_gets) = idle(bed).await?;
        let mut work = Resync {
            bed,
            folder,
            calls,
            passes,
            idle_cpu,
            gets: Vec::new(),
        };
        let outcome = contest(&mut work, Effort::at(scale, bed.arguments.rounds)).await?;
        let mut entry = outcome.entry("B3 resync, server CPU", scale);
        if scale >= 100 {
            // One list of each resource is more than an apply of each when there are few.
            let over = outcome.over_floor;
            entry.gate("over no-op applies", over, Target::AtMost(1.1), outcome.timed());
        }
        let writes = outcome.most(|sample| sample.requests.verb("patch"));
        entry.gate("writes", writes, Target::Exactly(0.0), Figure::Count);
        let gets = outcome.most(|sample| sample.requests.object_gets());
        entry.gate("GETs of objects", gets, Target::Exactly(0.0), Figure::Count);
        let slower = percentile_99(work.gets).map(|during| during / idle_gets);
        entry.gate(
            "p99 of another's GET over idle",
            slower,
            Target::AtMost(2.0),
            outcome.timed(),
        );
        table.add(entry);
        for namespace in [FLOOR, STRATUM, FLUX] {
            bed.empty_namespace(namespace).await?;
        }
    }
    Ok(())
}

struct Resync<'a> {
    bed: &'a Bed,
    folder: PathBuf,
    calls: Vec<Call>,
    passes: Passes,
    /// CPU seconds of an idle API server in one second.
    idle_cpu: f64,
    /// What others waited during stratum's resyncs.
    gets: Vec<f64>,
}

impl Work for Resync<'_> {
    fn peers(&self) -> &'static [&'static str] {
        &["flux/ssa"]
    }

    async fn run(&mut self, who: Who, _: usize) -> Result<Option<Sample>> {
        let bed = self.bed;
        let began = clock::monotonic();
        let mut took = Duration::ZERO;
        let sample = match who {
            Who::Floor => {
                let calls = self.calls.clone();
                bed.metered(async || Ok(bed.api().all(calls).await?.as_secs_f64()))
                    .await?
            }
            Who::Stratum => {
                let passes = &mut self.passes;
                let sample = bed.metered(async || whole_window(passes).await).await?;
                took = began.elapsed();
                // Another window for what others notice of it: their own requests cost the server as well.
                let (stop, stopped) = tokio::sync::watch::channel(false);
                let other = bed.plane.connect().await?;
                let others = tokio::spawn(async move { waits(&other, &stopped).await });
                whole_window(passes).await?;
                let _ = stop.send(true);
                self.gets.extend(others.await??);
                sample
            }
            Who::Peer(_) => bed.metered(async || bed.flux("apply", &self.folder).await).await?,
        };
        let took = if took.is_zero() { began.elapsed() } else { took };
        let idle = self.idle_cpu * took.as_secs_f64();
        let busy = (sample.server_cpu - idle).max(0.001);
        Ok(Some(Sample {
            seconds: busy,
            ..sample
        }))
    }
}

/// Passes for one and a half windows: each object is due in it once at least.
async fn whole_window(passes: &mut Passes) -> Result<f64> {
    let began = clock::monotonic();
    while began.elapsed() < WINDOW.mul_f64(1.5) {
        passes.pass().await?;
        clock::sleep(Duration::from_millis(50)).await;
    }
    Ok(began.elapsed().as_secs_f64())
}

/// CPU seconds of an idle API server in a second, and the p99 of a GET at it.
async fn idle(bed: &Bed) -> Result<(f64, f64)> {
    let (stop, stopped) = tokio::sync::watch::channel(false);
    let before = bed.plane.cpu()?;
    clock::sleep(Duration::from_secs(3)).await;
    let cpu = (bed.plane.cpu()? - before).as_secs_f64() / 3.0;
    let api = bed.plane.connect().await?;
    let others = tokio::spawn(async move { waits(&api, &stopped).await });
    clock::sleep(Duration::from_secs(3)).await;
    let _ = stop.send(true);
    let p99 = percentile_99(others.await??).context("no GET was answered")?;
    Ok((cpu, p99))
}

/// How long GETs of an object that has nothing to do with it take, one after another, until told to stop.
async fn waits(api: &crate::harness::api::Api, stop: &tokio::sync::watch::Receiver<bool>) -> Result<Vec<f64>> {
    let mut waits = Vec::new();
    while !*stop.borrow() {
        let began = clock::monotonic();
        api.call(Call::new(Method::GET, "/api/v1/namespaces/default")).await?;
        waits.push(began.elapsed().as_secs_f64());
        clock::sleep(Duration::from_millis(10)).await;
    }
    Ok(waits)
}
