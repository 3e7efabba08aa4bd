//! Why a rotation did not begin, or did not come to its end.

use std::path::PathBuf;

use jiff::Timestamp;

use crate::controllers::cluster::CallError;
use crate::controllers::cluster_fence::{FenceError, Lost};
use crate::controllers::grants::rekeying::RekeyError;
use crate::controllers::joining::material;
use crate::host::lock::{self, Holder};
use crate::host::node_state::ForeignProfile;
use crate::host::{atomic_file, control_socket, kubeconfig, node_pki, rotation_incomplete, static_pods};
use crate::pki::{authority, key, leaf};
use crate::reconcilers::certificates::moves::Consumer;

/// Why a rotation did not begin, or how far it came.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The node's profile is another build's.
    #[error(transparent)]
    Profile(#[from] ForeignProfile),
    /// This user may not read what has to be replaced.
    #[error("{} cannot be read by this user: run this as root", path.display())]
    Denied {
        /// The file.
        path: PathBuf,
    },
    /// The authorities of this node are being replaced.
    #[error(
        "the CAs of this node are being replaced (phase {phase}), which reissues its certificates too: go on with that ('stratum certs rotate-ca --cluster'), then try again"
    )]
    RotationOpen {
        /// How far that is.
        phase: String,
    },
    /// The authorities of the cluster are being replaced.
    #[error(
        "the CAs of this cluster are being replaced ({object} is there): go on with that ('stratum certs rotate-ca --cluster'), or delete the object if it was rolled back completely"
    )]
    ClusterRotationOpen {
        /// What says so.
        object: String,
    },
    /// Whether they are cannot be told.
    #[error("cannot tell whether the CAs of this cluster are being replaced, so nothing is changed")]
    ClusterUnknown(#[source] CallError),
    /// Another operation has the fence.
    #[error(transparent)]
    Fence(FenceError),
    /// Nobody can be asked for the fence.
    #[error(
        "cannot take the cluster fence: the API server does not answer ({reason}); mend that, or go on with --offline"
    )]
    Silent {
        /// Why.
        reason: String,
    },
    /// There is nothing of a node.
    #[error(
        "no certificate is there, not one below {}: is it another node's layout (--layout), or a disk that is not mounted?", folder.display()
    )]
    Nothing {
        /// Where most of them would be.
        folder: PathBuf,
    },
    /// Something else changes this node.
    #[error("this node is being changed by {holder}: wait for it, then try again")]
    Locked {
        /// By whom.
        holder: Holder,
    },
    /// The lock cannot be taken.
    #[error("cannot lock this node")]
    Lock(#[source] lock::Error),
    /// A folder of the lock cannot be made.
    #[error("cannot lock this node")]
    LockFolder(#[source] atomic_file::Error),
    /// There is no signer.
    #[error("the CA {name} is not on this machine ({} is missing), so nothing it signed can be reissued here", path.display())]
    NoSigner {
        /// Its name.
        name: String,
        /// The missing file.
        path: PathBuf,
    },
    /// The signer cannot be used.
    #[error("the CA {name} in {} cannot sign", path.display())]
    Signer {
        /// Its name.
        name: String,
        /// Its certificate.
        path: PathBuf,
        /// What is wrong.
        #[source]
        source: authority::Error,
    },
    /// The signer's file cannot be used.
    #[error("the CA {name} in {} cannot be used: {reason}", path.display())]
    SignerFile {
        /// Its name.
        name: String,
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// Whatever an expired signer signs, nobody accepts.
    #[error(
        "the CA {name} has expired ({not_after:.0}), and nobody would accept what it signs: replace it with 'stratum certs rotate-ca --force'"
    )]
    SignerExpired {
        /// Its name.
        name: String,
        /// When.
        not_after: Timestamp,
    },
    /// The clock is behind what it has signed itself.
    #[error(
        "{name} is valid from {not_before:.0} on, and this machine's clock says {now:.0}: set the clock; others would take nothing that is issued now for valid, or for longer"
    )]
    Clock {
        /// A certificate from the future.
        name: String,
        /// When its life begins.
        not_before: Timestamp,
        /// What the clock says.
        now: Timestamp,
    },
    /// On a node of kubeadm's only the certificate itself says what it says.
    #[error("{} cannot be read ({reason}), and nothing else says what {name} has to say: move it away, and make it anew with '{command}'", path.display())]
    NothingToCopy {
        /// Its name.
        name: String,
        /// Its file.
        path: PathBuf,
        /// Why not.
        reason: String,
        /// What makes it.
        command: String,
    },
    /// A key cannot be made or copied.
    #[error("cannot make the key of {name}")]
    Key {
        /// Whose.
        name: String,
        /// Why.
        #[source]
        source: key::Error,
    },
    /// A certificate cannot be issued.
    #[error("cannot issue {name}")]
    Issue {
        /// Which.
        name: String,
        /// Why.
        #[source]
        source: leaf::Error,
    },
    /// A kubeconfig cannot be read or changed.
    #[error(transparent)]
    Kubeconfig(#[from] kubeconfig::Error),
    /// The new files cannot be brought onto the disk beside the old ones.
    #[error("nothing was changed")]
    Stage(#[source] atomic_file::Error),
    /// Without a cluster there is no shared key.
    #[error("--rekey-shared changes a Secret of the cluster, and cannot be had {without}")]
    NoRekey {
        /// Without what.
        without: &'static str,
    },
    /// What the shared key opens cannot be read.
    #[error("cannot read what the shared certificate key is to open")]
    Material(#[source] material::ReadError),
    /// What runs on this machine cannot be told.
    #[error("cannot tell what of this node's control plane runs; nothing was changed")]
    Look(#[source] static_pods::Error),

    /// A rename failed between others.
    #[error("the certificates are replaced in part: run this again")]
    Write(#[source] atomic_file::Error),
    /// The kubeconfigs cannot be written.
    #[error("the certificates are replaced, and the kubeconfigs are not: run this again")]
    Kubeconfigs(#[source] node_pki::Error),
    /// The marker cannot be written, before anything else was.
    #[error("nothing was changed")]
    Begin(#[source] rotation_incomplete::Error),
    /// The marker cannot be written or removed.
    #[error("it cannot be written down how far this came")]
    Marker(#[from] rotation_incomplete::Error),
    /// A component was not restarted.
    #[error("the certificates are replaced, and {consumer} was not moved to them: run this again")]
    Move {
        /// Which.
        consumer: Consumer,
        /// Why.
        #[source]
        source: static_pods::Error,
    },
    /// Nobody would start it again.
    #[error(
        "the certificates are replaced, and {consumer} was not moved to them: it runs, and the kubelet, which would start it again, does not answer on loopback port 10248: start that (`systemctl start stratum`, or `systemctl start kubelet` on a node of kubeadm's), then run this again"
    )]
    NoKubelet {
        /// Which.
        consumer: Consumer,
    },
    /// A service of `stratum up` was not restarted.
    #[error("the certificates are replaced, and {consumer} was not moved to them: run this again")]
    Service {
        /// Which.
        consumer: Consumer,
        /// Why.
        #[source]
        source: control_socket::Error,
    },
    /// It refused.
    #[error("the certificates are replaced, and {consumer} was not restarted ({reason}): run this again")]
    Refused {
        /// Which.
        consumer: Consumer,
        /// Why.
        reason: String,
    },
    /// A listener shows another certificate.
    #[error(
        "the certificates are replaced, and {consumer} at {listener} does not serve {leaf} ({reason}): run this again"
    )]
    StillOld {
        /// Who.
        consumer: Consumer,
        /// Where.
        listener: String,
        /// What it should.
        leaf: String,
        /// What was seen instead.
        reason: String,
    },
    /// The gate before the next restart.
    #[error(
        "the certificates are replaced, and the API server of this node is not ready ({reason}), so nothing more is restarted: see 'stratum logs kube-apiserver', then run this again"
    )]
    NotReady {
        /// What it said.
        reason: String,
    },
    /// The fence was lost.
    #[error(transparent)]
    Lost(#[from] Lost),
    /// It was asked to end.
    #[error("stopped between two steps, as asked; what was done stays, run this again")]
    Stopped,
    /// Everything has moved, and the shared key is the old one.
    #[error("the certificates are replaced and in use, and the shared certificate key is the old one")]
    Rekey(#[source] RekeyError),
}

impl Error {
    /// Whether nothing was changed.
    #[must_use]
    pub fn is_refusal(&self) -> bool {
        match self {
            Self::Profile(_)
            | Self::Denied { .. }
            | Self::RotationOpen { .. }
            | Self::ClusterRotationOpen { .. }
            | Self::ClusterUnknown(_)
            | Self::Fence(_)
            | Self::Silent { .. }
            | Self::Nothing { .. }
            | Self::Locked { .. }
            | Self::Lock(_)
            | Self::LockFolder(_)
            | Self::NoSigner { .. }
            | Self::Signer { .. }
            | Self::SignerFile { .. }
            | Self::SignerExpired { .. }
            | Self::Clock { .. }
            | Self::NothingToCopy { .. }
            | Self::Key { .. }
            | Self::Issue { .. }
            | Self::NoRekey { .. }
            | Self::Material(_)
            | Self::Look(_) => true,
            // What cannot be written is a failure of the machine, though nothing was changed either.
            Self::Stage(_)
            | Self::Begin(_)
            | Self::Kubeconfig(_)
            | Self::Write(_)
            | Self::Kubeconfigs(_)
            | Self::Marker(_)
            | Self::Move { .. }
            | Self::Service { .. }
            | Self::Refused { .. }
            | Self::StillOld { .. }
            | Self::NotReady { .. }
            | Self::Lost(_)
            | Self::Stopped
            | Self::NoKubelet { .. }
            | Self::Rekey(_) => false,
        }
    }

    /// Whether it ended because it lost the cluster fence.
    #[must_use]
    pub fn is_lost_fence(&self) -> bool {
        matches!(self, Self::Lost(_))
    }
}
