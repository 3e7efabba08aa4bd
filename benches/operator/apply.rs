//! B1, cold apply: a stack of N objects that are not there -> all of them there and recorded.

use anyhow::Result;

use crate::bed::{Bed, finish};
use crate::harness::objects;
use crate::measure::{Effort, LARGE, NOTE_LARGE, Outcome, Sample, Who, Work, contest, growth};
use crate::subject::Passes;
use crate::table::{Entry, Figure, Table, Target, progress};

/// Discovery, and the inventory before and after.
const OVERHEAD_REQUESTS: usize = 5 + 2;

pub(crate) async fn run(bed: &Bed, table: &mut Table) -> Result<()> {
    let mut times = Vec::new();
    let mut noisy = false;
    for &scale in &bed.arguments.scale {
        progress(&format!(" {scale} objects"));
        let effort = Effort::at(scale, bed.arguments.rounds);
        let outcome = contest(&mut Apply { bed, scale }, effort).await?;
        let mut entry = outcome.entry("B1 cold apply", scale);
        if scale >= 100 {
            let timed = outcome.timed();
            entry.gate("over floor", outcome.over_floor, Target::AtMost(1.25), timed);
            if scale < LARGE {
                let faster = outcome.over_stratum(FLUX);
                entry.gate("flux over stratum", faster, Target::AtLeast(3.5), timed);
            } else {
                table.note(NOTE_LARGE);
            }
            let faster = outcome.over_stratum(KUBECTL);
            entry.gate("kubectl over stratum", faster, Target::AtLeast(2.4), timed);
            times.extend(outcome.stratum.map(|time| (scale, time)));
            noisy |= outcome.noisy;
        }
        count(&mut entry, &outcome, scale);
        table.add(entry);
    }
    table.add_growth("B1 growth", growth(&times), noisy);
    Ok(())
}

/// The peers, by their place.
const FLUX: usize = 0;
const KUBECTL: usize = 1;

/// What was asked of the API server for it.
fn count(entry: &mut Entry, outcome: &Outcome, scale: usize) {
    #[expect(clippy::cast_precision_loss, reason = "scales here are far below 2^52")]
    let (applies, most) = (scale as f64, (scale + OVERHEAD_REQUESTS) as f64);
    let requests = outcome.most(|sample| sample.requests.total());
    entry.gate("requests", requests, Target::AtMost(most), Figure::Count);
    let patches = outcome.most(|sample| sample.requests.verb("patch"));
    entry.gate("of these applies", patches, Target::Exactly(applies), Figure::Count);
    let discovery = outcome.most(|sample| sample.requests.discovery());
    entry.gate("of these discovery", discovery, Target::AtMost(5.0), Figure::Count);
    let inventory = outcome.most(|sample| sample.requests.verb("create") + sample.requests.verb("update"));
    entry.gate(
        "of these inventory writes",
        inventory,
        Target::AtMost(2.0),
        Figure::Count,
    );
}

struct Apply<'a> {
    bed: &'a Bed,
    scale: usize,
}

impl Work for Apply<'_> {
    fn peers(&self) -> &'static [&'static str] {
        &["flux/ssa", "kubectl"]
    }

    async fn run(&mut self, who: Who, round: usize) -> Result<Option<Sample>> {
        let bed = self.bed;
        if self.scale >= LARGE && (who == Who::Peer(FLUX) || (who == Who::Peer(KUBECTL) && round > 0)) {
            return Ok(None);
        }
        let namespace = "b1-objects";
        bed.empty_namespace(namespace).await?;
        let objects = objects::objects(namespace, 0..self.scale, 0);
        let folder = bed.fresh("b1")?;
        let sample = match who {
            Who::Floor => {
                let calls = objects.iter().map(objects::Object::apply).collect();
                let work = async || Ok(bed.api().all(calls).await?.as_secs_f64());
                bed.metered(work).await.map(Some)
            }
            Who::Stratum => self.stratum(namespace, &objects, &folder).await,
            Who::Peer(FLUX) => {
                objects::write(&folder, &objects, 50)?;
                bed.metered(async || bed.flux("apply", &folder).await).await.map(Some)
            }
            Who::Peer(_) => {
                objects::write(&folder, &objects, 50)?;
                let kubectl = bed.kubectl().arguments(["apply", "--server-side", "-f"]);
                let kubectl = kubectl.arguments([&folder]);
                let work = async || Ok(finish(&kubectl).await?.0.as_secs_f64());
                bed.metered(work).await.map(Some)
            }
        };
        bed.empty_namespace(namespace).await?;
        sample
    }
}

impl Apply<'_> {
    async fn stratum(
        &self,
        namespace: &str,
        objects: &[objects::Object],
        folder: &std::path::Path,
    ) -> Result<Option<Sample>> {
        let bed = self.bed;
        bed.empty_namespace("b1-system").await?;
        let mut passes = Passes::open(bed, folder, "b1-system", crate::resync::NEVER).await?;
        objects::write(&folder.join("stack"), objects, 50)?;
        let work = async || {
            let report = passes.pass().await?;
            anyhow::ensure!(
                report.counts.created == self.scale && report.is_complete,
                "a cold apply of {} objects in {namespace} reports {report:?}",
                self.scale
            );
            Ok(report.seconds)
        };
        bed.metered(work).await.map(Some)
    }
}
