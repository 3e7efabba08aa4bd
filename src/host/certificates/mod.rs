//! Every certificate a machine may hold, as data: where it is, who should have signed it, what it should say, who serves it.
//!
//! One roster for everything that looks after certificates (check, rotate, the renewal loop), on this program's nodes and on
//! kubeadm's. [`Machine::entries`] says what may be there; [`Entry::read`] what is. Nothing here judges or writes.

#[cfg(test)]
pub(crate) mod fixtures;
mod kubeadm;
mod read;
mod stratum;
#[cfg(test)]
mod tests;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use jiff::SignedDuration;

use super::layout::{Form, Layout};
use super::node_state::{self, NodeState};
use crate::pki::leaf::Request;

pub use read::{Found, KeyError, KeyState, ReadError};

/// A machine whose certificates are looked after.
#[derive(Clone, Debug)]
pub struct Machine {
    /// Its paths.
    pub layout: Layout,
    /// Who made it a node.
    pub origin: Origin,
    /// How long new leaves live, where somebody has set it (`certificates.leafLifetime`).
    pub leaf_lifetime: Option<SignedDuration>,
}

/// Who made a machine a node.
#[derive(Clone, Debug)]
pub enum Origin {
    /// This program, which remembers what the node is.
    Stratum(Box<NodeState>),
    /// kubeadm, which does not: everything is taken over from the certificates that are there.
    Kubeadm,
}

/// A certificate a machine may hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its name. On this program's nodes that of its files below the PKI folder (`etcd/server`); on kubeadm's what `kubeadm
    /// certs check-expiration` calls it (`etcd-server`, `admin.conf`). `kubelet-client` and `kubelet-server` on both.
    pub name: String,
    /// What it is for, and who renews it.
    pub role: Role,
    /// Where it is.
    pub store: Store,
    /// The name of the authority that should have signed it; none where that is nobody's business.
    pub signer: Option<String>,
    /// What it should say; none where that is taken over from what is there.
    pub expected: Option<Request>,
    /// The kubeconfig that should lead to it. None for one that is embedded in its kubeconfig.
    pub kubeconfig: Option<PathBuf>,
    /// Of an authority: the bundle it is trusted by, where signing and trust are different files. Of the kubelet's client
    /// certificate: the bundle with more signers it may have.
    pub bundle: Option<PathBuf>,
    /// Where it is served on this machine.
    pub listeners: Vec<SocketAddr>,
}

/// What a certificate is for, and who renews it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, strum::Display, strum::IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum Role {
    /// It signs, or is only trusted here. Never renewed by a rotation of leaves.
    Authority,
    /// Ours to renew.
    Leaf,
    /// The kubelet's as a client, which the kubelet renews.
    KubeletClient,
    /// The kubelet's as a server, where the kubelet made it or asked for it.
    KubeletServer,
}

/// Where a certificate and its key are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Store {
    /// In a file each.
    Pair {
        /// The certificate.
        certificate: PathBuf,
        /// The key.
        key: PathBuf,
    },
    /// Both in one kubeconfig, as the client of its current context.
    Kubeconfig(PathBuf),
    /// Both in one file, as the kubelet keeps them.
    Together(PathBuf),
    /// One or more that are trusted here; this machine never has a key.
    Bundle(PathBuf),
}

impl Store {
    /// The file of the certificate.
    #[must_use]
    pub fn certificate_file(&self) -> &Path {
        match self {
            Self::Pair { certificate, .. } => certificate,
            Self::Kubeconfig(path) | Self::Together(path) | Self::Bundle(path) => path,
        }
    }

    /// The file of the key, if it has a place here.
    #[must_use]
    pub fn key_file(&self) -> Option<&Path> {
        match self {
            Self::Pair { key, .. } => Some(key),
            Self::Kubeconfig(path) | Self::Together(path) => Some(path),
            Self::Bundle(_) => None,
        }
    }

