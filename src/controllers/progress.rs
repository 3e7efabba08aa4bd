//! Telling whoever runs a command what it does, while it does it.

use std::fmt::Display;
use std::io::Write;

/// One line, at once. A reader that went away loses it: that is no reason to stop half way.
pub(super) fn tell(progress: &mut dyn Write, line: impl Display) {
    let _ = writeln!(progress, "{line}").and_then(|()| progress.flush());
}
