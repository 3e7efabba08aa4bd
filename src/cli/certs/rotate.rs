//! `stratum certs rotate`: makes this node's certificates anew, and shows that everybody uses them.

use std::fmt::Write as _;
use std::io::{self, Write};
use std::time::Duration;

use jiff::SignedDuration;
use tokio_util::sync::CancellationToken;
use zeroize::Zeroizing;

use super::super::config::ConfigFile;
use super::super::exit::Exit;
use super::super::printer;
use super::place::Place;
use crate::controllers::certificates::rotate::{self, Error, Keys, NodeLock, OPERATION, Options, Rotated};
use crate::controllers::shutdown::{Ended, Signals};
use crate::host::certificates::Machine;
use crate::host::node_state::require_node_profile;

/// How long the step that a signal finds may take: a component to stop, and the next process of it to answer.
const DRAIN: Duration = Duration::from_secs(400);

/// The flags of `stratum certs rotate`.
#[derive(Clone, Debug, clap::Args)]
#[command(
    after_help = "Ends with 0 when everything uses its new certificate or nothing was due, 3 when it refused before any change, 1 when it failed or stopped on the way: the same command goes on then."
)]
pub(in crate::cli) struct Arguments {
    /// Do nothing unless a certificate ends within so many days, or is broken [default: 0, make all anew]
    #[arg(long, value_name = "DAYS", default_value_t = 0, hide_default_value = true)]
    if_expiring: u32,
    /// Say nothing but what somebody has to do
    #[arg(long)]
    quiet: bool,
    /// Make the shared certificate key anew too: every key that was printed before opens nothing any more
    #[arg(long, conflicts_with = "offline")]
    rekey_shared: bool,
    /// Only say what would be made anew and who would be restarted
    #[arg(long)]
    dry_run: bool,
    /// Go on without the cluster: nothing keeps another operation from running on it at the same time
    #[arg(long)]
    offline: bool,
    #[command(flatten)]
    place: Place,
}

/// Runs the command.
pub(in crate::cli) async fn run(arguments: Arguments) -> anyhow::Result<Exit> {
    let layout = match arguments.place.layout() {
        Ok(layout) => layout,
        Err(error) => return Ok(refused(error)),
    };
    if let Err(error) = require_node_profile(&layout.node_state(), OPERATION) {
        return Ok(refused(error));
    }
    let machine = match Machine::load(layout.clone()) {
        Ok(machine) => machine,
        Err(error) => return Ok(refused(error)),
    };
    let config = match ConfigFile::load(&layout.config_file(), false) {
        Ok(file) => file.node(),
        Err(error) => {
            printer::error(error);
            return Ok(Exit::Usage);
        }
    };
    let within = SignedDuration::from_hours(i64::from(arguments.if_expiring) * 24);
    let options = Options {
        if_expiring: (arguments.if_expiring > 0).then_some(within),
        keys: Keys::New,
        rekey_shared: arguments.rekey_shared,
        offline: arguments.offline,
        kube_vip_required: false,
        lock: NodeLock::Take,
        dry_run: arguments.dry_run,
    };
    let mut progress: Box<dyn Write + Send> = if arguments.quiet {
        Box::new(io::sink())
    } else {
        Box::new(io::stdout())
    };
    let stop = CancellationToken::new();
    let work = rotate::rotate(&machine, &config, &options, &stop, &mut progress);
    match Signals::take_over()?.supervise(work, &stop, DRAIN).await {
        Ended::Finished(Ok(rotated)) => {
            report(&rotated, &arguments)?;
            Ok(if rotated.skipped.is_empty() {
                Exit::Done
            } else {
                Exit::Failed
            })
        }
        Ended::Finished(Err(error)) => {
            let exit = exit(&error);
            printer::error(error);
            Ok(exit)
        }
        Ended::Aborted | Ended::Overdue => {
            printer::stderr("error: stopped in the middle of a step; run it again\n");
            Ok(Exit::Failed)
        }
    }
}

fn refused(error: impl Into<anyhow::Error>) -> Exit {
    printer::error(error);
    Exit::Refused
}

fn exit(error: &Error) -> Exit {
    if error.is_refusal() {
        Exit::Refused
    } else if error.is_lost_fence() {
        Exit::LeadershipLost
    } else {
        Exit::Failed
    }
}

