//! `stratum operator`: the cluster's own controllers, as a supervised process on every controller.

mod csrs;
mod settings;
mod status;

use tokio_util::sync::CancellationToken;

use super::config::ConfigFile;
use super::exit::Exit;
use super::printer;
use crate::controllers::admin::AdminError;
use crate::controllers::concerns;
use crate::controllers::operator::{self, OperatorError};
use crate::controllers::shutdown::{Ended, Signals};
use crate::controllers::telemetry;
use crate::host::host_name::host_name;
use crate::host::layout::Layout;

use settings::Arguments;

/// `stratum operator` and what can be asked of it.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(super) struct Command {
    #[command(subcommand)]
    verb: Option<Verb>,
    #[command(flatten)]
    arguments: Arguments,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Show who leads, what every instance last did, and which nodes the inventory waits for
    Status(status::Arguments),
    /// Show the certificate requests of kubelets that wait, and why
    Csrs(csrs::Arguments),
}

/// Runs the operator, or answers a question about it.
pub(super) async fn run(command: Command) -> anyhow::Result<Exit> {
    match command.verb {
        Some(Verb::Status(arguments)) => status::run(arguments).await,
        Some(Verb::Csrs(arguments)) => csrs::run(arguments).await,
        None => operate(command.arguments).await,
    }
}

/// Runs the operator until it is stopped or fails.
async fn operate(arguments: Arguments) -> anyhow::Result<Exit> {
    let layout = Layout::system();
    let named = arguments.config.is_some();
    let path = arguments.config.clone().unwrap_or_else(|| layout.config_file());
    let resolved = ConfigFile::load(&path, named)
        .map_err(anyhow::Error::from)
        .and_then(|file| Ok(settings::resolve(arguments, file.operator, &layout, host_name)?));
    let settings = match resolved {
        Ok(settings) => settings,
        Err(error) => {
            printer::error(error);
            return Ok(Exit::Usage);
        }
    };
    let log = telemetry::install(settings.log_format, &settings.log_level)?;
    let signals = Signals::take_over()?;
    let stop = CancellationToken::new();
    let drain = settings.operator.drain;
    let work = operator::run(settings.operator, concerns::all(), Some(log), stop.clone());
    exit_of(signals.supervise(work, &stop, drain).await)
}

/// The exit code of an operator that ended; losing the Lease is an end of its own.
pub(super) fn exit_of(ended: Ended<Result<(), OperatorError>>) -> anyhow::Result<Exit> {
    match ended {
        Ended::Finished(Ok(())) => Ok(Exit::Done),
        Ended::Finished(Err(error)) if error.is_leadership_lost() => {
            printer::error(error);
            Ok(Exit::LeadershipLost)
        }
        Ended::Finished(Err(error @ OperatorError::Admin(AdminError::NeedsTls { .. }))) => {
            printer::error(error);
            Ok(Exit::Usage)
        }
        Ended::Finished(Err(error)) => Err(error.into()),
        Ended::Aborted | Ended::Overdue => Ok(Exit::Failed),
    }
}
