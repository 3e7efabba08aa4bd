//! What is mounted below this program's folders, and how it goes.
//!
//! Pods' volumes, containers' root file systems and what a CSI driver staged are unmounted. A file system that somebody gave
//! one of our folders as its own (a disk for etcd) is no leftover: it stays mounted, and is emptied like a folder.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount};

use super::super::clock;
use super::super::layout::Layout;
use super::places;
use super::report::{Error, Report};

/// How long a busy file system is tried again, before it is taken out of sight only.
const PATIENCE: Duration = Duration::from_secs(5);
const PACE: Duration = Duration::from_millis(200);
/// How often it is looked for more.
const ROUNDS: usize = 20;

/// What is mounted below our folders.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Mounts {
    /// What is unmounted, the innermost first; a place with two on top of each other is there twice.
    pub(super) detach: Vec<PathBuf>,
    /// Folders of ours that are file systems of their own.
    pub(super) own: BTreeSet<PathBuf>,
}

/// Reads what is mounted below our folders.
pub(super) fn find(layout: &Layout) -> Result<Mounts, Error> {
    let path = layout.root().join("proc/self/mountinfo");
    let text = std::fs::read(&path).map_err(|source| Error::Read { path, source })?;
    Ok(judge(&parse(&text), layout))
}

/// Unmounts what is below our folders; what stays mounted there as somebody's own arrangement.
pub(super) async fn detach(layout: &Layout, report: &mut Report) -> Result<BTreeSet<PathBuf>, Error> {
    // Taking one away may show another that it hid.
    for _ in 0..ROUNDS {
        let Mounts { detach, own } = find(layout)?;
        if detach.is_empty() {
            return Ok(own);
        }
        for point in detach {
            one(&point, report).await?;
        }
    }
    let Mounts { mut detach, own } = find(layout)?;
    match detach.pop() {
        None => Ok(own),
        Some(path) => Err(Error::Mounted { path }),
    }
}

async fn one(point: &Path, report: &mut Report) -> Result<(), Error> {
    let began = clock::monotonic();
    loop {
        match unmount(point, UnmountFlags::NOFOLLOW) {
            Ok(()) => {
                report.removed(format!("mount {}", point.display()));
                return Ok(());
            }
            // It is no mount any more: it went with its parent, or by itself.
            Err(Errno::INVAL | Errno::NOENT) => return Ok(()),
            Err(Errno::BUSY) if began.elapsed() < PATIENCE => clock::sleep(PACE).await,
            Err(Errno::BUSY) => break,
            Err(errno) => return Err(refused(point, errno)),
        }
    }
    match unmount(point, UnmountFlags::NOFOLLOW | UnmountFlags::DETACH) {
        Ok(()) => {
            report.left(
                format!("mount {}", point.display()),
                "it was in use: it is out of sight, and gone once nobody uses it any more",
            );
            Ok(())
        }
        Err(Errno::INVAL | Errno::NOENT) => Ok(()),
        Err(errno) => Err(refused(point, errno)),
    }
}

fn refused(point: &Path, errno: Errno) -> Error {
    Error::Unmount {
        path: point.to_owned(),
        source: errno.into(),
    }
}

/// The mount points in a text of proc_pid_mountinfo(5), in its order.
fn parse(text: &[u8]) -> Vec<PathBuf> {
    let point = |line: &[u8]| {
        let field = line.split(|byte| *byte == b' ').nth(4)?;
        Some(PathBuf::from(OsString::from_vec(unescape(field))))
    };
    text.split(|byte| *byte == b'\n').filter_map(point).collect()
}

/// Space, tab, newline and backslash stand there as three octal digits.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((byte, after)) = rest.split_first() {
        let digits = (*byte == b'\\').then(|| after.get(..3)).flatten();
        let value = digits.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        match value {
            Some(value) => {
                out.push(value);
                rest = &after[3..];
            }
            None => {
                out.push(*byte);
                rest = after;
            }
        }
    }
    out
}

/// Which of the mount points are leftovers, and which are somebody's arrangement.
fn judge(points: &[PathBuf], layout: &Layout) -> Mounts {
    let own_places = places::may_be_mounts(layout);
    let areas = [layout.kubelet_root(), layout.state(), layout.run()];
    let mut found = Mounts::default();
    for point in points {
        if own_places.contains(point) {
            found.own.insert(point.clone());
        } else if areas.iter().any(|area| point.starts_with(area)) {
            found.detach.push(point.clone());
        }
    }
    // The kernel lists the older first, and what lies on top is younger.
    found.detach.reverse();
    found
        .detach
        .sort_by_key(|point| std::cmp::Reverse(point.as_os_str().as_bytes().split(|byte| *byte == b'/').count()));
    found
}

/// Takes a file system away whose users do not matter: the name of a network namespace.
pub(super) fn drop_name(path: &Path) -> Result<(), io::Error> {
    match unmount(path, UnmountFlags::NOFOLLOW | UnmountFlags::DETACH) {
        Ok(()) | Err(Errno::INVAL | Errno::NOENT) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(points: &[&str]) -> String {
        let line = |point: &&str| format!("36 35 98:0 /mnt1 {point} rw,noatime master:1 - ext3 /dev/root rw\n");
        points.iter().map(line).collect()
    }

    #[test]
    fn leftovers_go_the_innermost_first_and_disks_stay() {
        let text = lines(&[
            "/",
            "/run",
            "/var/lib/kubelet",
            "/var/lib/kubelet/pods/1/volumes/kubernetes.io~projected/token",
            "/var/lib/kubelet/pods/1/volumes/kubernetes.io~empty-dir/a\\040b",
            "/var/lib/kubelet/pods/1/volumes/kubernetes.io~empty-dir/a\\040b/below",
            "/var/lib/kubelet/pods/1/volumes/kubernetes.io~projected/token",
            "/var/lib/kubelet-of-another/pods/2",
            "/var/lib/stratum/etcd",
            "/var/lib/stratum/etcd/below",
            "/var/lib/stratum/containerd/root",
            "/run/stratum/containerd/io.containerd.runtime.v2.task/k8s.io/1/rootfs",
            "/run/containerd/io.containerd.runtime.v2.task/moby/1/rootfs",
            "/run/netns/cni-1",
        ]);
        let found = judge(&parse(text.as_bytes()), &Layout::system());
        let detach: Vec<&str> = found.detach.iter().map(|point| point.to_str().unwrap()).collect();
        assert_eq!(
            detach,
            [
                "/var/lib/kubelet/pods/1/volumes/kubernetes.io~empty-dir/a b/below",
                "/var/lib/kubelet/pods/1/volumes/kubernetes.io~projected/token",
                "/var/lib/kubelet/pods/1/volumes/kubernetes.io~empty-dir/a b",
                "/var/lib/kubelet/pods/1/volumes/kubernetes.io~projected/token",
                "/run/stratum/containerd/io.containerd.runtime.v2.task/k8s.io/1/rootfs",
                "/var/lib/stratum/etcd/below",
            ]
        );
        let own: Vec<&str> = found.own.iter().map(|point| point.to_str().unwrap()).collect();
        assert_eq!(
            own,
            [
                "/var/lib/kubelet",
                "/var/lib/stratum/containerd/root",
                "/var/lib/stratum/etcd"
            ]
        );
    }

    #[test]
    fn what_is_escaped_is_read_back() {
        let points = parse(b"1 2 3 / /a\\134b\\011c\\012d\\04 rw\n\nshort line\n");
        assert_eq!(points, [PathBuf::from("/a\\b\tc\nd\\04")]);
    }
}
