//! The command line: clap, one printer, exit codes. Thin: settings are resolved once, then a function of an inner
//! layer is called.

mod child_of;
pub mod report;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Parses the command line, runs the command, and maps its outcome to the exit code table of the README.
#[must_use]
pub fn main() -> ExitCode {
    match CommandLine::parse().command {
        Command::ChildOf(arguments) => child_of::run(&arguments),
    }
}

#[derive(Debug, Parser)]
#[command(version, about)]
struct CommandLine {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    #[command(hide = true)]
    ChildOf(child_of::Arguments),
}
