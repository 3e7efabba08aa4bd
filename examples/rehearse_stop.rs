//! Rehearsal: the leader is stopped in the middle of a pass, another takes over, and the old one is continued.
//!
//! What has to hold, by the API server's audit log: once the new leader has written, no delete and no write of the
//! inventory by the old one succeeds. And after each round the cluster is what the folder says.
//!
//! `cargo build && cargo run --example rehearse_stop` takes about 15 minutes.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a rehearsal talks to who runs it"
)]

#[path = "rehearsal/audit.rs"]
mod audit;
#[path = "../benches/harness/mod.rs"]
#[expect(dead_code, reason = "the benchmarks use more of it")]
mod harness;
mod rehearsal;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Parser;
use jiff::Timestamp;
use rustix::process::Signal;
use serde_json::Value;
use stratum::host::{clock, entropy};

use audit::{Log, What, Write};
use harness::binaries::eventually;

use rehearsal::world::World;
use rehearsal::{Generation, Instance, Stage};

const NODES: [&str; 2] = ["one", "two"];

/// Stops the leader in the middle of a pass, again and again.
#[derive(Debug, Parser)]
struct Arguments {
    /// How often
    #[arg(long, default_value_t = 20)]
    rounds: usize,
    /// Objects in the folder
    #[arg(long, default_value_t = 5000)]
    objects: usize,
    /// Seconds for which the leader is stopped; longer than a Lease lives
    #[arg(long, default_value_t = 20)]
    stopped: u64,
}

/// One round, as its row says.
struct Row {
    at: String,
    take_over: String,
    exit: String,
    late: [usize; 3],
    /// Objects that were to stay and did not.
    lost: usize,
    /// Objects in no record while the leader was stopped.
    orphans: usize,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    rehearsal::exit_of(run(&arguments))
}

/// How many rules were broken.
async fn run(arguments: &Arguments) -> Result<usize> {
    let mut rehearsal = Rehearsal::start(arguments).await?;
    println!("round  take-over  old one's end     late applies, deletes, inventory  lost  orphans  stopped");
    let mut violations = 0;
    for round in 1..=arguments.rounds {
        let Row {
            at,
            take_over,
            exit,
            late: [applies, deletes, inventory],
            lost,
            orphans,
        } = rehearsal.round().await?;
        println!(
            "{round:5}  {take_over:9}  {exit:16}  {applies:12} {deletes:8} {inventory:10}  {lost:4}  {orphans:7}  {at}"
        );
        violations += deletes + inventory + lost + orphans;
    }
    rehearsal.log.follow()?;
    let backwards = terms_going_back(&rehearsal.log.writes);
    println!("inventory writes with a lower term than the one before: {backwards}");
    Ok(violations + backwards)
}

struct Rehearsal {
    stage: Stage,
    log: Log,
    instances: [Instance; 2],
    generation: Generation,
    /// The cluster when it was last settled.
    world: World,
    stopped: Duration,
}

impl Rehearsal {
    async fn start(arguments: &Arguments) -> Result<Self> {
        let mut stage = Stage::set(&NODES, Some(audit::POLICY)).await?;
        let generation = Generation {
            number: 0,
            objects: arguments.objects,
        };
        stage.declare(generation)?;
        let instances = [stage.start(NODES[0])?, stage.start(NODES[1])?];
        let world = stage.settled(generation).await?;
        Ok(Self {
            log: Log::new(stage.plane.audit_log()),
            stage,
            instances,
            generation,
            world,
            stopped: Duration::from_secs(arguments.stopped),
        })
    }

