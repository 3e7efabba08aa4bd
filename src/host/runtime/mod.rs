//! The node's runtime: the configuration of containerd and of the kubelet, the mirrors of container registries, and where
//! CoreDNS asks for names outside the cluster.
//!
//! containerd comes from the payload; nothing here installs, starts or stops a program. Text is made by pure functions of
//! what the node was told ([`NodeState`]), what was found on the machine ([`Facts`]) and what the user passes through
//! ([`Settings`]); other functions compare it with the disk and write.
//!
//! | function | writes | removes a legacy file | `changed` | restarts |
//! |---|---|---|---|---|
//! | [`write_config`], [`write_config_with_writer`] | containerd, mirrors | no | told, also beside an error | nothing |
//! | [`ensure_config`] | containerd, mirrors | yes, when all was written | told, also beside an error | nothing |
//! | [`write_kubelet_config`] | the kubelet | no | told (the kubelet's own file) | nothing |
//! | [`write_node_configs`], [`write_node_configs_with_writer`] | the kubelet, then containerd, mirrors | no | told (containerd's alone), also beside an error | nothing |
//! | [`prepare_node_configs`] | the kubelet, then containerd, mirrors | yes, when all was written | dropped: nothing runs yet | nothing |
//! | [`apply_registry`] | mirrors | no | told (the drop-in alone), also beside an error | containerd, when it runs and has to read the drop-in |
//! | [`disable_selinux`] | containerd | no | told | nothing |
//!
//! The "legacy file" is `/etc/containerd/config.toml` as an older build of this program wrote it. `Write...` leaves it for
//! a node whose running supervisor may still start containerd with it; whoever calls them removes it later
//! ([`remove_legacy_host_config`]). What fails before anything was written says `changed: false`, and everything is
//! rendered, with every bad input found, before the first byte is written.

mod cgroup;
mod containerd;
mod coredns;
mod error;
mod facts;
mod kernel;
mod kubelet;
mod registry;
mod settings;
#[cfg(test)]
mod tests;
mod toml_text;

use std::io::Write;

pub use cgroup::{CgroupDriver, CgroupVersion, cgroup_driver};
pub use containerd::legacy::{LegacyHostConfig, legacy_host_config, remove_legacy_host_config};
pub use containerd::selinux::{
    confined_since, confined_since_path, confines_containers, disable_selinux, record_confinement,
};
pub use containerd::{
    SANDBOX_IMAGE, active, config_path, containerd_arguments, ensure_config, write_config, write_config_with_writer,
};
pub use coredns::{Resolvers, coredns_upstream, write_coredns_upstream};
pub use error::{Error, Unfinished};
pub use facts::Facts;
pub use kernel::{set_kernel, tolerates_swap};
pub use kubelet::{
    KERNEL_SETTINGS, cluster_dns_ip, kubelet_arguments, kubelet_config_path, serving_bootstrapped, write_kubelet_config,
};
pub use registry::{ApplyRegistryResult, Problem as RegistryProblem, RegistriesError, apply_registry};
pub use settings::Settings;

use super::layout::Layout;
use super::node_state::NodeState;

/// What everything here is rendered from, besides the node's state.
#[derive(Clone, Copy, Debug)]
pub struct Inputs<'a> {
    /// Where files are.
    pub layout: &'a Layout,
    /// What was found on the machine.
    pub facts: &'a Facts,
    /// What the user passes through.
    pub settings: &'a Settings,
}

/// Writes the kubelet's configuration and then containerd's with the mirrors. `true` when containerd has something new to
/// read; the caller does that in whatever restart it has planned.
///
/// # Errors
/// As [`write_kubelet_config`] and [`write_config`].
pub fn write_node_configs(inputs: Inputs<'_>, state: &NodeState) -> Result<bool, Unfinished> {
    write_node_configs_with_writer(inputs, state, &mut std::io::sink())
}

/// [`write_node_configs`], telling `writer` a line for each file that was written.
///
/// # Errors
/// As [`write_node_configs`]. A writer that fails is no error.
pub fn write_node_configs_with_writer(
    inputs: Inputs<'_>,
    state: &NodeState,
    writer: &mut dyn Write,
) -> Result<bool, Unfinished> {
    write_kubelet_config(inputs, state).map_err(Unfinished::before_any_change)?;
    write_config_with_writer(inputs, writer)
}

/// Writes what the kubelet and containerd need before either runs, and removes a legacy configuration of containerd.
///
/// # Errors
/// As [`write_node_configs`].
pub fn prepare_node_configs(inputs: Inputs<'_>, state: &NodeState, writer: &mut dyn Write) -> Result<(), Unfinished> {
    write_kubelet_config(inputs, state).map_err(Unfinished::before_any_change)?;
    ensure_config(inputs, writer).map(|_| ())
}

/// Tells a line. A writer that fails loses the line and stops nothing: the files are what matters.
fn tell(writer: &mut dyn Write, line: std::fmt::Arguments<'_>) {
    let _ = writeln!(writer, "{line}");
}
