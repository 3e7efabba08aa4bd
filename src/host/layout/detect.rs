//! Whose node this machine is, by the files on it.

use std::io;
use std::path::{Path, PathBuf};

use super::{Form, Identity, Layout};

/// Why nobody can say whose node a machine is.
#[derive(Debug, thiserror::Error)]
pub enum DetectError {
    /// It has the files of both.
    #[error(
        "{} says that this is a node of this program, and {} that kubeadm made it: say which with --layout stratum or --layout kubeadm",
        stratum.display(),
        kubeadm.display()
    )]
    Both {
        /// The file of this program.
        stratum: PathBuf,
        /// The file of kubeadm.
        kubeadm: PathBuf,
    },
    /// It has the files of neither.
    #[error(
        "this machine is no node: neither {} is there (`stratum server` or `stratum join` makes it) nor a file of kubeadm's in {}",
        stratum.display(),
        kubeadm.display()
    )]
    Neither {
        /// Where this program's file would be.
        stratum: PathBuf,
        /// Where kubeadm's would be.
        kubeadm: PathBuf,
    },
    /// It could not be looked.
    #[error("cannot look for {}: run it as root, or say whose node this is with --layout", path.display())]
    Look {
        /// What was looked for.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
}

impl Layout {
    /// The layout of the node below `root`: this program's where there is a `node.yaml`, kubeadm's where there is one of the
    /// files that every node of kubeadm's has.
    ///
    /// # Errors
    /// When there are both or neither, and when it cannot be looked.
    pub fn detect(root: impl Into<PathBuf>) -> Result<Self, DetectError> {
        let stratum = Self::under(root);
        let kubeadm = stratum.clone().with_form(Form::Kubeadm);
        let own = stratum.node_state();
        let theirs = [
            kubeadm.static_pods().join("kube-apiserver.yaml"),
            kubeadm.kubeconfig(Identity::Kubelet),
            kubeadm.pki().join("ca.crt"),
        ];
        let own_is_there = exists(&own)?;
        let (mut found, mut refused) = (None, None);
        for path in theirs {
            match exists(&path) {
                Ok(true) => {
                    found = Some(path);
                    break;
                }
                Ok(false) => {}
                // The folder of manifests is root's alone; the others may be looked for by anybody.
                Err(error) => refused = Some(error),
            }
        }
        if let (false, None, Some(error)) = (own_is_there, &found, refused) {
            return Err(error);
        }
        match (own_is_there, found) {
            (true, None) => Ok(stratum),
            (false, Some(_)) => Ok(kubeadm),
            (true, Some(theirs)) => Err(DetectError::Both {
                stratum: own,
                kubeadm: theirs,
            }),
            (false, None) => Err(DetectError::Neither {
                stratum: own,
                kubeadm: kubeadm.kubernetes(),
            }),
        }
    }
}

fn exists(path: &Path) -> Result<bool, DetectError> {
    path.try_exists().map_err(|source| DetectError::Look {
        path: path.to_owned(),
        source,
    })
}
