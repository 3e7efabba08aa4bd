//! Looks into the log of a child, for messages about it.

use std::path::Path;

/// The last `lines` lines of a log, for a message about a child that died. An unreadable log is an empty one.
#[must_use]
pub fn log_tail(path: &Path, lines: usize) -> String {
    let bytes = std::fs::read(path).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let all: Vec<&str> = text.lines().collect();
    all.get(all.len().saturating_sub(lines)..)
        .unwrap_or_default()
        .join("\n")
}

/// How many lines a log has by now. An unreadable log is an empty one.
#[must_use]
pub fn log_lines(path: &Path) -> u64 {
    let bytes = std::fs::read(path).unwrap_or_default();
    bytes.iter().fold(0, |lines, byte| lines + u64::from(*byte == b'\n'))
}
