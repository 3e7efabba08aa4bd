//! What the kernel says about processes: time on a core, memory.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};

/// What the kernel tells programs in, on every machine we run on, whatever its timer does (USER_HZ).
const TICKS_PER_SECOND: u64 = 100;

/// CPU time of a process, all its threads, user and system. Resolution: one tick, usually 10 ms.
pub(crate) fn cpu(pid: u32) -> Result<Duration> {
    ticks(&format!("/proc/{pid}/stat"), &[11, 12])
}

/// CPU time of this process.
pub(crate) fn own_cpu() -> Result<Duration> {
    ticks("/proc/self/stat", &[11, 12])
}

/// CPU time of those children of this process that have ended and were waited for, and of theirs.
pub(crate) fn children_cpu() -> Result<Duration> {
    ticks("/proc/self/stat", &[13, 14])
}

/// Memory of a process in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Memory {
    /// Pages in memory.
    pub(crate) resident: u64,
    /// The most there ever were.
    pub(crate) peak: u64,
    /// As resident, with pages that others have as well counted by share.
    pub(crate) proportional: u64,
}

/// Reads the memory of a process.
pub(crate) fn memory(pid: u32) -> Result<Memory> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let rollup = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
    Ok(Memory {
        resident: kibibytes(&status, "VmRSS:")?,
        peak: kibibytes(&status, "VmHWM:")?,
        proportional: kibibytes(&rollup, "Pss:")?,
    })
}

/// The size of a file in bytes.
pub(crate) fn size(path: &Path) -> Result<u64> {
    Ok(std::fs::metadata(path)
        .with_context(|| format!("{}", path.display()))?
        .len())
}

/// Sums fields of a `stat` file, counted from the state letter (field 3 of proc_pid_stat(5) is 0 here).
fn ticks(path: &str, fields: &[usize]) -> Result<Duration> {
    let stat = std::fs::read_to_string(path).with_context(|| path.to_owned())?;
    // The program's name may hold spaces and brackets.
    let (_, after_name) = stat.rsplit_once(") ").context("a stat file without a name")?;
    let numbers: Vec<&str> = after_name.split_ascii_whitespace().collect();
    let mut sum = 0;
    for field in fields {
        sum += numbers.get(*field).context("a short stat file")?.parse::<u64>()?;
    }
    Ok(Duration::from_millis(sum * 1000 / TICKS_PER_SECOND))
}

fn kibibytes(text: &str, name: &str) -> Result<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name)).context("field")?;
    let number = line.trim().trim_end_matches(" kB").trim();
    Ok(number.parse::<u64>()? * 1024)
}
