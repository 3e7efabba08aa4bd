//! `stratum on-host`, hidden: what the container of a node Job runs. It becomes a program of the host.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use super::printer;
use crate::host::{child, enter};

/// Arguments of the hidden subcommand; `reconcilers::node_jobs` writes them.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// The file that takes what the program prints
    #[arg(long, value_name = "FILE")]
    message: PathBuf,
    /// The program of the host to become, and its arguments
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

/// Becomes the program; returns only when that fails, with the shell's code for it.
pub(super) fn run(arguments: &Arguments) -> ExitCode {
    let entered = enter::write_to(&arguments.message).and_then(|()| enter::enter_host(Path::new("/proc")));
    match (entered, arguments.command.as_slice()) {
        (Err(error), _) => printer::error(error),
        (Ok(()), [program, rest @ ..]) => {
            let error = child::become_program(program, rest);
            printer::stderr(&format!(
                "error: cannot run {} on the host: {error}\n",
                program.display()
            ));
        }
        (Ok(()), []) => {}
    }
    ExitCode::from(127)
}
