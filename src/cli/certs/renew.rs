//! `stratum certs renew`: renews this machine's certificates before they end, once or for as long as it runs.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use clap::builder::PossibleValuesParser;
use strum::VariantNames;
use tokio_util::sync::CancellationToken;

use super::super::config::ConfigFile;
use super::super::exit::Exit;
use super::super::printer;
use super::place::Place;
use crate::controllers::admin::{AdminSettings, TlsFiles};
use crate::controllers::certificates::daemon::Daemon;
use crate::controllers::certificates::renewal::{Looked, Renewal, Teller, attempt};
use crate::controllers::machine::node::Config;
use crate::controllers::shutdown::{Ended, Signals};
use crate::controllers::telemetry::{self, LogFilter, LogFormat};
use crate::host::layout::Layout;

/// How long the step that a signal finds may take. The unit in deploy/ gives it a little more.
const DRAIN: Duration = Duration::from_secs(400);
/// Where metrics are served, when nothing else is said: beside the operator's.
const METRICS: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 9441);

/// The flags of `stratum certs renew`.
#[derive(Clone, Debug, clap::Args)]
#[command(
    after_help = "Ends with 0 when nothing was due or everything is new, 3 when it refused before any change, 1 when it failed. After a failure the next try waits for a while, whoever makes it; 'stratum certs rotate' does not wait."
)]
pub(in crate::cli) struct Arguments {
    /// Go on for as long as it runs, for a control plane that kubeadm made; on a node of stratum's, `up` does the same
    #[arg(long)]
    daemon: bool,
    /// Where the daemon serves metrics; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS:PORT", default_value_t = METRICS, env = "STRATUM_METRICS_BIND_ADDRESS")]
    metrics_bind_address: SocketAddr,
    /// The certificate of that server; needed on any address that is not loopback
    #[arg(long, value_name = "FILE", requires_all = ["tls_key", "tls_client_ca"])]
    tls_certificate: Option<PathBuf>,
    /// The key of that certificate
    #[arg(long, value_name = "FILE", requires = "tls_certificate")]
    tls_key: Option<PathBuf>,
    /// The CA whose clients may ask that server
    #[arg(long, value_name = "FILE", requires = "tls_certificate")]
    tls_client_ca: Option<PathBuf>,
    /// How log lines look
    #[arg(long, value_name = "FORMAT", default_value = "text", env = "STRATUM_LOG_FORMAT", value_parser = PossibleValuesParser::new(LogFormat::VARIANTS))]
    log_format: String,
    #[command(flatten)]
    place: Place,
}

/// Runs the command.
pub(in crate::cli) async fn run(arguments: Arguments) -> anyhow::Result<Exit> {
    let layout = match arguments.place.layout() {
        Ok(layout) => layout,
        Err(error) => {
            printer::error(error);
            return Ok(Exit::Refused);
        }
    };
    let config = match ConfigFile::load(&layout.config_file(), false) {
        Ok(file) => file.node(),
        Err(error) => {
            printer::error(error);
            return Ok(Exit::Usage);
        }
    };
    let format = arguments.log_format.parse().context("the form of log lines")?;
    let _log = telemetry::install(format, &LogFilter::default())?;
    if arguments.daemon {
        daemon(&arguments, layout, config).await
    } else {
        once(layout, config).await
    }
}

async fn daemon(arguments: &Arguments, layout: Layout, config: Config) -> anyhow::Result<Exit> {
    let settings = AdminSettings {
        listen: arguments.metrics_bind_address,
        tls: arguments.tls(),
    };
    let daemon = match Daemon::bind(layout, &settings).await {
        Ok(daemon) => daemon,
        Err(error) => {
            let exit = if error.is_refusal() {
                Exit::Refused
            } else {
                Exit::Failed
            };
            printer::error(error);
            return Ok(exit);
        }
    };
    let stop = CancellationToken::new();
    let work = daemon.run(config.leaf_lifetime, |wish| attempt(&config, wish), stop.clone());
    Ok(match Signals::take_over()?.supervise(work, &stop, DRAIN).await {
        Ended::Finished(()) => Exit::Done,
        Ended::Aborted | Ended::Overdue => Exit::Failed,
    })
}

async fn once(layout: Layout, config: Config) -> anyhow::Result<Exit> {
    let stop = CancellationToken::new();
    let mut renewal =
        Renewal::new(layout, Teller::default(), |wish| attempt(&config, wish)).with_leaf_lifetime(config.leaf_lifetime);
    let looked = match Signals::take_over()?.supervise(renewal.look(&stop), &stop, DRAIN).await {
        Ended::Finished(looked) => looked,
        Ended::Aborted | Ended::Overdue => return Ok(Exit::Failed),
    };
    let (exit, words) = told(&looked);
    match exit {
        Exit::Done => printer::stdout(&words)?,
        _ => printer::stderr(&words),
    }
    Ok(exit)
}

fn told(looked: &Looked) -> (Exit, String) {
    match looked {
        Looked::Nothing(decision) => {
            let concerns = decision.concerns.iter().map(|concern| format!("{concern}\n"));
            let concerns: String = concerns.collect();
            (Exit::Done, format!("{}\n{concerns}", decision.action))
        }
        Looked::Renewed { names } if names.is_empty() => (Exit::Done, "nothing had to be made new\n".to_owned()),
        Looked::Renewed { names } => (Exit::Done, format!("made new and in use: {}\n", names.join(", "))),
        Looked::Failed(failure) => {
            let exit = if failure.refused { Exit::Refused } else { Exit::Failed };
            (exit, format!("error: {}\n", failure.words))
        }
        Looked::Unknown(words) => (Exit::Refused, format!("error: {words}\n")),
    }
}

impl Arguments {
    fn tls(&self) -> Option<TlsFiles> {
        Some(TlsFiles {
            certificate: self.tls_certificate.clone()?,
            key: self.tls_key.clone()?,
            client_ca: self.tls_client_ca.clone()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::controllers::certificates::renewal::Failure;
    use crate::host::layout::Form;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        arguments: Arguments,
    }

    #[test]
    fn flags_are_read() {
        let read = |flags: &[&str]| Line::try_parse_from([&["renew"], flags].concat()).map(|line| line.arguments);
        let none = read(&[]).unwrap();
        assert_eq!(none.metrics_bind_address.to_string(), "127.0.0.1:9441");
        assert!(!none.daemon && none.tls().is_none());
        let all = ["--daemon", "--metrics-bind-address", "[::1]:0", "--layout", "kubeadm"];
        let all = read(&all).unwrap();
        assert!(all.daemon && all.place.layout == Some(Form::Kubeadm));
        let tls = ["--tls-certificate", "a", "--tls-key", "b", "--tls-client-ca", "c"];
        assert!(read(&tls).unwrap().tls().is_some());
        for part in [&tls[..4], &tls[2..], &tls[4..]] {
            read(part).unwrap_err();
        }
        read(&["--metrics-bind-address", "9441"]).unwrap_err();
    }

    #[test]
    fn an_end_is_told_like_this() {
        let failed = |refused| {
            let words = "no".to_owned();
            told(&Looked::Failed(Failure { words, refused }))
        };
        assert_eq!(failed(true), (Exit::Refused, "error: no\n".to_owned()));
        assert_eq!(failed(false), (Exit::Failed, "error: no\n".to_owned()));
        let names = ["apiserver", "admin"].map(str::to_owned).to_vec();
        let renewed = (Exit::Done, "made new and in use: apiserver, admin\n".to_owned());
        assert_eq!(told(&Looked::Renewed { names }), renewed);
    }
}
