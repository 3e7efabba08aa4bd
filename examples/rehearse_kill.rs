//! Rehearsal: the operator is killed (`kill -9`) in every gap of a pass and at random moments, and started again.
//!
//! What has to hold: right after the kill every object of the stack is in the inventory (nothing is orphaned) and nothing
//! that is declared is gone; after the restart the cluster is exactly what the folder says, what stayed has its old UID,
//! and what was never the operator's is untouched.
//!
//! `cargo build && cargo run --example rehearse_kill` takes about ten minutes.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a rehearsal talks to who runs it"
)]

#[path = "../benches/harness/mod.rs"]
#[expect(dead_code, reason = "the benchmarks use more of it")]
mod harness;
#[expect(dead_code, reason = "the other rehearsal tells processes apart")]
mod rehearsal;
#[path = "rehearsal/trap.rs"]
mod trap;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Parser;
use http::Method;
use rustix::process::{Pid, Signal};
use stratum::host::{clock, entropy};

use harness::api::Call;
use harness::binaries::eventually;
use harness::objects::{self, Object};
use rehearsal::world::World;
use rehearsal::{Generation, Instance, NAMESPACE, Stage};
use trap::{Seen, Trap};

const NODE: &str = "one";
/// More random moments than that are not tried to get enough of them inside of a pass.
const MOST_RANDOM: usize = 3;

/// Kills the operator in every gap of a pass and at random moments.
#[derive(Debug, Parser)]
struct Arguments {
    /// Random moments between the first and the last write of a pass; as many again may lie outside
    #[arg(long, default_value_t = 20)]
    random: usize,
    /// Objects in the folder
    #[arg(long, default_value_t = 1000)]
    objects: usize,
}

/// When to strike.
#[derive(Clone, Copy, Debug)]
enum Moment {
    /// The superset is about to be written.
    BeforeSuperset,
    /// The superset is written, and nothing is applied.
    SupersetWritten,
    /// At this apply.
    Applying(usize),
    /// Everything is applied, and its UIDs are about to be recorded.
    Recording,
    /// They are recorded, and nothing is deleted.
    Applied,
    /// At this delete.
    Pruning(usize),
    /// Everything is deleted, and the inventory is about to be narrowed.
    Narrowing,
    /// The inventory is narrowed, and perhaps not everything else is done.
    Narrowed,
    /// This long after the folder changed.
    At(Duration),
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    rehearsal::exit_of(run(&arguments))
}

/// How many rules were broken.
async fn run(arguments: &Arguments) -> Result<usize> {
    let mut rehearsal = Rehearsal::start(arguments.objects).await?;
    println!("orphaned  lost  strangers  applies  deletes  inventory  killed");
    let (applies, deletes) = (
        rehearsal.generation.writes() - rehearsal.generation.step(),
        rehearsal.generation.step(),
    );
    let gaps = [
        Moment::BeforeSuperset,
        Moment::SupersetWritten,
        Moment::Applying(1 + applies / 3),
        // New objects come last.
        Moment::Applying(1 + applies * 4 / 5),
        Moment::Recording,
        Moment::Applied,
        Moment::Pruning(1 + deletes / 2),
        Moment::Narrowing,
        Moment::Narrowed,
    ];
    let mut violations = 0;
    for moment in gaps {
        violations += rehearsal.round(moment).await?.violations;
    }
    let mut inside = 0;
    for tried in 0..arguments.random * MOST_RANDOM {
        if tried >= arguments.random && inside * 4 >= arguments.random * 3 {
            break;
        }
        let moment = Moment::At(rehearsal.pass.mul_f64(entropy::fraction()));
        let round = rehearsal.round(moment).await?;
        violations += round.violations;
        inside += usize::from(round.inside);
    }
    println!("{inside} random moments lay between the first and the last write of a pass");
    Ok(violations + usize::from(inside * 4 < arguments.random * 3))
}

struct Rehearsal {
    stage: Stage,
    trap: Trap,
    operator: Instance,
    generation: Generation,
    /// The cluster when it was last settled.
    world: World,
    /// Objects of the same namespace that are nobody's business here.
    strangers: Vec<Object>,
    /// From the change of the folder to the end of the last complete pass.
    pass: Duration,
}

struct Round {
    violations: usize,
    /// Killed after the first write of the pass and before the last.
    inside: bool,
}

