//! Processes of this program's node: who they are, and how they end.
//!
//! A process is ours when it lies in a control group of the kubelet's pods, when it is a shim that containerd of *our* socket
//! started, or when it is a program of our payload. A name alone proves nothing: Docker's shims are called the same.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use rustix::process::Signal;

use super::super::clock;
use super::super::held_process::hold;
use super::super::layout::Layout;
use super::report::{Error, Report};

/// How long processes may take to end after they were killed.
const DEATH: Duration = Duration::from_secs(20);
const PACE: Duration = Duration::from_millis(100);

/// What a process is to us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// containerd or the kubelet of our payload.
    Service,
    /// A shim of our containerd.
    Shim,
}

/// The processes of a kind.
pub(super) fn find(layout: &Layout, kind: Kind) -> BTreeSet<u32> {
    let processes = std::fs::read_dir(layout.root().join("proc"))
        .into_iter()
        .flatten()
        .flatten();
    let numbered = processes.filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, entry.path())));
    numbered
        .filter(|(_, folder)| {
            // One that ends meanwhile has no arguments any more.
            let arguments = std::fs::read(folder.join("cmdline")).unwrap_or_default();
            judge(&arguments, layout) == Some(kind)
        })
        .map(|(id, _)| id)
        .collect()
}

/// The children of processes, and theirs.
pub(super) fn below(layout: &Layout, parents: &BTreeSet<u32>) -> BTreeSet<u32> {
    let entries = std::fs::read_dir(layout.root().join("proc"))
        .into_iter()
        .flatten()
        .flatten();
    let families: Vec<(u32, u32)> = entries
        .filter_map(|entry| {
            let id = entry.file_name().to_str()?.parse().ok()?;
            let stat = std::fs::read_to_string(entry.path().join("stat")).ok()?;
            // The name before it may hold anything, also brackets. A dead process is nobody's concern.
            let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
            let state = fields.next()?;
            let parent = fields.next()?.parse().ok()?;
            (!matches!(state, "Z" | "X")).then_some((id, parent))
        })
        .collect();
    let mut found = BTreeSet::new();
    loop {
        let children = families
            .iter()
            .filter(|(id, parent)| !found.contains(id) && (parents.contains(parent) || found.contains(parent)));
        let children: Vec<u32> = children.map(|(id, _)| *id).collect();
        if children.is_empty() {
            return found;
        }
        found.extend(children);
    }
}

/// What the arguments of a process, each ended by a zero byte, say.
fn judge(arguments: &[u8], layout: &Layout) -> Option<Kind> {
    let arguments: Vec<&str> = arguments
        .split(|byte| *byte == 0)
        .map(|argument| std::str::from_utf8(argument).unwrap_or_default())
        .collect();
    let program = Path::new(arguments.first()?);
    if program.file_name()?.to_str()?.starts_with("containerd-shim") {
        let socket = layout.containerd_socket();
        let ours = arguments
            .windows(2)
            .any(|pair| pair[0] == "-address" && Path::new(pair[1]) == socket);
        return ours.then_some(Kind::Shim);
    }
    let programs = layout.payload().join("bin");
    let service = ["containerd", "kubelet"]
        .iter()
        .any(|name| program == programs.join(name));
    service.then_some(Kind::Service)
}

/// Ends processes: asks them to, and kills those that have not ended within `grace`. `list` tells them anew each time, and
/// is asked again between taking hold of a process and signalling it, so that no process is hit that took over an id.
pub(super) async fn end(
    what: &'static str,
    grace: Duration,
    list: impl Fn() -> BTreeSet<u32>,
    report: &mut Report,
) -> Result<(), Error> {
    let all = list();
    if all.is_empty() {
        return Ok(());
    }
    for (signal, limit) in [(Signal::TERM, grace), (Signal::KILL, DEATH)] {
        let began = clock::monotonic();
        let mut asked = BTreeSet::new();
        loop {
            let there = list();
            if there.is_empty() {
                report.removed(format!("{what}: {} processes", all.len()));
                return Ok(());
            }
            let held: Vec<_> = there.difference(&asked).map(|id| (*id, hold(*id))).collect();
            let still = list();
            for (_, process) in held.iter().filter(|(id, _)| still.contains(id)) {
                process.signal(signal);
            }
            // What is killed is killed again as long as it makes children.
            if signal == Signal::TERM {
                asked.extend(there);
            }
            if began.elapsed() >= limit {
                break;
            }
            clock::sleep(PACE).await;
        }
    }
    Err(Error::Undead {
        what,
        processes: list().into_iter().collect(),
        seconds: DEATH.as_secs(),
    })
}

#[cfg(test)]
mod tests {
    use super::super::super::child::{Exit, Output, Program};
    use super::*;

