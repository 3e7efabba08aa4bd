//! A node of this program on this machine, and everything that is rendered for it.

use std::collections::BTreeMap;
use std::io::Write;

use jiff::{SignedDuration, Timestamp};

use crate::controllers::progress::tell;
use crate::host::layout::Layout;
use crate::host::node_pki;
use crate::host::node_state::{self, NodeState, Profile};
use crate::host::runtime::{self, Facts, Resolvers};
use crate::host::static_pods::{self, Argument, Component, StaticPods};

/// What `/etc/stratum/config.yaml` passes through to the parts of a node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Config {
    /// Sections `kubelet` and `containerd`.
    pub runtime: runtime::Settings,
    /// `certificates.leafLifetime`: how long the leaves of this node live; a year without it.
    pub leaf_lifetime: Option<SignedDuration>,
    /// Section `components`: arguments of static pods.
    pub arguments: BTreeMap<Component, Vec<Argument>>,
}

/// A node.
#[derive(Clone, Debug)]
pub struct Node {
    /// Where its files are.
    pub layout: Layout,
    /// What it was told.
    pub state: NodeState,
    /// What is passed through.
    pub config: Config,
}

/// Why a node cannot be rendered.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// `node.yaml`.
    #[error(transparent)]
    State(#[from] node_state::Error),
    /// Certificates, keys and kubeconfigs.
    #[error("cannot prepare the node's certificates")]
    Pki(#[source] node_pki::Error),
    /// containerd's and the kubelet's configuration.
    #[error("cannot configure containerd and the kubelet")]
    Runtime(#[source] runtime::Unfinished),
    /// Settings of the kernel.
    #[error("cannot set what the kubelet of profile cis demands of the kernel")]
    Kernel(#[source] runtime::Error),
    /// The name servers of CoreDNS.
    #[error("cannot choose the name servers of CoreDNS")]
    Upstream(#[source] runtime::Error),
    /// The control plane's manifests.
    #[error("cannot render the control plane")]
    StaticPods(#[source] static_pods::Error),
}

impl Node {
    /// The node this machine is.
    ///
    /// # Errors
    /// When `node.yaml` is missing or cannot be used.
    pub fn load(layout: Layout, config: Config) -> Result<Self, Error> {
        let state = node_state::load(&layout.node_state())?;
        Ok(Self { layout, state, config })
    }

    /// Its static pods.
    #[must_use]
    pub fn static_pods(&self) -> StaticPods {
        self.static_pods_on(&Facts::detect(self.layout.root()))
    }

    /// Its static pods, on a machine that was looked at already.
    fn static_pods_on(&self, facts: &Facts) -> StaticPods {
        let inputs = static_pods::Inputs {
            images: BTreeMap::new(),
            extra_arguments: self.config.arguments.clone(),
            selinux_confines: facts.selinux,
            trust_folders: static_pods::trust_folders(&self.layout),
        };
        StaticPods::new(self.layout.clone(), inputs)
    }

    /// Renders everything there is on a node: certificates, kubeconfigs, configuration, manifests. What is right already is
    /// left alone, so it may be done again at any time. Tells `writer` what it changed.
    ///
    /// # Errors
    /// Names the part; the parts before it are done.
    pub fn prepare(&self, now: Timestamp, writer: &mut dyn Write) -> Result<(), Error> {
        let prepared = node_pki::prepare_with(&self.layout, &self.state, self.config.leaf_lifetime, now);
        let prepared = prepared.map_err(Error::Pki)?;
        let kubeconfigs = node_pki::write_kubeconfigs(&self.layout, &self.state).map_err(Error::Pki)?;
        for path in prepared.changed.iter().chain(&kubeconfigs) {
            tell(writer, format_args!("wrote {}", path.display()));
        }
        if self.state.profile == Profile::Cis {
            for setting in runtime::set_kernel(&self.layout).map_err(Error::Kernel)? {
                tell(writer, format_args!("set the kernel's {setting}"));
            }
        }
        let facts = Facts::detect(self.layout.root());
        let inputs = runtime::Inputs {
            layout: &self.layout,
            facts: &facts,
            settings: &self.config.runtime,
        };
        runtime::prepare_node_configs(inputs, &self.state, writer).map_err(Error::Runtime)?;
        self.write_upstream(&facts.resolvers, writer)?;
        let written = self
            .static_pods_on(&facts)
            .write_all(&self.state)
            .map_err(Error::StaticPods)?;
        for component in &written.changed {
            tell(writer, format_args!("wrote the manifest of {component}"));
        }
        for component in &written.removed {
            tell(
                writer,
                format_args!("removed the manifest of {component}, which this node has no longer"),
            );
        }
        for leftover in &written.swept {
            tell(
                writer,
                format_args!(
                    "removed {}: left over by a write that was interrupted, and the kubelet would take it for a pod",
                    leftover.display()
                ),
            );
        }
        for stray in &written.strays {
            tell(
                writer,
                format_args!(
                    "warning: {} is none of this program's, and the kubelet takes it for a pod",
                    stray.display()
                ),
            );
        }
        Ok(())
    }

    /// Brings the name servers of CoreDNS up to what the machine has now.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn follow_resolvers(&self, writer: &mut dyn Write) -> Result<(), Error> {
        self.write_upstream(&Resolvers::detect(self.layout.root()), writer)
    }

    fn write_upstream(&self, resolvers: &Resolvers, writer: &mut dyn Write) -> Result<(), Error> {
        runtime::write_coredns_upstream(&self.layout, resolvers, writer).map_err(Error::Upstream)
    }
}