impl Rehearsal {
    async fn start(objects: usize) -> Result<Self> {
        let mut stage = Stage::set(&[NODE], None).await?;
        let trap = Trap::set(&stage.plane).await?;
        let strangers = objects::objects(NAMESPACE, 90_000..90_020, 0);
        stage
            .plane
            .api
            .all(strangers.iter().map(Object::apply).collect())
            .await?;
        let first = Generation { number: 0, objects };
        stage.declare(first)?;
        let operator = stage.start(NODE)?;
        stage.settled(first).await?;
        // The second one tells how long a pass takes that applies, prunes and narrows.
        let generation = first.next();
        let began = clock::monotonic();
        stage.declare(generation)?;
        let world = stage.settled(generation).await?;
        Ok(Self {
            stage,
            trap,
            operator,
            generation,
            world,
            strangers,
            pass: began.elapsed(),
        })
    }

    async fn round(&mut self, moment: Moment) -> Result<Round> {
        self.generation = self.generation.next();
        let declared = self.generation.declared();
        let killed = self.kill(moment).await?;
        // Requests that were under way end.
        clock::sleep(Duration::from_millis(300)).await;
        let (_, seen) = self.trap.seen();
        let after_kill = World::read(&self.stage.plane.api).await?;
        let mut orphans = after_kill.orphans();
        let mut lost = after_kill.lost(&self.world, &declared);

        self.restart().await?;
        let world = self.stage.settled(self.generation).await?;
        orphans.extend(world.orphans());
        lost.extend(world.lost(&self.world, &declared));
        let strangers = self.missing_strangers().await?;
        self.world = world;
        let Seen {
            applies,
            deletes,
            inventory_before,
            inventory_after,
        } = seen;
        let at = if killed {
            format!("{moment:?}")
        } else {
            format!("{moment:?}: the pass had ended")
        };
        println!(
            "{:8}  {:4}  {strangers:9}  {applies:7}  {deletes:7}  {:9}  {at}",
            orphans.len(),
            lost.len(),
            inventory_before + inventory_after,
        );
        for problem in orphans.iter().chain(&lost) {
            println!("    {problem}");
        }
        let began = applies + deletes + inventory_before > 0;
        Ok(Round {
            violations: orphans.len() + lost.len() + strangers,
            inside: began && inventory_after == 0,
        })
    }

    /// Changes the folder, and kills the operator at the moment. Whether it was in a pass; dead it is in any case.
    async fn kill(&mut self, moment: Moment) -> Result<bool> {
        let pid = i32::try_from(self.operator.child.id())
            .ok()
            .and_then(Pid::from_raw)
            .context("a process id")?;
        let applies = self.generation.writes() - self.generation.step();
        let deletes = self.generation.step();
        self.trap.arm(pid, move |seen| match moment {
            Moment::BeforeSuperset => seen.inventory_before > 0,
            Moment::SupersetWritten => seen.applies > 0,
            Moment::Applying(number) => seen.applies >= number,
            Moment::Recording => seen.applies >= applies && seen.inventory_before > 1,
            Moment::Applied => seen.applies >= applies && seen.deletes > 0,
            Moment::Pruning(number) => seen.deletes >= number,
            Moment::Narrowing => seen.deletes >= deletes && seen.inventory_after > 0,
            Moment::Narrowed | Moment::At(_) => false,
        });
        let began = clock::monotonic();
        self.stage.declare(self.generation)?;
        let limit = self.pass * 3 + Duration::from_secs(30);
        let struck = async || {
            let (struck, seen) = self.trap.seen();
            let due = match moment {
                Moment::At(after) => began.elapsed() >= after,
                // The write is under way when it is seen; the next look is after it.
                Moment::Narrowed => seen.inventory_after > 0,
                Moment::BeforeSuperset
                | Moment::SupersetWritten
                | Moment::Applying(_)
                | Moment::Recording
                | Moment::Applied
                | Moment::Pruning(_)
                | Moment::Narrowing => struck,
            };
            Ok(due.then_some(struck))
        };
        let struck = eventually(
            &format!("the moment {moment:?}"),
            limit,
            Duration::from_millis(1),
            struck,
        )
        .await?;
        if !struck {
            self.operator.signal(Signal::KILL)?;
        }
        self.operator.child.wait().await?;
        let (_, seen) = self.trap.seen();
        Ok(struck || seen.inventory_after == 0)
    }

    /// Starts the operator anew. Its predecessor's Lease is removed: waiting for its end is another rehearsal.
    async fn restart(&mut self) -> Result<()> {
        let lease = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/stratum-operator";
        self.stage.plane.api.send(Call::new(Method::DELETE, lease)).await?;
        self.operator = self.stage.start(NODE)?;
        Ok(())
    }

    async fn missing_strangers(&self) -> Result<usize> {
        let mut missing = 0;
        for stranger in &self.strangers {
            let (status, _) = self
                .stage
                .plane
                .api
                .send(Call::new(Method::GET, stranger.path()))
                .await?;
            missing += usize::from(!status.is_success());
        }
        Ok(missing)
    }
}
