//! B4, prune: of 2N applied objects N leave the files -> those N are gone, the others are there.

use std::path::Path;
use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::Value;
use stratum::host::clock;

use crate::bed::Bed;
use crate::harness::objects::{self, COLLECTIONS, Object};
use crate::measure::{Effort, LARGE, NOTE_LARGE, Sample, Who, Work, contest, growth};
use crate::subject::Passes;
use crate::table::{Figure, Table, Target, progress};

const NAMESPACE: &str = "b4-objects";

pub(crate) async fn run(bed: &Bed, table: &mut Table) -> Result<()> {
    let mut times = Vec::new();
    let mut noisy = false;
    for &scale in &bed.arguments.scale {
        progress(&format!(" {scale} of {}", scale * 2));
        let outcome = contest(&mut Prune { bed, scale }, Effort::at(scale, bed.arguments.rounds)).await?;
        let mut entry = outcome.entry("B4 prune", format!("{scale} of {}", scale * 2));
        if scale >= 100 {
            let timed = outcome.timed();
            entry.gate("over floor", outcome.over_floor, Target::AtMost(1.3), timed);
            if scale < LARGE {
                let faster = outcome.over_stratum(FLUX);
                entry.gate("flux over stratum", faster, Target::AtLeast(3.5), timed);
            } else {
                table.note(NOTE_LARGE);
            }
            times.extend(outcome.stratum.map(|time| (scale, time)));
            noisy |= outcome.noisy;
        }
        let deletes = outcome.most(|sample| sample.requests.verb("delete"));
        #[expect(clippy::cast_precision_loss, reason = "scales here are far below 2^52")]
        entry.gate("deletes", deletes, Target::Exactly(scale as f64), Figure::Count);
        let gets = outcome.most(|sample| sample.requests.object_gets());
        entry.gate("GETs of objects", gets, Target::Exactly(0.0), Figure::Count);
        table.add(entry);
    }
    table.add_growth("B4 growth", growth(&times), noisy);
    Ok(())
}

/// The peers, by their place.
const FLUX: usize = 0;

struct Prune<'a> {
    bed: &'a Bed,
    scale: usize,
}

impl Work for Prune<'_> {
    fn peers(&self) -> &'static [&'static str] {
        &["flux/ssa"]
    }

    async fn run(&mut self, who: Who, _: usize) -> Result<Option<Sample>> {
        let bed = self.bed;
        if self.scale >= LARGE && who == Who::Peer(FLUX) {
            return Ok(None);
        }
        bed.empty_namespace(NAMESPACE).await?;
        let stay = objects::objects(NAMESPACE, 0..self.scale, 0);
        let leave = objects::objects(NAMESPACE, self.scale..self.scale * 2, 0);
        let folder = bed.fresh("b4")?;
        let staying = folder.join("stack");
        let leaving = folder.join("stack/leaving");
        objects::write(&staying, &stay, 50)?;
        objects::write(&leaving, &leave, 50)?;
        let sample = match who {
            Who::Floor => {
                let applies = stay.iter().chain(&leave).map(Object::apply);
                bed.api().all(applies.collect()).await?;
                let deletes = leave.iter().map(Object::delete).collect();
                let work = async || Ok(bed.api().all(deletes).await?.as_secs_f64());
                Some(bed.metered(work).await?)
            }
            Who::Stratum => self.stratum(&folder, &leave).await?,
            Who::Peer(_) => {
                bed.flux("apply", &folder).await?;
                Some(bed.metered(async || bed.flux("delete", &leaving).await).await?)
            }
        };
        if sample.is_some() {
            let left = count(bed).await?;
            ensure!(left == self.scale, "{} were to stay, and {left} are there", self.scale);
        }
        bed.empty_namespace(NAMESPACE).await?;
        Ok(sample)
    }
}

impl Prune<'_> {
    async fn stratum(&self, folder: &Path, leave: &[Object]) -> Result<Option<Sample>> {
        let bed = self.bed;
        bed.empty_namespace("b4-system").await?;
        // Only first-level folders are stacks, and each of these files is one by itself.
        let leaving = folder.join("leaving");
        std::fs::remove_dir_all(folder.join("stack/leaving"))?;
        objects::write(&leaving, leave, 50)?;
        let mut passes = Passes::open(bed, folder, "b4-system", crate::resync::NEVER).await?;
        passes.pass().await?;
        for entry in std::fs::read_dir(&leaving)? {
            std::fs::remove_file(entry?.path())?;
        }
        // A file that vanished is believed after a second equal look; that second is not what is measured.
        passes.pass().await?;
        clock::sleep(Duration::from_millis(1100)).await;
        let work = async || {
            let report = passes.pass().await?;
            ensure!(
                report.counts.pruned == self.scale && report.is_complete,
                "{} were to go, and a pass reports {report:?}",
                self.scale
            );
            Ok(report.seconds)
        };
        bed.metered(work).await.map(Some)
    }
}

/// How many objects of the mix are in the namespace, without the cluster's own `kube-root-ca.crt`.
async fn count(bed: &Bed) -> Result<usize> {
    let mut count = 0;
    for (api, resource) in COLLECTIONS {
        let list = bed
            .api()
            .read(&format!("{api}/namespaces/{NAMESPACE}/{resource}"))
            .await?;
        let items = list.pointer("/items").and_then(Value::as_array);
        count += items.map_or(0, |items| {
            let name =
                |item: &&Value| item.pointer("/metadata/name").and_then(Value::as_str) != Some("kube-root-ca.crt");
            items.iter().filter(name).count()
        });
    }
    Ok(count)
}
