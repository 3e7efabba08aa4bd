//! `stratum child-of`, hidden: starts a program that ends when the process that asked for it ends.

use std::ffi::OsString;
use std::process::ExitCode;

use crate::host::child;

/// Arguments of the hidden subcommand; [`child::Program`] writes them.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// The process that must still be our parent
    parent: u32,
    /// The program to become
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

/// Becomes the program; returns only when that fails, with the shell's code for it.
pub(super) fn run(arguments: &Arguments) -> ExitCode {
    if let [program, rest @ ..] = arguments.command.as_slice() {
        let error = child::become_child_of(arguments.parent, program, rest);
        anstream::eprintln!("cannot become {}: {error}", program.display());
    }
    ExitCode::from(127)
}
