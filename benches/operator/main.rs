//! Stratum's operator beside the least that is possible (the floor) and beside what others use for the same work, on one
//! API server, in turns, in one run.
//!
//! Every figure that is gated by time is a ratio inside this run: the same work varies threefold between a busy and a
//! quiet minute of one machine. A round counts when the floor before it and the floor after it differ by at most a
//! quarter; what cannot get enough such rounds is called NOISY. Counts of requests are exact and gated always.
//!
//! Exit status: 0 all targets met; 1 a target missed or not measured, or the run could not start or was interrupted (the
//! table then says what was measured until then); 2 wrong usage; 3 too noisy to tell.

mod apply;
mod approvals;
mod bed;
mod drop;
mod handover;
#[path = "../harness/mod.rs"]
#[expect(dead_code, reason = "the rehearsals use more of it")]
mod harness;
mod idle;
mod inventory;
mod movers;
mod no_change;
mod outage;
mod prune;
mod resync;
mod size;
mod subject;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::{Parser, ValueEnum};

use bed::Bed;
use harness::table::Table;
use harness::{measure, run, table};

/// Benchmarks of `stratum operator`; prints a table with PASS or MISS.
#[derive(Clone, Debug, Parser)]
struct Arguments {
    /// Only these, such as B1,B4.
    #[arg(long, value_delimiter = ',', ignore_case = true)]
    only: Vec<Benchmark>,
    /// Numbers of objects; B3 leaves out 10000 and more.
    #[arg(long, value_delimiter = ',', default_values_t = [100, 1000, 10_000])]
    scale: Vec<usize>,
    /// Rounds that count.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Small scales and one round: whether it all works, not how fast it is.
    #[arg(long)]
    quick: bool,
    /// Print the table as Markdown.
    #[arg(long)]
    markdown: bool,
    /// What `cargo bench` adds.
    #[arg(long, hide = true)]
    bench: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "verbatim")]
enum Benchmark {
    B1,
    B2,
    B2b,
    B3,
    B4,
    B5,
    B6,
    B7,
    B11,
    B12,
}

impl Benchmark {
    fn name(self) -> &'static str {
        match self {
            Self::B1 => "B1",
            Self::B2 => "B2",
            Self::B2b => "B2b",
            Self::B3 => "B3",
            Self::B4 => "B4",
            Self::B5 => "B5",
            Self::B6 => "B6",
            Self::B7 => "B7",
            Self::B11 => "B11",
            Self::B12 => "B12",
        }
    }
}

impl Arguments {
    fn wants(&self, benchmark: Benchmark) -> bool {
        self.only.is_empty() || self.only.contains(&benchmark)
    }
}

fn main() -> ExitCode {
    let mut arguments = Arguments::parse();
    if arguments.quick {
        arguments.scale = vec![10];
        arguments.rounds = 1;
    }
    let runtime = match tokio::runtime::Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => return run::failed(&error.into()),
    };
    run::ended(runtime.block_on(measure_wanted(&arguments)), arguments.markdown)
}

async fn measure_wanted(arguments: &Arguments) -> Result<Table> {
    let interrupted = harness::signals::interrupted()?;
    tokio::pin!(interrupted);
    let bed = tokio::select! {
        bed = Bed::start(arguments.clone()) => bed?,
        () = &mut interrupted => anyhow::bail!("interrupted"),
    };
    let mut table = Table::default();
    let was_interrupted = tokio::select! {
        () = measure_all(&bed, &mut table) => false,
        () = &mut interrupted => true,
    };
    if was_interrupted {
        run::interrupted(&mut table);
    }
    // Whatever became of the measurements, nothing of the run stays.
    bed.end().await?;
    Ok(table)
}

/// No benchmark takes half of it on two cores.
const LONGEST: Duration = Duration::from_secs(30 * 60);

async fn measure_all(bed: &Bed, table: &mut Table) {
    for benchmark in Benchmark::value_variants() {
        if !bed.arguments.wants(*benchmark) {
            continue;
        }
        run::one(benchmark.name(), LONGEST, table, async |table| {
            measure(*benchmark, bed, table).await
        })
        .await;
    }
}

async fn measure(benchmark: Benchmark, bed: &Bed, table: &mut Table) -> Result<()> {
    match benchmark {
        Benchmark::B1 => apply::run(bed, table).await,
        Benchmark::B2 => no_change::run(bed, table).await,
        Benchmark::B2b => drop::run(bed, table).await,
        Benchmark::B3 => resync::run(bed, table).await,
        Benchmark::B4 => prune::run(bed, table).await,
        Benchmark::B5 => approvals::run(bed, table).await,
        Benchmark::B6 => inventory::run(bed, table).await,
        Benchmark::B7 => idle::run(bed, table).await,
        Benchmark::B11 => handover::run(bed, table).await,
        Benchmark::B12 => size::run(bed, table).await,
    }
}
