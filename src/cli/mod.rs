//! The command line: clap, one printer, exit codes. Thin: settings are resolved once, then a function of an inner
//! layer is called.

use std::process::ExitCode;

/// Parses the command line, runs the command, and maps its outcome to the exit code table of the README.
#[must_use]
pub fn main() -> ExitCode {
    ExitCode::from(2)
}
