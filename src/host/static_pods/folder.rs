//! The manifests on disk, and the files derived for them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::process::Signal;
use strum::IntoEnumIterator;

use super::super::atomic_file::{self, Access};
use super::super::layout::Layout;
use super::super::node_state::{self, NodeState, Profile};
use super::lifecycle::Pacing;
use super::manifest::{self, ContainerSpec};
use super::processes::{Kernel, Signals};
use super::{Component, Error, Inputs, manifest_name, names_for, profiles, render};

/// The static pods of one node.
#[derive(Clone, Debug)]
pub struct StaticPods {
    pub(super) layout: Layout,
    pub(super) inputs: Inputs,
    pub(super) kernel: Kernel,
    pub(super) pacing: Pacing,
    /// Ports other than [`Component::listener`], for tests.
    pub(super) ports: BTreeMap<Component, u16>,
}

/// What [`StaticPods::write_all`] did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Components whose manifest is new or another; the kubelet replaces their pods.
    pub changed: Vec<Component>,
    /// Components whose manifest was removed, since this node has them no longer.
    pub removed: Vec<Component>,
    /// Derived files that are new or another.
    pub derived: Vec<PathBuf>,
    /// Leftovers of an interrupted write that the kubelet would have taken for pods. Removed.
    pub swept: Vec<PathBuf>,
    /// Visible files that are none of ours. The kubelet takes them for pods; they are left alone.
    pub strays: Vec<PathBuf>,
}

impl Written {
    /// Whether nothing had to be done.
    #[must_use]
    pub fn is_unchanged(&self) -> bool {
        let Self {
            changed,
            removed,
            derived,
            swept,
            strays: _,
        } = self;
        changed.is_empty() && removed.is_empty() && derived.is_empty() && swept.is_empty()
    }
}

impl StaticPods {
    /// Those of a node with this layout, on this machine.
    #[must_use]
    pub fn new(layout: Layout, inputs: Inputs) -> Self {
        Self {
            layout,
            inputs,
            kernel: Kernel::system(),
            pacing: Pacing::default(),
            ports: BTreeMap::new(),
        }
    }

    /// The same, with the process table and the cgroups of the kernel elsewhere than in `/proc` and `/sys/fs/cgroup`, and
    /// somebody else who gets the signals.
    #[must_use]
    pub fn with_kernel(
        mut self,
        processes: impl Into<PathBuf>,
        cgroups: impl Into<PathBuf>,
        signals: impl Fn(u32, Signal) + Send + Sync + 'static,
    ) -> Self {
        self.kernel = Kernel {
            processes: processes.into(),
            cgroups: cgroups.into(),
            signals: Signals::Other(Arc::new(signals)),
        };
        self
    }

    /// The same, with a component that answers on another port than [`Component::listener`].
    #[must_use]
    pub fn with_port(mut self, component: Component, port: u16) -> Self {
        self.ports.insert(component, port);
        self
    }

    /// The folder the kubelet reads.
    #[must_use]
    pub fn folder(&self) -> PathBuf {
        self.layout.static_pods()
    }

    /// A component's manifest.
    #[must_use]
    pub fn path(&self, component: Component) -> PathBuf {
        self.folder().join(component.file_name())
    }

    /// Whether a component belongs on this node: by its node state, and by the manifest itself where there is no node state
    /// (a control plane this program did not make). A component that is stopped belongs here all the same.
    ///
    /// # Errors
    /// When the node state is there and cannot be read.
    pub fn exists(&self, component: Component) -> Result<bool, Error> {
        match node_state::load(&self.layout.node_state()) {
            Ok(state) => Ok(names_for(&state).contains(&component)),
            Err(node_state::Error::Missing { .. }) => Ok(self.path(component).exists()),
            Err(error) => Err(Error::NodeState(error)),
        }
    }

    /// Whether a component has a manifest, or one that an interrupted restart was about to put in place. One that was stopped
    /// has none.
    #[must_use]
    pub fn has_manifest(&self, component: Component) -> bool {
        self.path(component).exists() || self.pending(component).exists()
    }

