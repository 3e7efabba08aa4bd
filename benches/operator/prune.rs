//! B4, prune: of 2N applied objects N leave the files -> those N are gone, the others are there.

use std::path::Path;
use std::time::Duration;

use anyhow::{Result, ensure};
use http::Method;
use serde_json::Value;
use stratum::host::clock;

use crate::bed::{Bed, finish};
use crate::harness::api::Call;
use crate::harness::objects::{self, COLLECTIONS, Object};
use crate::measure::{Effort, LARGE, NOTE_LARGE, Sample, Who, Work, contest, growth};
use crate::movers;
use crate::subject::Passes;
use crate::table::{Figure, Table, Target, progress};

const NAMESPACE: &str = "b4-objects";
/// Twice as many are recorded at first, and the inventory is one ConfigMap: 1 MiB is about 17,000 references.
const FITS: usize = 8000;
const NOTE_FITS: &str =
    "B4 at 10000: 8000 of 16000, since 20000 references do not fit the inventory's ConfigMap; stratum refuses them.";

pub(crate) async fn run(bed: &Bed, table: &mut Table) -> Result<()> {
    let mut times = Vec::new();
    let mut noisy = false;
    for &asked in &bed.arguments.scale {
        let scale = asked.min(FITS);
        if asked > FITS {
            table.note(NOTE_FITS);
        }
        progress(&format!(" {scale} of {}", scale * 2));
        let effort = Effort::at(asked, bed.arguments.rounds);
        let mut work = Prune {
            bed,
            scale,
            alone: asked >= LARGE,
            survived: None,
        };
        let outcome = contest(&mut work, effort).await?;
        let mut entry = outcome.entry("B4 prune", format!("{scale} of {}", scale * 2));
        if scale >= 100 {
            let timed = outcome.timed();
            entry.gate("over floor", outcome.over_floor, Target::AtMost(1.3), timed);
            if asked < LARGE {
                let faster = outcome.over_stratum(FLUX);
                entry.gate("flux over stratum", faster, Target::AtLeast(3.5), timed);
                let faster = outcome.over_stratum(APPLYSET);
                entry.gate("applyset over stratum", faster, Target::AtLeast(50.0), timed);
            } else {
                table.note(NOTE_LARGE);
            }
            times.extend(outcome.stratum.map(|time| (scale, time)));
            noisy |= outcome.noisy;
        }
        let deletes = outcome.most(|sample| sample.requests.verb("delete"));
        #[expect(clippy::cast_precision_loss, reason = "scales here are far below 2^52")]
        let (wanted, survivors, survived) = (
            scale as f64,
            movers::COUNT as f64,
            work.survived.map(|survived| survived as f64),
        );
        entry.gate("deletes", deletes, Target::Exactly(wanted), Figure::Count);
        let gets = outcome.most(|sample| sample.requests.object_gets());
        entry.gate("GETs of objects", gets, Target::Exactly(0.0), Figure::Count);
        entry.gate(
            "moved or re-versioned, same UID",
            survived,
            Target::Exactly(survivors),
            Figure::Count,
        );
        table.add(entry);
    }
    table.note(NOTE_APPLYSET);
    table.add_growth("B4 growth", growth(&times), noisy);
    Ok(())
}

/// The peers, by their place.
const FLUX: usize = 0;
const APPLYSET: usize = 1;

const NOTE_APPLYSET: &str =
    "kubectl --applyset prunes five objects a second: it takes part once at 100 and at 1000, and not at 10000.";

struct Prune<'a> {
    bed: &'a Bed,
    scale: usize,
    /// The peers take minutes each, and stay away.
    alone: bool,
    /// The fewest of [`movers`] that were left after a pass of stratum's.
    survived: Option<usize>,
}

impl Work for Prune<'_> {
    fn peers(&self) -> &'static [&'static str] {
        &["flux/ssa", "kubectl --applyset"]
    }

    async fn run(&mut self, who: Who, round: usize) -> Result<Option<Sample>> {
        let bed = self.bed;
        let takes_part = match who {
            Who::Floor | Who::Stratum => true,
            Who::Peer(APPLYSET) => !self.alone && round == 0,
            Who::Peer(_) => !self.alone,
        };
        if !takes_part {
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
            Who::Peer(APPLYSET) => Some(self.applyset(&staying, &leaving).await?),
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
    async fn stratum(&mut self, folder: &Path, leave: &[Object]) -> Result<Option<Sample>> {
        let bed = self.bed;
        bed.empty_namespace("b4-system").await?;
        // Only first-level folders are stacks, and each of these files is one by itself.
        let leaving = folder.join("leaving");
        std::fs::remove_dir_all(folder.join("stack/leaving"))?;
        objects::write(&leaving, leave, 50)?;
        movers::clear(bed).await?;
        movers::write(&leaving, &folder.join("stack"))?;
        let mut passes = Passes::open(bed, folder, "b4-system", crate::resync::NEVER).await?;
        let first = passes.pass().await?;
        ensure!(first.is_complete, "not all was applied to begin with: {first:?}");
        let before = movers::uids(bed).await?;
        movers::move_and_reversion(&folder.join("stack"))?;
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
        let sample = bed.metered(work).await?;
        let after = movers::uids(bed).await?;
        let survived = before
            .iter()
            .filter(|(name, uid)| after.get(*name) == Some(*uid))
            .count();
        self.survived = Some(self.survived.unwrap_or(usize::MAX).min(survived));
        Ok(Some(sample))
    }

    /// Its pass without the leaving files. It takes in what stays once more, as its users have it do.
    async fn applyset(&self, staying: &Path, leaving: &Path) -> Result<Sample> {
        let bed = self.bed;
        let kubectl = bed.kubectl().variable("KUBECTL_APPLYSET", "true");
        let kubectl = kubectl.arguments(["apply", "--server-side", "--prune", "--applyset=bench"]);
        let kubectl = kubectl.arguments(["--namespace", NAMESPACE, "--recursive", "--filename"]);
        let kubectl = kubectl.arguments([staying]);
        finish(&kubectl).await?;
        std::fs::remove_dir_all(leaving)?;
        let sample = bed
            .metered(async || Ok(finish(&kubectl).await?.0.as_secs_f64()))
            .await?;
        // The Secret it keeps the set in is none of the mix.
        let set = format!("/api/v1/namespaces/{NAMESPACE}/secrets/bench");
        bed.api().call(Call::new(Method::DELETE, set)).await?;
        Ok(sample)
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
