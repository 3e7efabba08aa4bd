//! B2, a pass over N files in which nothing has changed. The floor is `sha256sum` of the tree: nothing that looks at every
//! byte can do less.

use std::path::PathBuf;

use anyhow::Result;
use stratum::host::child::Program;

use crate::bed::{Bed, finish};
use crate::harness::objects;
use crate::measure::{Effort, LARGE, Sample, Who, Work, contest};
use crate::subject::Passes;
use crate::table::{Figure, Table, Target, progress};

const NAMESPACE: &str = "b2-objects";

pub(crate) async fn run(bed: &Bed, table: &mut Table) -> Result<()> {
    for &scale in &bed.arguments.scale {
        progress(&format!(" {scale} files"));
        bed.empty_namespace(NAMESPACE).await?;
        bed.empty_namespace("b2-system").await?;
        let folder = bed.fresh("b2")?;
        objects::write(&folder.join("stack"), &objects::objects(NAMESPACE, 0..scale, 0), 1)?;
        let mut passes = Passes::open(bed, &folder, "b2-system", crate::resync::NEVER).await?;
        passes.pass().await?;
        if scale < LARGE {
            bed.flux("apply", &folder).await?;
        }
        let mut work = NoChange {
            bed,
            scale,
            folder,
            passes,
        };
        // A round takes half a second here, however many files.
        let effort = Effort::at(100, bed.arguments.rounds);
        let outcome = contest(&mut work, effort).await?;
        let mut entry = outcome.entry("B2 no-change pass", scale);
        let requests = outcome.most(|sample| sample.requests.total());
        entry.gate("requests", requests, Target::Exactly(0.0), Figure::Count);
        entry.gate(
            "over sha256sum",
            outcome.over_floor,
            Target::AtMost(2.0),
            outcome.timed(),
        );
        if (1000..LARGE).contains(&scale) {
            let faster = outcome.over_stratum(0);
            entry.gate("flux over stratum", faster, Target::AtLeast(100.0), outcome.timed());
        }
        table.add(entry);
        bed.empty_namespace(NAMESPACE).await?;
    }
    Ok(())
}

struct NoChange<'a> {
    bed: &'a Bed,
    scale: usize,
    folder: PathBuf,
    passes: Passes,
}

impl Work for NoChange<'_> {
    fn peers(&self) -> &'static [&'static str] {
        &["flux/ssa"]
    }

    async fn run(&mut self, who: Who, _: usize) -> Result<Option<Sample>> {
        let bed = self.bed;
        match who {
            Who::Floor => {
                let sums = Program::new("find").arguments([&self.folder]);
                let sums = sums.arguments(["-type", "f", "-exec", "sha256sum", "{}", "+"]);
                let work = async || Ok(finish(&sums).await?.0.as_secs_f64());
                bed.metered(work).await.map(Some)
            }
            Who::Stratum => {
                let (passes, scale) = (&mut self.passes, self.scale);
                let work = async || {
                    let report = passes.pass().await?;
                    anyhow::ensure!(
                        report.counts.unchanged == scale,
                        "nothing changed, and a pass reports {report:?}"
                    );
                    Ok(report.seconds)
                };
                bed.metered(work).await.map(Some)
            }
            Who::Peer(_) if self.scale >= LARGE => Ok(None),
            Who::Peer(_) => {
                let work = async || bed.flux("apply", &self.folder).await;
                bed.metered(work).await.map(Some)
            }
        }
    }
}