    #[test]
    fn whose_a_process_is() {
        let layout = Layout::system();
        let judge = |arguments: &[&str]| {
            let text: Vec<u8> = arguments
                .iter()
                .flat_map(|argument| [argument.as_bytes(), b"\0"].concat())
                .collect();
            judge(&text, &layout)
        };
        let shim = "/var/lib/stratum/payload/bin/containerd-shim-runc-v2";
        let ours = "/run/stratum/containerd/containerd.sock";
        for (arguments, kind) in [
            (
                &[shim, "-namespace", "k8s.io", "-id", "1", "-address", ours][..],
                Some(Kind::Shim),
            ),
            (&["containerd-shim-runc-v2", "-address", ours], Some(Kind::Shim)),
            (
                &[
                    shim,
                    "-namespace",
                    "moby",
                    "-address",
                    "/run/containerd/containerd.sock",
                ],
                None,
            ),
            (
                &[
                    "containerd-shim-runc-v2",
                    "-address",
                    "/run/stratum/containerd/containerd.sock.other",
                ],
                None,
            ),
            (&["vi", "-address", ours], None),
            (
                &["/var/lib/stratum/payload/bin/kubelet", "--config"],
                Some(Kind::Service),
            ),
            (&["/var/lib/stratum/payload/bin/containerd"], Some(Kind::Service)),
            (&["/usr/bin/containerd"], None),
            (&["kubelet"], None),
            (&["less", "/var/lib/stratum/payload/bin/kubelet"], None),
            (&[""], None),
        ] {
            assert_eq!(judge(arguments), kind, "{arguments:?}");
        }
    }

    #[test]
    fn processes_are_found_below_the_root() {
        let folder = tempfile::tempdir().unwrap();
        let layout = Layout::under(folder.path());
        let put = |id: &str, arguments: String| {
            let process = folder.path().join("proc").join(id);
            std::fs::create_dir_all(&process).unwrap();
            super::super::tests::put(&process.join("cmdline"), arguments.as_bytes());
        };
        let socket = layout.containerd_socket();
        put(
            "7",
            format!("containerd-shim-runc-v2\0-address\0{}\0", socket.display()),
        );
        put(
            "8",
            "containerd-shim-runc-v2\0-address\0/run/containerd/containerd.sock\0".to_owned(),
        );
        put(
            "self",
            format!("containerd-shim-runc-v2\0-address\0{}\0", socket.display()),
        );
        put("9", format!("{}/bin/kubelet\0", layout.payload().display()));
        assert_eq!(find(&layout, Kind::Shim), BTreeSet::from([7]));
        assert_eq!(find(&layout, Kind::Service), BTreeSet::from([9]));
    }

    #[test]
    fn a_family_is_found_whatever_its_names() {
        let folder = tempfile::tempdir().unwrap();
        for (id, name, state, parent) in [
            (5, "shim", 'S', 1),
            (6, "a) S 1 (b", 'S', 5),
            (7, "c", 'R', 6),
            (8, "d", 'Z', 5),
            (9, "e", 'S', 1),
        ] {
            let path = folder.path().join(format!("proc/{id}/stat"));
            super::super::tests::put(&path, format!("{id} ({name}) {state} {parent} 5 5 0\n").as_bytes());
        }
        let layout = Layout::under(folder.path());
        assert_eq!(below(&layout, &BTreeSet::from([5])), BTreeSet::from([6, 7]));
        assert_eq!(below(&layout, &BTreeSet::new()), BTreeSet::new());
    }

    /// One obeys, one does not, and one was never meant.
    #[tokio::test]
    async fn who_does_not_obey_is_killed() {
        let start = |script: &str| {
            Program::new("sh")
                .arguments(["-c", script])
                .start(&Output::Discard)
                .unwrap()
        };
        let mut stubborn = start("trap '' TERM; while :; do sleep 1; done");
        let mut obedient = start("exec sleep 600");
        let spared = start("exec sleep 600");
        // The shell has to have come to its trap.
        clock::sleep(Duration::from_millis(300)).await;
        let meant = [stubborn.id(), obedient.id()];
        let list = || {
            let lives = |id: &u32| {
                let state = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
                !state.is_empty() && !state.contains(") Z")
            };
            meant.iter().copied().filter(lives).collect()
        };
        let mut report = Report::default();
        end("tests", Duration::from_millis(500), list, &mut report)
            .await
            .unwrap();
        assert_eq!(report.removed, ["tests: 2 processes"]);
        assert_eq!(stubborn.wait().await.unwrap(), Exit::Signal(Signal::KILL.as_raw()));
        assert_eq!(obedient.wait().await.unwrap(), Exit::Signal(Signal::TERM.as_raw()));
        assert_eq!(spared.exit(), None);
    }
}