    async fn round(&mut self) -> Result<Row> {
        let leader = leader(&self.stage, &self.instances).await?;
        self.log.follow()?;
        let start = self.log.writes.len();
        self.generation = self.generation.next();
        self.stage.declare(self.generation)?;
        let old = self.instances.get(leader).context("no leader")?;
        let (number, node) = (old.number, old.node.clone());
        let moment = random_up_to(self.generation.writes());
        let log = &mut self.log;
        let reached = async || {
            log.follow()?;
            let writes = log.writes.iter().skip(start);
            let own = writes.filter(|write| write.by == number && write.what != What::Other);
            Ok((own.count() >= moment).then_some(()))
        };
        let what = "the leader is in the middle of its pass";
        eventually(what, Duration::from_secs(120), Duration::from_millis(1), reached).await?;
        old.signal(Signal::STOP)?;
        let phase = phase(self.log.writes.get(start..).unwrap_or_default(), number);
        // Nobody leads for some seconds now, so the cluster holds still.
        clock::sleep(Duration::from_secs(1)).await;
        let orphans = World::read(&self.stage.plane.api).await?.orphans().len();
        clock::sleep(self.stopped).await;
        old.signal(Signal::CONT)?;
        let place = self.instances.get_mut(leader).context("no leader")?;
        let mut old = std::mem::replace(place, self.stage.start(&node)?);
        let exit = tokio::time::timeout(Duration::from_secs(30), old.child.wait()).await;
        let exit = exit.context("the old leader did not end after it was continued")??;

        let before = std::mem::replace(&mut self.world, self.stage.settled(self.generation).await?);
        let lost = self.world.lost(&before, &self.generation.declared()).len();
        self.log.follow()?;
        let writes = self.log.writes.get(start..).unwrap_or_default();
        let others = writes.iter().filter(|write| write.by != number && is_leaders(write));
        let first = others.map(|write| write.received).min().context("nobody took over")?;
        let in_time = |write: &&Write| write.by == number && is_leaders(write) && write.completed <= first;
        let own = writes.iter().filter(in_time);
        let last = own.map(|write| write.completed).max().unwrap_or(first);
        Ok(Row {
            at: format!("process {number} at write {moment}, {phase}"),
            take_over: format!("{:.1} s", first.duration_since(last).as_secs_f64()),
            exit: exit.to_string(),
            late: [What::Apply, What::Delete, What::Inventory].map(|what| late(writes, number, what, first)),
            lost,
            orphans,
        })
    }
}

/// A number from 1 to `most`.
fn random_up_to(most: usize) -> usize {
    let random = u64::from_le_bytes(entropy::bytes());
    let most = u64::try_from(most).unwrap_or(u64::MAX).max(1);
    1 + usize::try_from(random % most).unwrap_or(0)
}

/// Writes of the old one that may have been stored after the first of the new one: their request had not ended by then.
fn late(writes: &[Write], old: u32, what: What, first: Timestamp) -> usize {
    let late = |write: &&Write| write.by == old && write.what == what && write.completed > first;
    writes.iter().filter(late).count()
}

/// What only a leader writes: inventory sync has the other client, and is done by everyone.
fn is_leaders(write: &Write) -> bool {
    write.deployer && write.what != What::Other || write.what == What::Inventory && write.term.is_some()
}

/// What the pass was at, by its writes so far.
fn phase(writes: &[Write], by: u32) -> &'static str {
    let count = |what: What| {
        writes
            .iter()
            .filter(|write| write.by == by && write.what == what)
            .count()
    };
    match (count(What::Inventory), count(What::Apply), count(What::Delete)) {
        (0 | 1, 0, 0) => "before applying",
        (_, _, 0) => "applying",
        (0 | 1, _, _) => "pruning",
        (_, _, _) => "pruning or narrowing",
    }
}

/// Inventory writes in the order they ended, each with a lower term than one before.
fn terms_going_back(writes: &[Write]) -> usize {
    let mut inventory: Vec<&Write> = writes.iter().filter(|write| write.what == What::Inventory).collect();
    inventory.sort_by_key(|write| write.completed);
    // The inventory is the operator's own; the term tells a leader's write from the sync of every instance.
    let terms: Vec<u64> = inventory.iter().filter_map(|write| write.term).collect();
    terms
        .iter()
        .zip(terms.iter().skip(1))
        .filter(|(before, after)| after < before)
        .count()
}

/// Which of the two leads.
async fn leader(stage: &Stage, instances: &[Instance; 2]) -> Result<usize> {
    let path = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/stratum-operator";
    let look = async || {
        let lease = stage.plane.api.read(path).await?;
        let holder = lease
            .pointer("/spec/holderIdentity")
            .and_then(Value::as_str)
            .unwrap_or_default();
        Ok(instances.iter().position(|instance| holder.starts_with(&instance.node)))
    };
    let limit = Duration::from_secs(60);
    let leader = eventually("somebody leads", limit, Duration::from_millis(200), look).await?;
    if instances
        .get(leader)
        .is_none_or(|instance| instance.child.exit().is_some())
    {
        bail!("the leader has ended");
    }
    Ok(leader)
}
