//! The processes of static pods, told by the cgroup of their pod.
//!
//! A name alone proves nothing: users run an etcd of their own in a pod, or beside the kubelet. The kubelet derives the
//! UID of a pod it read from a file from the file's content, 32 hexadecimal digits; every pod of the API has a UUID, with
//! dashes (`_` under the systemd driver). The UID is in the name of the pod's cgroup, on cgroup v1 and v2 and under both
//! drivers.
//!
//! What cannot be read is an error and never absence: a caller moves etcd's data away when nothing runs any more.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::process::Signal;

use super::super::held_process::hold;
use super::Error;

/// A process of a static pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Process {
    /// Its id.
    pub(super) pid: u32,
    /// The last part of its `argv[0]`. Empty for one that has ended and was not reaped yet.
    pub(super) program: String,
    /// Its pod.
    pub(super) pod: PodCgroup,
}

/// The cgroup of a static pod.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct PodCgroup {
    /// The pod's UID.
    pub(super) uid: String,
    /// Where its folder may be, one or two for each hierarchy: which of them are mounted is not asked.
    folders: Vec<PathBuf>,
}

impl PodCgroup {
    /// Whether the kubelet has not removed it yet. It does so last of all, when containers, sandbox and volumes are gone.
    pub(super) fn exists(&self) -> bool {
        self.folders.iter().any(|folder| folder.exists())
    }
}

/// Where the kernel tells about processes and cgroups, and who gets what is sent to them; all movable for tests.
#[derive(Clone, Debug)]
pub(super) struct Kernel {
    /// `/proc`
    pub(super) processes: PathBuf,
    /// `/sys/fs/cgroup`
    pub(super) cgroups: PathBuf,
    /// Who gets the signals.
    pub(super) signals: Signals,
}

/// Who gets the signals that are meant for processes.
#[derive(Clone)]
pub(super) enum Signals {
    /// The processes.
    Processes,
    /// Somebody who plays them, by id: ids of a made-up process table are those of strangers.
    Other(Arc<dyn Fn(u32, Signal) + Send + Sync>),
}

impl std::fmt::Debug for Signals {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            Self::Processes => "Processes",
            Self::Other(_) => "Other",
        })
    }
}

impl Kernel {
    pub(super) fn system() -> Self {
        Self {
            processes: PathBuf::from("/proc"),
            cgroups: PathBuf::from("/sys/fs/cgroup"),
            signals: Signals::Processes,
        }
    }

    /// Sends a signal to a process that started at `ticks`.
    pub(super) fn signal(&self, pid: u32, ticks: u64, signal: Signal) -> Result<(), Error> {
        match &self.signals {
            Signals::Processes => {
                let held = hold(pid);
                if self.start_ticks(pid)? == Some(ticks) {
                    held.signal(signal);
                }
            }
            Signals::Other(other) => other(pid, signal),
        }
        Ok(())
    }

    /// Every process in the cgroup of a static pod, by id.
    pub(super) fn static_pod_processes(&self) -> Result<Vec<Process>, Error> {
        let mut found = Vec::new();
        for pid in self.pids()? {
            let folder = self.processes.join(pid.to_string());
            let Some(cgroup) = read_if_alive(&folder.join("cgroup"))? else {
                continue;
            };
            let Some(pod) = self.pod_cgroup(&String::from_utf8_lossy(&cgroup)) else {
                continue;
            };
            let Some(arguments) = read_if_alive(&folder.join("cmdline"))? else {
                continue;
            };
            let program = program(&arguments);
            found.push(Process { pid, program, pod });
        }
        Ok(found)
    }

    /// When a process started, in clock ticks since boot; `None` when there is no such process.
    pub(super) fn start_ticks(&self, pid: u32) -> Result<Option<u64>, Error> {
        let path = self.processes.join(pid.to_string()).join("stat");
        let Some(bytes) = read_if_alive(&path)? else {
            return Ok(None);
        };
        let text = String::from_utf8_lossy(&bytes);
        // The second field is the program's name in parentheses, which may hold spaces and parentheses; the 22nd is meant.
        let rest = text.rsplit_once(')').map(|(_, rest)| rest);
        let ticks = rest.and_then(|rest| rest.split_whitespace().nth(19)?.parse().ok());
        ticks.map(Some).ok_or(Error::ProcessForm { path })
    }

    fn pids(&self) -> Result<Vec<u32>, Error> {
        let unreadable = |source| Error::Processes {
            path: self.processes.clone(),
            source,
        };
        let mut pids = Vec::new();
        for entry in fs::read_dir(&self.processes).map_err(unreadable)? {
            let name = entry.map_err(unreadable)?.file_name();
            pids.extend(name.to_str().and_then(|name| name.parse::<u32>().ok()));
        }
        // It is everywhere there are processes at all: without it the table is not mounted, or `hidepid` keeps from us
        // what belongs to others.
        if !pids.contains(&1) {
            return Err(unreadable(io::Error::other("process 1 is not in it")));
        }
        pids.sort_unstable();
        Ok(pids)
    }

    /// The static pod that a process with this `/proc/PID/cgroup` is in.
    fn pod_cgroup(&self, text: &str) -> Option<PodCgroup> {
        let mut uid = None;
        let mut folders = Vec::new();
        for line in text.lines() {
            let mut fields = line.splitn(3, ':').skip(1);
            let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else {
                continue;
            };
            let Some((found, pod)) = static_pod(Path::new(path)) else {
                continue;
            };
            uid.get_or_insert(found);
            if controllers.is_empty() {
                folders.push(self.cgroups.join(&pod));
                // Where a v2 hierarchy is mounted beside those of v1.
                folders.push(self.cgroups.join("unified").join(&pod));
            } else {
                let mount = controllers.strip_prefix("name=").unwrap_or(controllers);
                folders.push(self.cgroups.join(mount).join(&pod));
            }
        }
        uid.map(|uid| PodCgroup { uid, folders })
    }
}

/// The UID of the static pod that a cgroup is in or below, and the path of the pod's own cgroup, without the leading `/`.
fn static_pod(cgroup: &Path) -> Option<(String, PathBuf)> {
    let mut pod = PathBuf::new();
    for part in cgroup
        .iter()
        .filter_map(|part| part.to_str())
        .filter(|part| *part != "/")
    {
        pod.push(part);
        let uid = match part.strip_suffix(".slice") {
            Some(slice) => slice.rsplit_once("-pod").map(|(_, uid)| uid),
            None => part.strip_prefix("pod"),
        };
        if let Some(uid) = uid.filter(|uid| is_static_uid(uid)) {
            return Some((uid.to_owned(), pod));
        }
    }
    None
}

/// Whether a pod of this UID came from a file or an URL, and not from the API.
pub(super) fn is_static_uid(uid: &str) -> bool {
    uid.len() == 32 && uid.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

fn program(arguments: &[u8]) -> String {
    let first = arguments.split(|byte| *byte == 0).next().unwrap_or_default();
    let name = first.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    String::from_utf8_lossy(name).into_owned()
}

/// The content of a file of one process; `None` when the process has ended.
fn read_if_alive(path: &Path) -> Result<Option<Vec<u8>>, Error> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(NO_SUCH_PROCESS) => {
            Ok(None)
        }
        Err(source) => {
            let path = path.to_owned();
            Err(Error::Processes { path, source })
        }
    }
}

const NO_SUCH_PROCESS: i32 = rustix::io::Errno::SRCH.raw_os_error();
