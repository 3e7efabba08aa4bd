//! Out of a container and onto its host: this process enters the namespaces of process 1.
//!
//! For the privileged pod of a node Job, which shares the host's process ids, so that process 1 is the host's. Only a process
//! of one thread can change its mount namespace, so this comes before any runtime. The container's cgroup stays: what has to
//! outlive the pod leaves it by itself, or asks somebody of the host (`up.sock`).

use std::fs::{File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use rustix::fd::AsFd;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// Mounts last: from then on every path is the host's. Process ids are shared already, and users are not told apart in a
/// privileged container.
const NAMESPACES: [(&str, LinkNameSpaceType); 5] = [
    ("cgroup", LinkNameSpaceType::ControlGroup),
    ("ipc", LinkNameSpaceType::InterProcessCommunication),
    ("uts", LinkNameSpaceType::HostNameAndNISDomainName),
    ("net", LinkNameSpaceType::Network),
    ("mnt", LinkNameSpaceType::Mount),
];

/// Why the host was not reached.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// What the program says has nowhere to go.
    #[error("cannot write to {}", path.display())]
    Message {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// A namespace of process 1.
    #[error("cannot enter {}: is this a privileged container with the host's process ids?", path.display())]
    Namespace {
        /// Its link.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
}

/// From here on, standard output is the file `path` of the container. It is opened before the host is entered, where it is
/// out of reach.
///
/// # Errors
/// When the file cannot be opened.
pub fn write_to(path: &Path) -> Result<(), Error> {
    let opened = OpenOptions::new().write(true).create(true).truncate(true).open(path);
    let redirected = opened.and_then(|file| Ok(rustix::stdio::dup2_stdout(file)?));
    redirected.map_err(|source| Error::Message {
        path: path.to_owned(),
        source,
    })
}

/// Enters the namespaces that process 1 has in `processes`, which is `/proc` everywhere but in tests.
///
/// # Errors
/// Names the first namespace that cannot be entered; those before it are entered.
pub fn enter_host(processes: &Path) -> Result<(), Error> {
    // All are opened first: with the host's mounts, /proc is another one.
    let opened = NAMESPACES.map(|(name, kind)| {
        let path = processes.join("1/ns").join(name);
        (File::open(&path), path, kind)
    });
    for (link, path, kind) in opened {
        let entered = link.and_then(|link| Ok(move_into_link_name_space(link.as_fd(), Some(kind))?));
        entered.map_err(|source| Error::Namespace { path, source })?;
    }
    let root = Path::new("/");
    std::env::set_current_dir(root).map_err(|source| Error::Namespace {
        path: root.to_owned(),
        source,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_namespace_is_not_entered() {
        let folder = tempfile::tempdir().unwrap();
        let error = enter_host(folder.path()).unwrap_err();
        assert!(error.to_string().contains("1/ns/cgroup"), "{error}");
        std::fs::create_dir_all(folder.path().join("1/ns")).unwrap();
        for (name, _) in NAMESPACES {
            File::create(folder.path().join("1/ns").join(name)).unwrap();
        }
        let error = enter_host(folder.path()).unwrap_err();
        let Error::Namespace { source, .. } = error else {
            panic!("{error}");
        };
        // The system's word for a file that is no namespace.
        assert_eq!(source.kind(), io::ErrorKind::InvalidInput, "{source}");
    }
}
