//! What a component has written, read from the kubelet's files: also when no API server answers.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use super::layout::Layout;

/// A log that cannot be found or read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No pod of that component has run here.
    #[error("no log of {component} is on this node: neither {} nor a pod of it below {}", service.display(), folder.display())]
    Missing {
        /// The component.
        component: String,
        /// What a service's would be.
        service: PathBuf,
        /// Where the kubelet keeps those of pods.
        folder: PathBuf,
    },
    /// A file or folder cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
}

/// The newest log of a component's container, which is the one of its last start. Services of `stratum up` have theirs
/// below [`Layout::logs`].
///
/// # Errors
/// When there is none, or a folder cannot be read.
pub fn newest(layout: &Layout, component: &str) -> Result<PathBuf, Error> {
    let service = layout.logs().join(format!("{component}.log"));
    if service.is_file() {
        return Ok(service);
    }
    let folder = layout.pod_logs();
    let pods = entries(&folder)?.into_iter().filter(|path| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        // NAMESPACE_POD_UID; a static pod's name is the component's and the node's.
        name.strip_prefix("kube-system_")
            .is_some_and(|rest| rest.strip_prefix(component).is_some_and(|rest| rest.starts_with('-')))
    });
    let mut newest: Option<(std::time::SystemTime, PathBuf)> = None;
    for pod in pods {
        for log in entries(&pod.join(component))? {
            let read = |source| Error::Read {
                path: log.clone(),
                source,
            };
            let modified = std::fs::metadata(&log)
                .and_then(|found| found.modified())
                .map_err(read)?;
            let is_log = log.extension().is_some_and(|extension| extension == "log");
            if is_log && newest.as_ref().is_none_or(|(known, _)| *known < modified) {
                newest = Some((modified, log));
            }
        }
    }
    newest.map(|(_, path)| path).ok_or_else(|| Error::Missing {
        component: component.to_owned(),
        service,
        folder,
    })
}

/// Every component whose log [`newest`] would find, by name.
///
/// # Errors
/// When a folder cannot be read.
pub fn components(layout: &Layout) -> Result<Vec<String>, Error> {
    let mut names = BTreeSet::new();
    for log in entries(&layout.logs())? {
        let is_log = log.extension().is_some_and(|extension| extension == "log");
        names.extend(
            name(&log)
                .filter(|_| is_log)
                .map(|name| name.trim_end_matches(".log").to_owned()),
        );
    }
    for pod in entries(&layout.pod_logs())? {
        let Some(pod_name) = name(&pod).and_then(|name| name.strip_prefix("kube-system_").map(str::to_owned)) else {
            continue;
        };
        // A static pod's container has the component's name, and so begins the pod's.
        for container in entries(&pod)? {
            let of_pod = |name: &&str| pod_name.strip_prefix(name).is_some_and(|rest| rest.starts_with('-'));
            names.extend(name(&container).filter(of_pod).map(str::to_owned));
        }
    }
    Ok(names.into_iter().collect())
}

fn name(path: &Path) -> Option<&str> {
    path.file_name()?.to_str()
}

/// What is in a folder; nothing when it is not there.
fn entries(folder: &Path) -> Result<Vec<PathBuf>, Error> {
    let read = |source| Error::Read {
        path: folder.to_owned(),
        source,
    };
    match std::fs::read_dir(folder) {
        Ok(entries) => entries
            .map(|entry| entry.map(|entry| entry.path()).map_err(read))
            .collect(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(source) => Err(read(source)),
    }
}

/// A line as the component wrote it: the kubelet's files have a time, the stream and a tag before each (CRI logging).
#[must_use]
pub fn plain(line: &str) -> &str {
    let mut rest = line;
    let Some((time, after)) = rest.split_once(' ') else {
        return line;
    };
    if time.parse::<jiff::Timestamp>().is_err() {
        return line;
    }
    rest = after;
    for expected in [&["stdout", "stderr"][..], &["F", "P"][..]] {
        match rest.split_once(' ') {
            Some((word, after)) if expected.contains(&word) => rest = after,
            _ => return line,
        }
    }
    rest
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::atomic_file::{Access, create_folder, write};

    #[test]
    fn the_last_start_of_the_very_component() {
        let root = tempfile::tempdir().unwrap();
        let layout = Layout::under(root.path());
        assert!(matches!(newest(&layout, "etcd"), Err(Error::Missing { .. })));
        let put = |path: &str| {
            let path = layout.pod_logs().join(path);
            create_folder(path.parent().unwrap(), Access::Public).unwrap();
            write(&path, b"x\n", Access::Public).unwrap();
            let before = std::fs::File::open(&path).unwrap();
            (path, before)
        };
        let (old, file) = put("kube-system_etcd-alpha_1/etcd/3.log");
        file.set_modified(std::time::UNIX_EPOCH).unwrap();
        let (new, _) = put("kube-system_etcd-alpha_2/etcd/0.log");
        put("kube-system_etcd-alpha_2/etcd/0.log.20260101");
        put("default_etcd-mine_3/etcd/9.log");
        put("kube-system_etcdx-alpha_3/etcd/9.log");
        assert_ne!(old, new);
        assert_eq!(newest(&layout, "etcd").unwrap(), new);
        create_folder(&layout.logs(), Access::Public).unwrap();
        write(&layout.logs().join("kubelet.log"), b"x\n", Access::Public).unwrap();
        assert_eq!(newest(&layout, "kubelet").unwrap(), layout.logs().join("kubelet.log"));
        write(&layout.logs().join("kubelet.log.1"), b"x\n", Access::Public).unwrap();
        assert_eq!(components(&layout).unwrap(), ["etcd", "kubelet"]);
    }

    #[test]
    fn lines_without_the_kubelets_words() {
        assert_eq!(
            plain("2026-01-02T03:04:05.678901234Z stderr F I0102 hello there"),
            "I0102 hello there"
        );
        for own in ["", "hello", "2026-01-02T03:04:05Z hello world", "I0102 stderr F x"] {
            assert_eq!(plain(own), own);
        }
    }
}