    /// A component's manifest as it is on disk.
    ///
    /// # Errors
    /// [`Error::NoManifest`] when there is none.
    pub fn read(&self, component: Component) -> Result<Vec<u8>, Error> {
        let path = self.path(component);
        match fs::read(&path) {
            Ok(bytes) => Ok(bytes),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(Error::NoManifest { path }),
            Err(source) => Err(Error::Read { path, source }),
        }
    }

    /// Makes a component's manifest exactly these bytes: for putting back one that was read earlier, where rendering anew
    /// would take the images of this binary instead of those that ran. Says whether it had to be written.
    ///
    /// # Errors
    /// When it cannot be written; the old one is then still there.
    pub fn put(&self, component: Component, bytes: &[u8]) -> Result<bool, Error> {
        atomic_file::create_folder(&self.folder(), Access::Secret)?;
        Ok(atomic_file::write_if_changed(
            &self.path(component),
            bytes,
            Access::Secret,
        )?)
    }

    /// What a component's container runs, from the manifest the kubelet was given and not from what would be rendered: an
    /// edit by hand shows.
    ///
    /// # Errors
    /// When there is no manifest or it is no pod with such a container.
    pub fn read_container_spec(&self, component: Component) -> Result<ContainerSpec, Error> {
        let text = self.read_text(component)?;
        manifest::container_spec(component, &text).map_err(|reason| self.malformed(component, reason))
    }

    /// Makes the folder what the node's state says: derived files first, for the manifests name them, then the manifests in
    /// start order. What is right already is not written; a manifest keeps its restart annotation, so that only a real
    /// change restarts anything. Manifests of components this node has no longer are removed.
    ///
    /// # Errors
    /// Nothing is written before everything could be rendered.
    pub fn write_all(&self, state: &NodeState) -> Result<Written, Error> {
        let roster = names_for(state);
        let derived = if roster.is_empty() {
            Vec::new()
        } else {
            profiles::registered(state.profile).derived_files()?
        };
        let mut manifests = Vec::new();
        for component in &roster {
            manifests.push((
                *component,
                self.render(*component, state, self.restarted_at(*component))?,
            ));
        }
        let mut written = Written {
            swept: self.sweep()?,
            derived: self.write_derived(&derived)?,
            ..Written::default()
        };
        for (component, text) in manifests {
            if self.put(component, text.as_bytes())? {
                written.changed.push(component);
            }
            atomic_file::remove(&self.pending(component))?;
        }
        for component in Component::iter().filter(|component| !roster.contains(component)) {
            if atomic_file::remove(&self.path(component))? {
                written.removed.push(component);
            }
            atomic_file::remove(&self.pending(component))?;
        }
        written.strays = self.strays()?;
        Ok(written)
    }

    pub(super) fn render(
        &self,
        component: Component,
        state: &NodeState,
        restarted_at: Option<String>,
    ) -> Result<String, Error> {
        if !names_for(state).contains(&component) {
            return Err(Error::NotOfThisNode { component });
        }
        render::manifest(component, state, &self.layout, &self.inputs, restarted_at.as_deref())
    }

    /// The restart annotation of the manifest on disk. One that cannot be read has none: it is written anew anyway.
    pub(super) fn restarted_at(&self, component: Component) -> Option<String> {
        let text = fs::read_to_string(self.path(component)).ok()?;
        manifest::restarted_at(&text)
    }

    pub(super) fn read_text(&self, component: Component) -> Result<String, Error> {
        let bytes = self.read(component)?;
        String::from_utf8(bytes).map_err(|_| self.malformed(component, "it is not UTF-8".to_owned()))
    }

    pub(super) fn malformed(&self, component: Component, reason: String) -> Error {
        Error::Malformed {
            path: self.path(component),
            reason,
        }
    }

    /// Where a manifest waits that is to be put in place when the old pod is gone. Hidden from the kubelet.
    pub(super) fn pending(&self, component: Component) -> PathBuf {
        self.folder().join(format!(".{}.next", component.file_name()))
    }