    fn pair(folder: &Path, name: &str) -> Self {
        Self::Pair {
            certificate: folder.join(format!("{name}.crt")),
            key: folder.join(format!("{name}.key")),
        }
    }
}

/// The name of the kubelet's client certificate.
pub const KUBELET_CLIENT: &str = "kubelet-client";
/// The name of the certificate that the kubelet serves with, where it looks after that one itself.
pub const KUBELET_SERVER: &str = "kubelet-server";
/// The cluster's authority, on both forms.
pub const ROOT: &str = "ca";

/// The port of every kubelet.
const KUBELET_PORT: u16 = 10250;

impl Machine {
    /// The machine with this layout: what this program remembers of it is read; kubeadm's needs nothing.
    ///
    /// # Errors
    /// When `node.yaml` is missing or cannot be used.
    pub fn load(layout: Layout) -> Result<Self, node_state::Error> {
        let origin = match layout.form() {
            Form::Stratum => Origin::Stratum(Box::new(node_state::load(&layout.node_state())?)),
            Form::Kubeadm => Origin::Kubeadm,
        };
        Ok(Self {
            layout,
            origin,
            leaf_lifetime: None,
        })
    }

    /// The same, with new leaves that live for so long.
    #[must_use]
    pub fn with_leaf_lifetime(self, leaf_lifetime: Option<SignedDuration>) -> Self {
        Self { leaf_lifetime, ..self }
    }

    /// The name of its Node: of kubeadm's, the one that its kubelet's certificate is for; none when nothing says it.
    #[must_use]
    pub fn node_name(&self) -> Option<String> {
        match &self.origin {
            Origin::Stratum(state) => Some(state.node_name.clone()),
            Origin::Kubeadm => {
                let entries = self.entries();
                let entry = entries.iter().find(|entry| entry.name == KUBELET_CLIENT)?;
                let found = entry.look().ok().flatten()?;
                let user = found.certificate.details().common_name.as_deref()?;
                user.strip_prefix("system:node:").map(str::to_owned)
            }
        }
    }

    /// Every certificate it may hold: leaves, then the kubelet's, then authorities. Whether one is there, [`Entry::read`]
    /// says. On kubeadm's nodes the static pods' manifests and the kubelet's configuration are read for the addresses; one
    /// that cannot be read leaves the defaults.
    #[must_use]
    pub fn entries(&self) -> Vec<Entry> {
        let mut entries = match &self.origin {
            Origin::Stratum(state) => stratum::entries(&self.layout, state),
            Origin::Kubeadm => kubeadm::entries(&self.layout),
        };
        // The kubelet renews its own by the cluster's terms.
        for entry in entries.iter_mut().filter(|entry| entry.role == Role::Leaf) {
            if let (Some(expected), Some(lifetime)) = (&mut entry.expected, self.leaf_lifetime) {
                expected.lifetime = lifetime;
            }
        }
        entries
    }
}

impl Entry {
    fn new(name: impl Into<String>, role: Role, store: Store) -> Self {
        Self {
            name: name.into(),
            role,
            store,
            signer: None,
            expected: None,
            kubeconfig: None,
            bundle: None,
            listeners: Vec::new(),
        }
    }

    fn signed_by(self, signer: &str) -> Self {
        let signer = Some(signer.to_owned());
        Self { signer, ..self }
    }

    fn served_at(self, listeners: Vec<SocketAddr>) -> Self {
        Self { listeners, ..self }
    }

    /// The certificate and the key as they are; none when the certificate is not there.
    ///
    /// # Errors
    /// When it is there and cannot be read. What is wrong with the key alone is in [`Found::key`].
    pub fn read(&self) -> Result<Option<Found>, ReadError> {
        read::read(&self.store)
    }

    /// The same without the key itself: whose key is there is told by its public numbers, and that it is whole is not proven,
    /// which would take longer than everything else together.
    ///
    /// # Errors
    /// As [`Entry::read`].
    pub fn look(&self) -> Result<Option<Found<()>>, ReadError> {
        read::look(&self.store)
    }
}
