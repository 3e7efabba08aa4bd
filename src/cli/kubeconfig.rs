//! `stratum kubeconfig`: a credential of somebody's own, signed by the cluster's authority.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use jiff::{SignedDuration, Timestamp};
use zeroize::Zeroizing;

use super::controller::{Files, NotAController};
use super::exit::Exit;
use super::printer;
use crate::host::atomic_file::{self, Access};
use crate::host::clock;
use crate::host::node_state;
use crate::pki::authority::Authority;
use crate::pki::certificate::Certificate;
use crate::pki::key::{Key, Serial};
use crate::pki::leaf::{Request, issue};
use crate::pki::name::Subject;
use crate::reconcilers::joining::kubeconfig::{self, SubjectRefusal};
use crate::reconcilers::joining::token::Life;

/// The flags of `stratum kubeconfig`.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Make a client certificate and print the kubeconfig that holds it, on a controller
    ///
    /// A certificate cannot be revoked: what its user and groups may do is unbound instead, and a short life helps. It grants
    /// nothing by itself; bind the user or a group.
    Create(Create),
}

#[derive(Debug, clap::Args)]
struct Create {
    /// The user, as the API server sees it
    #[arg(long, value_name = "NAME")]
    user: String,
    /// A group of the user; can be repeated
    #[arg(long = "group", value_name = "NAME")]
    groups: Vec<String>,
    /// How long the certificate lives, such as 8h or 30d; it ends with the cluster's CA at the latest
    #[arg(long, value_name = "TIME", default_value = "24h")]
    ttl: Life,
    /// Write it to this new file, which only its owner can read, instead of standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    files: Files,
}

/// Runs the command.
pub(super) fn run(arguments: Arguments) -> anyhow::Result<Exit> {
    let Command::Create(arguments) = arguments.command;
    create(&arguments).or_else(|error| {
        let refused = error.is::<SubjectRefusal>() || error.is::<NotAController>() || error.is::<node_state::Error>();
        if !refused {
            return Err(error);
        }
        printer::error(error);
        Ok(Exit::Refused)
    })
}

fn create(arguments: &Create) -> anyhow::Result<Exit> {
    let Life::For(life) = arguments.ttl else {
        printer::stderr("error: a certificate cannot be revoked, so it always ends: give --ttl a time such as 8h\n");
        return Ok(Exit::Usage);
    };
    kubeconfig::check_subject(&arguments.user, &arguments.groups)?;
    if let Some(path) = &arguments.output {
        refuse_existing(path)?;
    }
    let now = clock::now();
    let (text, end) = make(arguments, life, now)?;
    match &arguments.output {
        Some(path) => atomic_file::write(path, text.as_bytes(), Access::Secret)?,
        None => printer::stdout(&text)?,
    }
    let cut = if end < now.saturating_add(life)? - SignedDuration::from_mins(1) {
        ", when the cluster's CA ends"
    } else {
        ""
    };
    printer::stderr(&format!("{} until {end}{cut}\n", arguments.user));
    Ok(Exit::Done)
}

/// Somebody's kubeconfig may hold the contexts of other clusters.
fn refuse_existing(path: &Path) -> anyhow::Result<()> {
    if path.symlink_metadata().is_ok() {
        bail!(
            "{} exists and is not overwritten: remove it, or name another file",
            path.display()
        );
    }
    Ok(())
}

/// The kubeconfig, and when its certificate ends.
fn make(arguments: &Create, life: SignedDuration, now: Timestamp) -> anyhow::Result<(Zeroizing<String>, Timestamp)> {
    let files = &arguments.files;
    let state = files.controller_state()?;
    let pki = files.layout().pki();
    let [certificate, key] = ["ca.crt", "ca.key"].map(|name| pki.join(name));
    let authority = Authority::load(&files.read(&certificate)?, &files.read(&key)?);
    let authority = authority.with_context(|| format!("the CA in {} cannot be used", certificate.display()))?;
    let key = Key::generate(state.keys)?;
    let groups = arguments.groups.iter();
    let subject = groups.fold(Subject::user(&arguments.user), |subject, group| subject.in_group(group));
    let request = Request {
        lifetime: life,
        ..Request::client(subject)
    };
    let issued = issue(&authority, &request, &key, Serial::random()?, now)?;
    let text = kubeconfig::render(
        &format!("https://{}", state.endpoint),
        &files.trusted()?.iter().map(Certificate::to_pem).collect::<String>(),
        &arguments.user,
        (&issued.to_pem(), &key.to_pem()),
    );
    Ok((text, issued.details().not_after))
}