    /// Writes the derived files, and removes those that another profile would have.
    fn write_derived(&self, files: &[(&'static str, String)]) -> Result<Vec<PathBuf>, Error> {
        let folder = self.layout.static_pod_files();
        let mut changed = Vec::new();
        if !files.is_empty() {
            atomic_file::create_folder(&folder, Access::Secret)?;
        }
        for (name, text) in files {
            let path = folder.join(name);
            if atomic_file::write_if_changed(&path, text.as_bytes(), Access::Secret)? {
                changed.push(path);
            }
        }
        let wanted: BTreeSet<&str> = files.iter().map(|(name, _)| *name).collect();
        for name in derived_names().difference(&wanted) {
            let path = folder.join(name);
            if path.exists() && atomic_file::remove(&path)? {
                changed.push(path);
            }
        }
        Ok(changed)
    }

    /// Removes visible leftovers of an earlier, not atomic writer: the kubelet takes one for a pod, and the last by name
    /// holds the pod's name against the real manifest for ever.
    pub(super) fn sweep(&self) -> Result<Vec<PathBuf>, Error> {
        let mut swept = Vec::new();
        for name in names_in(&self.folder())?.iter().filter(|name| is_leftover(name)) {
            let path = self.folder().join(name);
            if atomic_file::remove(&path)? {
                swept.push(path);
            }
        }
        Ok(swept)
    }

    fn strays(&self) -> Result<Vec<PathBuf>, Error> {
        let names = names_in(&self.folder())?;
        let strays = names
            .iter()
            .filter(|name| !name.starts_with('.') && manifest_name(name).is_none());
        Ok(strays.map(|name| self.folder().join(name)).collect())
    }
}

/// Every derived file that any profile has.
pub(super) fn derived_names() -> BTreeSet<&'static str> {
    let plain = Profile::iter().flat_map(|profile| profiles::registered(profile).plain);
    let plain = plain.map(|file| file.name);
    plain
        .chain([profiles::ADMISSION_FILE, profiles::AUTHENTICATION_FILE])
        .collect()
}

/// The names in a folder, sorted; a folder that is not there has none.
pub(super) fn names_in(folder: &Path) -> Result<Vec<String>, Error> {
    let unreadable = |source| Error::Read {
        path: folder.to_owned(),
        source,
    };
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(source) => return Err(unreadable(source)),
    };
    let mut names = Vec::new();
    for entry in entries {
        let name = entry.map_err(unreadable)?.file_name();
        names.push(name.to_string_lossy().into_owned());
    }
    names.sort_unstable();
    Ok(names)
}

/// Whether a name is a manifest's with the mark of a temporary file behind it: `etcd.yaml.tmp`, `etcd.yaml.tmp-12`,
/// `etcd.yaml.1234`, `etcd.yaml.new`. A copy that a person made (`etcd.yaml.bak`) is none.
fn is_leftover(name: &str) -> bool {
    let Some((manifest, mark)) = name
        .split_once(".yaml")
        .map(|(stem, mark)| (format!("{stem}.yaml"), mark))
    else {
        return false;
    };
    let Some(mark) = mark.strip_prefix(['.', '-', '~']) else {
        return false;
    };
    let temporary = mark.starts_with("tmp") || mark.starts_with("new") || mark.starts_with("staging");
    let numbered = !mark.is_empty() && mark.bytes().all(|byte| byte.is_ascii_digit());
    manifest_name(&manifest).is_some() && (temporary || numbered)
}

/// The folders of certificate authorities of the world that this node has, for [`Inputs::trust_folders`]: `/etc/ssl/certs`
/// and those its links lead to on the distributions kubeadm knows.
#[must_use]
pub fn trust_folders(layout: &Layout) -> Vec<PathBuf> {
    let known = [
        "etc/ssl/certs",
        "etc/pki/ca-trust",
        "etc/pki/tls/certs",
        "etc/ca-certificates",
        "usr/share/ca-certificates",
        "usr/local/share/ca-certificates",
    ];
    let known = known.iter().map(|path| layout.root().join(path));
    known.filter(|path| path.is_dir()).collect()
}
