//! The kernel's name of this host.

use std::io;

/// The name, with the line break that the kernel ends it with.
///
/// # Errors
/// When the kernel does not tell.
pub fn host_name() -> io::Result<String> {
    std::fs::read_to_string("/proc/sys/kernel/hostname")
}
