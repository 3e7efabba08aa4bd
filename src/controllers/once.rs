//! One complete pass outside of the operator: for `stratum dev --once`, benchmarks and tests.

use std::time::Duration;

use super::concern::Wake;
use super::manifests::{Error, Manifests};
use crate::host::clock;
use crate::reconcilers::manifests::report::{Report, Suspension};

/// Passes until pruning is no longer waiting for a second, equal read.
const PASSES: usize = 5;

/// Makes one complete pass: files that lost something are read a second time, so that what they lost is pruned in it. The
/// report is the sum: what the first pass created and configured, what any pass pruned, and what the last one refused.
///
/// # Errors
/// When a pass fails as a whole.
pub async fn complete_pass(manifests: &Manifests) -> Result<Report, Error> {
    let (mut wake, first) = manifests.pass_and_report().await?;
    let mut whole = first;
    for _ in 1..PASSES {
        if whole.suspended != Some(Suspension::Unsettled) {
            break;
        }
        clock::sleep(wait(wake)).await;
        let (next, report) = manifests.pass_and_report().await?;
        wake = next;
        for (stack, counts) in report.stacks {
            whole.stacks.entry(stack).or_default().pruned += counts.pruned;
        }
        whole.suspended = report.suspended;
        whole.refusals = report.refusals;
        whole.kept = report.kept;
        whole.at = report.at;
    }
    Ok(whole)
}

fn wait(wake: Wake) -> Duration {
    match wake {
        Wake::After(wait) => wait.min(Duration::from_secs(2)),
        Wake::Resync => Duration::from_secs(1),
    }
}
