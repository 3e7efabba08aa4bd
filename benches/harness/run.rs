//! A run of benchmarks, one after another: what becomes of one that cannot be measured, and how the run ends.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use stratum::host::clock;

use super::table::{Table, progress};

/// Measures one within `longest`. What was measured before is not lost over what cannot be.
pub(crate) async fn one(
    name: &'static str,
    longest: Duration,
    table: &mut Table,
    measure: impl AsyncFnOnce(&mut Table) -> Result<()>,
) {
    progress(name);
    let began = clock::monotonic();
    let measured = tokio::time::timeout(longest, measure(table)).await;
    if let Err(error) = measured.unwrap_or_else(|late| Err(late.into())) {
        progress(&format!("  {name} could not be measured: {error:#}"));
        table.add_unmeasured(name);
    }
    progress(&format!("  {name} took {:.0} s", began.elapsed().as_secs_f64()));
}

/// Notes that the run was interrupted.
pub(crate) fn interrupted(table: &mut Table) {
    progress("interrupted");
    table.add_unmeasured("interrupted");
}

/// Prints what was measured; the process's exit status.
pub(crate) fn ended(measured: Result<Table>, markdown: bool) -> ExitCode {
    match measured {
        Ok(table) => {
            table.print(markdown);
            table.exit_code()
        }
        Err(error) => failed(&error),
    }
}

/// Says why nothing was measured.
pub(crate) fn failed(error: &anyhow::Error) -> ExitCode {
    progress(&format!("cannot measure: {error:#}"));
    ExitCode::FAILURE
}
