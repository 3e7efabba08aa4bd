//! A node of stratum beside one of the real kubeadm, on real kubelets (`tests/rig`), as root: how long until there is an
//! API server, how long a static pod is away when it is restarted, and what it takes to look at the certificates of a control
//! plane and to make them anew.
//!
//! Both sides have the same programs and images and one machine, and take turns. There is no floor: each figure is a ratio
//! to what the peer took in the same round. A row whose rounds disagree about its target is NOISY.
//!
//! Exit status: 0 all targets met; 1 a target missed or not measured, or the run could not start or was interrupted (the
//! table then says what was measured until then); 2 wrong usage; 3 too noisy to tell.

mod certificates;
#[path = "../harness/mod.rs"]
#[expect(dead_code, reason = "the operator's benchmarks use more of it")]
mod harness;
mod inside;
mod probe;
mod ready;
mod restart;
#[path = "../../tests/rig/mod.rs"]
#[expect(dead_code, unused_imports, reason = "the tests use more of it")]
mod rig;
mod rounds;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::{Parser, Subcommand, ValueEnum};

use ::stratum::host::assets::Tool;
use harness::run;
use harness::table::{Table, progress};
use rig::Rig;

/// Benchmarks of a node; prints a table with PASS or MISS.
#[derive(Clone, Debug, Parser)]
struct Arguments {
    #[command(subcommand)]
    inside: Option<Inside>,
    /// Only these, such as N1.
    #[arg(long, value_delimiter = ',', ignore_case = true)]
    only: Vec<Benchmark>,
    /// Rounds of each.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// One round: whether it all works, not how fast it is.
    #[arg(long)]
    quick: bool,
    /// Print the table as Markdown.
    #[arg(long)]
    markdown: bool,
    /// What `cargo bench` adds.
    #[arg(long, hide = true)]
    bench: bool,
}

#[derive(Clone, Debug, Subcommand)]
enum Inside {
    /// What this program does on a node of its own rig.
    #[command(hide = true)]
    Restart(inside::Arguments),
    /// The same for certificates.
    #[command(hide = true)]
    Certificates(certificates::Arguments),
    /// The same while they are rotated.
    #[command(hide = true)]
    Rotation(inside::Rotation),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "verbatim")]
enum Benchmark {
    /// Until there is an API server.
    N1,
    /// Restart of a static pod.
    N2,
    /// All leaves made anew.
    B8,
    /// All certificates looked at.
    B9,
    /// All leaves of a live controller made anew.
    N3,
}

impl Benchmark {
    fn name(self) -> &'static str {
        match self {
            Self::N1 => "N1",
            Self::N2 => "N2",
            Self::B8 => "B8",
            Self::B9 => "B9",
            Self::N3 => "N3",
        }
    }
}

fn main() -> ExitCode {
    let mut arguments = Arguments::parse();
    if arguments.quick {
        arguments.rounds = 1;
    }
    let runtime = match tokio::runtime::Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => return run::failed(&error.into()),
    };
    let inside = arguments.inside.as_ref().map(|inside| match inside {
        Inside::Restart(arguments) => runtime.block_on(inside::run(arguments)),
        Inside::Certificates(arguments) => certificates::run_inside(arguments),
        Inside::Rotation(arguments) => runtime.block_on(inside::rotate(arguments)),
    });
    match inside {
        Some(Ok(())) => return ExitCode::SUCCESS,
        Some(Err(error)) => return run::failed(&error),
        None => {}
    }
    run::ended(runtime.block_on(measure(&arguments)), arguments.markdown)
}

async fn measure(arguments: &Arguments) -> Result<Table> {
    let interrupted = harness::signals::interrupted()?;
    tokio::pin!(interrupted);
    let mut table = Table::default();
    // Whatever became of the measurements, nothing of the run stays: dropping a rig ends it, and a killed one is swept by
    // the next.
    let measured = tokio::select! {
        measured = measure_all(arguments, &mut table) => Some(measured),
        () = &mut interrupted => None,
    };
    match measured {
        Some(measured) => measured?,
        None => run::interrupted(&mut table),
    }
    Ok(table)
}

/// No benchmark takes half of it on two cores.
const LONGEST: Duration = Duration::from_secs(60 * 60);

async fn measure_all(arguments: &Arguments, table: &mut Table) -> Result<()> {
    let stratum = PathBuf::from(env!("CARGO_BIN_EXE_stratum"));
    progress("building the programs of a node, if they are not there, and the payload");
    let mut rig = Rig::start(&Path::new(env!("CARGO_TARGET_TMPDIR")).join("rigs"), &stratum).await?;
    rig.payload().await?;
    rig.add_program(Tool::Kubeadm).await?;
    for benchmark in Benchmark::value_variants() {
        if !arguments.only.is_empty() && !arguments.only.contains(benchmark) {
            continue;
        }
        let measure = async |table: &mut Table| match benchmark {
            Benchmark::N1 => ready::run(&mut rig, arguments.rounds, table).await,
            Benchmark::N2 => restart::run(&mut rig, arguments.rounds, table).await,
            Benchmark::B8 => certificates::reissue(&mut rig, table).await,
            Benchmark::B9 => certificates::check(&mut rig, table).await,
            Benchmark::N3 => certificates::rotate(&mut rig, arguments.rounds, table).await,
        };
        run::one(benchmark.name(), LONGEST, table, measure).await;
    }
    Ok(())
}
