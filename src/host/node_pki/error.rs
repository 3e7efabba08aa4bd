//! What goes wrong with the certificates and kubeconfigs of a node.

use std::path::PathBuf;

use super::super::{atomic_file, kubeconfig, pki_folder, rotation_incomplete};
use crate::pki::{authority, certificate, key};

/// Certificates, keys or kubeconfigs that cannot be used or made.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file of the PKI folder.
    #[error(transparent)]
    Folder(#[from] pki_folder::Error),
    /// A file cannot be written or removed.
    #[error(transparent)]
    File(#[from] atomic_file::Error),
    /// A kubeconfig.
    #[error(transparent)]
    Kubeconfig(#[from] kubeconfig::Error),
    /// It cannot be written down that leaves were replaced.
    #[error(transparent)]
    Marker(#[from] rotation_incomplete::Error),
    /// A controller that joined lacks an authority, and must not make one of its own.
    #[error("{} is missing: bring it and its key back from a backup or another controller, or let this node join anew", path.display())]
    NoAuthority {
        /// The missing certificate.
        path: PathBuf,
    },
    /// The first controller lacks an authority that it once had.
    #[error("{} is missing, but {} says that it existed: bring it and its key back from a backup or another controller", path.display(), bundle.display())]
    LostAuthority {
        /// The missing certificate.
        path: PathBuf,
        /// The bundle that trusts it.
        bundle: PathBuf,
    },
    /// A certificate that is there cannot be read.
    #[error("{} cannot be used", path.display())]
    Certificate {
        /// Its file.
        path: PathBuf,
        /// What is wrong.
        #[source]
        source: certificate::Error,
    },
    /// A certificate that was issued is of another key.
    #[error("what was issued for {} is of another key than this node's", path.display())]
    Foreign {
        /// The file it was for.
        path: PathBuf,
    },
    /// What was handed over lacks a file.
    #[error("the join grant lacks {name}: mint another one with `stratum token create --control-plane`")]
    NotHandedOver {
        /// The file.
        name: String,
    },
    /// What was handed over holds a file that this binary does not know.
    #[error("the join grant holds {name:?}, which this binary does not know: join with the release the cluster runs")]
    UnknownFile {
        /// The file.
        name: String,
    },
    /// An authority that was handed over cannot be used.
    #[error("the authority {name} of the join grant cannot be used")]
    ReceivedAuthority {
        /// The file of its certificate.
        name: String,
        /// What is wrong.
        #[source]
        source: authority::Error,
    },
    /// A key that was handed over cannot be used.
    #[error("{name} of the join grant cannot be used")]
    ReceivedKey {
        /// The file.
        name: String,
        /// What is wrong.
        #[source]
        source: key::Error,
    },
    /// An authority that was handed over has expired or is not valid yet, by this machine's clock.
    #[error(
        "the authority {name} of the join grant is not valid at this machine's time: check the clock, or rotate the authority first"
    )]
    ReceivedOutOfDate {
        /// The file of its certificate.
        name: String,
    },
    /// A public key that was handed over is of another private key.
    #[error("{name} of the join grant does not belong to the private key beside it")]
    ReceivedOtherKey {
        /// The file.
        name: String,
    },
    /// Another authority or key is there already.
    #[error("{} holds something else than the cluster's: this node belonged to another cluster; `stratum uninstall` it first", path.display())]
    Other {
        /// The file that is there.
        path: PathBuf,
    },
}
