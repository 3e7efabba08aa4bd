//! The payload: every program and container image a node is made of, in one folder that is carried to it. Nothing is ever
//! downloaded.
//!
//! ```text
//! payload.lock        what belongs in here: versions, sizes, SHA-256; JSON
//! bin/NAME            programs of the node
//! images/NAME.tar     container images, as OCI image layouts
//! ```
//!
//! [`build()`] makes such a folder where the programs are at hand; [`verify()`] checks one before anything on the node is
//! changed; [`import_images`] gives the images to containerd. The lock is written last, so a folder without it was not
//! finished.

mod archive;
mod build;
mod error;
mod foreign;
mod import;
mod install;
mod lock;
mod progress;
#[cfg(test)]
mod tests;
mod verify;

use std::collections::BTreeSet;
use std::path::PathBuf;

use strum::IntoEnumIterator;

use super::assets::Tool;
use super::images::Image;
use super::node_state::NodeState;

pub use build::{Built, Recipe, build, write_image};
pub use error::{Error, Problem};
pub use import::{Imported, import_images};
pub use install::install;
pub use lock::{Entry, LOCK, PayloadLock, PinnedImage};
pub use progress::Progress;
pub use verify::{Verified, verify};

/// The programs of every node, in `bin`.
pub const PROGRAMS: [Tool; 7] = [
    Tool::Containerd,
    Tool::ContainerdShimRuncV2,
    Tool::Ctr,
    Tool::Runc,
    Tool::Kubelet,
    Tool::Kubectl,
    Tool::Crictl,
];

/// Where a program is in a payload.
#[must_use]
pub fn program_file(tool: Tool) -> PathBuf {
    PathBuf::from("bin").join(tool.name())
}

/// Which images a node cannot do without.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Needs(BTreeSet<Image>);

impl Needs {
    /// Those of this node.
    #[must_use]
    pub fn of(state: &NodeState) -> Self {
        if state.is_controller() {
            Self::controller(state.vip.is_some())
        } else {
            Self::worker()
        }
    }

    /// Those of a controller, with or without an address that controllers share.
    #[must_use]
    pub fn controller(vip: bool) -> Self {
        Self(Image::iter().filter(|image| vip || *image != Image::KubeVip).collect())
    }

    /// Those of a worker.
    #[must_use]
    pub fn worker() -> Self {
        let on_workers = |image: &Image| match image {
            Image::KubeProxy | Image::Coredns | Image::Pause => true,
            Image::Etcd
            | Image::KubeApiserver
            | Image::KubeControllerManager
            | Image::KubeScheduler
            | Image::KubeVip => false,
        };
        Self(Image::iter().filter(on_workers).collect())
    }

    pub(super) fn images(&self) -> impl Iterator<Item = Image> {
        self.0.iter().copied()
    }
}