fn report(rotated: &Rotated, arguments: &Arguments) -> io::Result<()> {
    for warning in &rotated.warnings {
        printer::stderr(&format!("warning: {warning}\n"));
    }
    for skipped in &rotated.skipped {
        printer::stderr(&format!("error: {skipped}\n"));
    }
    for command in &rotated.by_hand {
        printer::stderr(&format!("now run: {command}\n"));
    }
    if let Some(key) = &rotated.certificate_key {
        for token in &rotated.dropped_grants {
            printer::stderr(&format!(
                "the grant of token {token} is dropped: make another with 'stratum token create --control-plane'\n"
            ));
        }
        printer::stderr("The new certificate key opens the keys of the whole cluster. It is not shown again:\n");
        printer::stdout(&Zeroizing::new(format!("{}\n", *key.expose())))?;
    }
    if arguments.quiet || arguments.dry_run {
        return Ok(());
    }
    printer::stdout(&summary(rotated))
}

fn summary(rotated: &Rotated) -> String {
    let mut out = String::new();
    // Writing to a String cannot fail.
    let _ = match (&rotated.idle, rotated.reissued.len(), rotated.moves.len()) {
        (_, 0, moved @ 1..) => writeln!(out, "an earlier rotation is finished: {moved} moved"),
        (Some(idle), 0, 0) if rotated.certificate_key.is_some() => writeln!(out, "no certificate is made anew: {idle}"),
        (Some(idle), 0, 0) => writeln!(out, "nothing was done: {idle}"),
        (None, 0, 0) => Ok(()),
        // Without anybody who was moved, nobody runs; with a command that somebody has to run, not everybody was.
        (_, count, moved) if moved == 0 || !rotated.by_hand.is_empty() => {
            writeln!(out, "{count} certificates are made anew")
        }
        (_, count, _) => writeln!(out, "{count} certificates are made anew and in use"),
    };
    if let (false, Some(first)) = (rotated.reissued.is_empty(), rotated.first_end) {
        let _ = writeln!(out, "the first one ends {first:.0}");
    }
    out
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::host::layout::Form;
    use crate::reconcilers::certificates::moves::Consumer;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        arguments: Arguments,
    }

    #[test]
    fn flags_are_read() {
        let read = |flags: &[&str]| Line::try_parse_from([&["rotate"], flags].concat()).map(|line| line.arguments);
        let all = [
            "--if-expiring",
            "30",
            "--quiet",
            "--rekey-shared",
            "--dry-run",
            "--layout",
            "kubeadm",
        ];
        let read_all = read(&all).unwrap();
        assert_eq!((read_all.if_expiring, read_all.place.layout), (30, Some(Form::Kubeadm)));
        assert!(read_all.quiet && read_all.rekey_shared && read_all.dry_run && !read_all.offline);
        assert_eq!(read(&[]).unwrap().if_expiring, 0);
        read(&["--rekey-shared", "--offline"]).unwrap_err();
        read(&["--layout", "k3s"]).unwrap_err();
        read(&["--if-expiring", "-1"]).unwrap_err();
    }

    #[test]
    fn an_end_is_told_like_this() {
        let moved = rotate::Moved {
            consumer: Consumer::KubeApiserver,
            restart: None,
            proofs: std::collections::BTreeMap::default(),
        };
        let ended = |reissued: &[&str], idle: Option<&str>| Rotated {
            reissued: reissued.iter().map(|name| (*name).to_owned()).collect(),
            idle: idle.map(str::to_owned),
            first_end: "2027-06-01T12:00:00Z".parse().ok(),
            moves: reissued.iter().take(1).map(|_| moved.clone()).collect(),
            ..Rotated::default()
        };
        assert_eq!(summary(&ended(&[], Some("a worker"))), "nothing was done: a worker\n");
        assert_eq!(
            summary(&ended(&["apiserver", "admin"], None)),
            "2 certificates are made anew and in use\nthe first one ends 2027-06-01T12:00:00Z\n"
        );
        assert_eq!(exit(&Error::Stopped), Exit::Failed);
        let refusal = Error::RotationOpen {
            phase: "sign-new".to_owned(),
        };
        assert!(refusal.to_string().contains("rotate-ca --cluster"));
        assert_eq!(exit(&refusal), Exit::Refused);
    }
}
