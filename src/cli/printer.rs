//! The one way to standard output and standard error.

use std::io::{self, Write};

/// The form of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Output {
    /// For people.
    Table,
    /// For programs.
    Json,
}

impl Output {
    /// Where a command tells what it does, while it does it: not where a program reads the answer.
    pub fn progress(self) -> Box<dyn Write + Send> {
        match self {
            Self::Table => Box::new(io::stdout()),
            Self::Json => Box::new(io::stderr()),
        }
    }
}

/// Writes text to standard output. A reader that went away (`| head`) is no failure.
///
/// # Errors
/// When it cannot be written for another reason.
pub fn stdout(text: &str) -> io::Result<()> {
    whole(anstream::stdout().lock(), text)
}

/// Writes text to standard error, where a failure to do so has nowhere to be told.
pub fn stderr(text: &str) {
    let _ = whole(anstream::stderr().lock(), text);
}

/// Tells on standard error why a command does not go on, with all causes.
pub fn error(error: impl Into<anyhow::Error>) {
    stderr(&format!("error: {:#}\n", error.into()));
}

fn whole(mut stream: impl Write, text: &str) -> io::Result<()> {
    match stream.write_all(text.as_bytes()).and_then(|()| stream.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => result,
    }
}
