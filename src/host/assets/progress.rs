//! Says on standard error how far a build is: a bar on a terminal, plain lines elsewhere.

use std::io::{IsTerminal, Write};
use std::time::Instant;

use indicatif::{ProgressBar, ProgressStyle};

use super::super::clock;
use super::tool::Tool;

pub(super) struct Progress {
    tool: Tool,
    started: Instant,
    bar: Option<ProgressBar>,
}

impl Progress {
    pub(super) fn start(tool: Tool, packages: u64) -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            // One step more than there are packages: linking, which takes a while and prints nothing.
            let bar = ProgressBar::new(packages.saturating_add(1));
            let style = ProgressStyle::with_template("{msg} [{bar:40}] {pos}/{len} {elapsed}");
            if let Ok(style) = style {
                bar.set_style(style.progress_chars("=> "));
            }
            bar.set_message(format!("building {tool} (once)"));
            bar
        });
        if bar.is_none() {
            Self::say(&format!("building {tool}, {packages} packages to compile (once)"));
        }
        Self {
            tool,
            started: clock::monotonic(),
            bar,
        }
    }

    pub(super) fn compiled(&self, packages: u64) {
        if let Some(bar) = &self.bar {
            bar.set_position(packages);
        }
    }

    pub(super) fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
        let seconds = clock::monotonic().duration_since(self.started).as_secs();
        Self::say(&format!("built {} in {seconds} s", self.tool));
    }

    /// One line. Nobody to read it is no reason to stop.
    pub(super) fn say(line: &str) {
        let _ = writeln!(anstream::stderr(), "{line}");
    }
}
