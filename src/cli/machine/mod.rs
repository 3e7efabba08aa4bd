//! The commands that make this machine a node, keep it one and take it off: `server`, `join`, `up`, `uninstall`.

mod arguments;
pub(super) mod join;
mod made;
pub(super) mod server;
pub(super) mod uninstall;
pub(super) mod up;

use anyhow::Context;

use self::arguments::NodeArguments;
use super::config::ConfigFile;
use super::exit::Exit;
use super::printer;
use crate::controllers::machine::install;
use crate::controllers::machine::node::Config;
use crate::host::layout::Layout;
use crate::host::lock::{Attempt, Lock};
use crate::host::node_state::NodeState;
use crate::host::payload::{self, Needs, Progress, Verified};
use crate::host::runtime;
use crate::host::{atomic_file, clock};

/// What config.yaml passes through to the parts of a node; none when it cannot be used, which was told.
fn config(layout: &Layout) -> Option<Config> {
    match ConfigFile::load(&layout.config_file(), false) {
        Ok(file) => Some(file.node()),
        Err(error) => {
            printer::error(error);
            None
        }
    }
}

/// What is in the way, before anything was changed.
fn refused(error: impl Into<anyhow::Error>) -> Exit {
    printer::error(error);
    Exit::Refused
}

/// The node's lock, or a refusal that names its holder.
fn lock(layout: &Layout, operation: &str) -> anyhow::Result<Option<Lock>> {
    atomic_file::create_folder(&layout.run(), atomic_file::Access::Secret)?;
    match Lock::attempt(&layout.node_lock(), operation)? {
        Attempt::Taken(lock) => Ok(Some(lock)),
        Attempt::Held(holder) => {
            printer::stderr(&format!(
                "error: this node is being changed by {holder}: wait for it, then try again\n"
            ));
            Ok(None)
        }
    }
}

/// Everything that is checked before the first write; the payload when nothing is in the way.
fn may_install(
    layout: &Layout,
    state: &NodeState,
    config: &Config,
    arguments: &NodeArguments,
) -> anyhow::Result<Option<Verified>> {
    if let Err(error) = install::check(layout, state) {
        printer::error(error);
        return Ok(None);
    }
    let tolerates_swap = runtime::tolerates_swap(layout, &config.runtime);
    let fits = arguments.fits(layout, state, tolerates_swap)?;
    let progress = if arguments.quiet {
        Progress::Quiet
    } else {
        Progress::Shown
    };
    match payload::verify(&arguments.payload(layout), &Needs::of(state), progress) {
        Ok(payload) => Ok(fits.then_some(payload)),
        Err(error) => {
            printer::error(error);
            Ok(None)
        }
    }
}

/// Makes this machine that node; everything was checked.
fn become_node(
    layout: Layout,
    state: NodeState,
    config: Config,
    payload: &Verified,
    arguments: &NodeArguments,
) -> anyhow::Result<()> {
    take_payload(payload, &layout)?;
    let mut progress = arguments.progress();
    let node = install::install(layout, state, config, clock::now(), &mut progress)?;
    arguments.tell(&node)
}

/// A payload that came from elsewhere is kept: nothing is there tomorrow that was on a stick today.
fn take_payload(payload: &Verified, layout: &Layout) -> anyhow::Result<()> {
    if payload.folder() != layout.payload() {
        payload::install(payload, &layout.payload()).context("cannot keep the payload on this machine")?;
    }
    Ok(())
}
