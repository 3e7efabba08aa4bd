//! How far a long step is, on standard error: a bar on a terminal, a line elsewhere, nothing when asked to be quiet.

use std::io::{IsTerminal, Write};

use indicatif::{DecimalBytes, ProgressBar, ProgressStyle};

/// Whether and how progress is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Not at all.
    Quiet,
    /// On standard error.
    Shown,
}

impl Progress {
    /// Begins a step over `total` bytes.
    pub(super) fn bytes(self, what: &str, total: u64) -> Bar {
        let bar = match self {
            Self::Quiet => return Bar(None),
            Self::Shown if !std::io::stderr().is_terminal() => {
                self.say(&format!("{what} ({})", DecimalBytes(total)));
                return Bar(None);
            }
            Self::Shown => ProgressBar::new(total),
        };
        if let Ok(style) = ProgressStyle::with_template("{msg} [{bar:40}] {decimal_bytes}/{decimal_total_bytes}") {
            bar.set_style(style.progress_chars("=> "));
        }
        bar.set_message(what.to_owned());
        Bar(Some(bar))
    }

    /// One line. Nobody to read it is no reason to stop.
    pub(super) fn say(self, line: &str) {
        match self {
            Self::Quiet => {}
            Self::Shown => {
                let _ = writeln!(anstream::stderr(), "{line}");
            }
        }
    }
}

/// A step that goes on.
pub(super) struct Bar(Option<ProgressBar>);

impl Bar {
    pub(super) fn advance(&self, bytes: u64) {
        if let Some(bar) = &self.0 {
            bar.inc(bytes);
        }
    }

    pub(super) fn finish(&self) {
        if let Some(bar) = &self.0 {
            bar.finish_and_clear();
        }
    }
}
