//! `stratum child-of`, hidden: starts a program that ends when the process that asked for it ends.

use std::ffi::OsString;
use std::process::ExitCode;

use crate::host::child::{self, Confinement};

/// Arguments of the hidden subcommand; [`child::Program`] writes them.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// The process that must still be our parent
    parent: u32,
    /// What the program may not do that we may
    #[arg(long)]
    confine: Option<Confinement>,
    /// The program to become
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

/// Becomes the program; returns only when that fails, with the shell's code for it.
pub(super) fn run(arguments: &Arguments) -> ExitCode {
    if let [program, rest @ ..] = arguments.command.as_slice() {
        let error = child::become_child_of(arguments.parent, arguments.confine.as_ref(), program, rest);
        anstream::eprintln!("cannot become {}: {error}", program.display());
    }
    ExitCode::from(127)
}
