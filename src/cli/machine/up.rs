//! `stratum up`: runs the node.

use std::time::Duration;

use anyhow::Context;
use clap::builder::PossibleValuesParser;
use strum::VariantNames;
use tokio_util::sync::CancellationToken;

use super::super::exit::Exit;
use super::super::printer;
use crate::controllers::machine::up::{self, Settings};
use crate::controllers::shutdown::{Ended, Signals};
use crate::controllers::telemetry::{self, LogFilter, LogFormat};
use crate::host::layout::Layout;

/// How long containerd, the kubelet and the operator may take together to end.
const DRAIN: Duration = Duration::from_secs(75);

/// The flags of `stratum up`.
#[derive(Clone, Debug, clap::Args)]
pub(in crate::cli) struct Arguments {
    /// How log lines look
    #[arg(long, value_name = "FORMAT", default_value = "text", env = "STRATUM_LOG_FORMAT", value_parser = PossibleValuesParser::new(LogFormat::VARIANTS))]
    log_format: String,
}

/// Runs the command.
pub(in crate::cli) async fn run(arguments: Arguments) -> anyhow::Result<Exit> {
    let layout = Layout::system();
    let Some(config) = super::config(&layout) else {
        return Ok(Exit::Usage);
    };
    let format = arguments.log_format.parse().context("the form of log lines")?;
    let _log = telemetry::install(format, &LogFilter::default())?;
    let settings = Settings {
        layout,
        config,
        executable: std::env::current_exe().context("cannot tell which executable this is")?,
    };
    let signals = Signals::take_over()?;
    let stop = CancellationToken::new();
    match signals.supervise(up::run(settings, stop.clone()), &stop, DRAIN).await {
        Ended::Finished(Ok(())) => Ok(Exit::Done),
        Ended::Finished(Err(error)) => {
            let refused = error.is_refusal();
            printer::stderr(&format!("error: {:#}\n", anyhow::Error::from(error)));
            Ok(if refused { Exit::Refused } else { Exit::Failed })
        }
        Ended::Aborted | Ended::Overdue => Ok(Exit::Failed),
    }
}
