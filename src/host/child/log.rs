//! Looks into the log of a child, for messages about it.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

/// How much of the end of a log is looked at: it may be longer than what memory is free.
const LONGEST_TAIL: u64 = 64 * 1024;

/// The last `lines` lines of a log, for a message about a child that died, as far as they are in its last 64 KiB. An
/// unreadable log is an empty one.
#[must_use]
pub fn log_tail(path: &Path, lines: usize) -> String {
    let bytes = end(path).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let all: Vec<&str> = text.lines().collect();
    all.get(all.len().saturating_sub(lines)..)
        .unwrap_or_default()
        .join("\n")
}

fn end(path: &Path) -> io::Result<Vec<u8>> {
    let mut log = File::open(path)?;
    let length = log.metadata()?.len();
    log.seek(SeekFrom::Start(length.saturating_sub(LONGEST_TAIL)))?;
    let mut bytes = Vec::new();
    log.take(LONGEST_TAIL).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// How many lines a log has by now. An unreadable log is an empty one.
#[must_use]
pub fn log_lines(path: &Path) -> u64 {
    let bytes = std::fs::read(path).unwrap_or_default();
    bytes.iter().fold(0, |lines, byte| lines + u64::from(*byte == b'\n'))
}
