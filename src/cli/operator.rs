//! `stratum operator`: the cluster's own controllers, as a supervised process on every controller.

mod settings;

use tokio_util::sync::CancellationToken;

use super::config::ConfigFile;
use super::exit::Exit;
use super::printer;
use crate::controllers::shutdown::{Ended, Signals};
use crate::controllers::telemetry;
use crate::controllers::{concerns, operator};
use crate::host::layout::Layout;

pub(super) use settings::{Arguments, host_name};

/// Runs the operator until it is stopped or fails.
pub(super) async fn run(arguments: Arguments) -> anyhow::Result<Exit> {
    let layout = Layout::system();
    let named = arguments.config.is_some();
    let path = arguments.config.clone().unwrap_or_else(|| layout.config_file());
    let resolved = ConfigFile::load(&path, named)
        .map_err(anyhow::Error::from)
        .and_then(|file| {
            Ok(settings::resolve(
                arguments,
                file.operator,
                &layout,
                settings::host_name,
            )?)
        });
    let settings = match resolved {
        Ok(settings) => settings,
        Err(error) => {
            printer::stderr(&format!("error: {error:#}\n"));
            return Ok(Exit::Usage);
        }
    };
    let log = telemetry::install(settings.log_format, &settings.log_level)?;
    let signals = Signals::take_over()?;
    let stop = CancellationToken::new();
    let drain = settings.operator.drain;
    let work = operator::run(settings.operator, concerns::all(), Some(log), stop.clone());
    match signals.supervise(work, &stop, drain).await {
        Ended::Finished(Ok(())) => Ok(Exit::Done),
        Ended::Finished(Err(error)) if error.is_leadership_lost() => {
            printer::stderr(&format!("error: {:#}\n", anyhow::Error::from(error)));
            Ok(Exit::LeadershipLost)
        }
        Ended::Finished(Err(error)) => Err(error.into()),
        Ended::Aborted | Ended::Overdue => Ok(Exit::Failed),
    }
}
