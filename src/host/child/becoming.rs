//! A process that turns into another program: the last step of the trampoline.
#![expect(clippy::disallowed_methods, reason = "this leaf file owns the start of processes")]

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::process::Signal;

use super::Confinement;

/// Turns this process into `program`, which the kernel kills when process `parent` ends, and which may do no more than its
/// confinement says. Returns only the reason why not.
#[must_use]
pub fn become_child_of(
    parent: u32,
    confinement: Option<&Confinement>,
    program: &OsStr,
    arguments: &[OsString],
) -> io::Error {
    let program = match confinement.map_or_else(|| Ok(program.to_owned()), |confinement| confinement.apply(program)) {
        Ok(program) => program,
        Err(error) => return error,
    };
    // After the change of the user, which takes it back.
    if let Err(errno) = rustix::process::set_parent_process_death_signal(Some(Signal::KILL)) {
        return errno.into();
    }
    // Asked for too late if the parent had gone before: we belong to somebody else by then.
    let actual = rustix::process::getppid().map_or(0, |pid| pid.as_raw_nonzero().get().unsigned_abs());
    if actual != parent {
        return io::Error::other(format!("process {parent} has ended already"));
    }
    become_program(&program, arguments)
}

/// Turns this process into `program`. Returns only the reason why not.
#[must_use]
pub fn become_program(program: &OsStr, arguments: &[OsString]) -> io::Error {
    Command::new(program).args(arguments).exec()
}
