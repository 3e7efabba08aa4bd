//! The kubelet: its configuration file, its command line, and what it needs of the kernel.

mod fields;
mod render;
#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use super::super::atomic_file::{self, Access};
use super::super::layout::{Identity, Layout};
use super::super::node_state::NodeState;
use super::Inputs;
use super::error::Error;

/// What the kubelet wants of the kernel, as files below `/proc/sys` and their content. It sets them itself, except under a
/// profile that protects the kernel's settings (`cis`): there it ends at its start unless somebody set them before.
pub const KERNEL_SETTINGS: [(&str, &str); 6] = [
    ("vm/overcommit_memory", "1"),
    ("vm/panic_on_oom", "0"),
    ("kernel/panic", "10"),
    ("kernel/panic_on_oops", "1"),
    ("kernel/keys/root_maxkeys", "1000000"),
    ("kernel/keys/root_maxbytes", "25000000"),
];

/// The kubelet's configuration.
#[must_use]
pub fn kubelet_config_path(layout: &Layout) -> PathBuf {
    layout.kubelet_config()
}

/// Writes the kubelet's configuration and says whether it changed.
///
/// # Errors
/// Says which key of config.yaml is refused, or which file cannot be read or written.
pub fn write_kubelet_config(inputs: Inputs<'_>, state: &NodeState) -> Result<bool, Error> {
    let path = kubelet_config_path(inputs.layout);
    let serving = serving_bootstrapped(state, &inputs.layout.pki())?;
    let text = render::config(inputs, state, serving)?;
    if let Some(folder) = path.parent() {
        atomic_file::create_folder(folder, Access::Public)?;
    }
    // Root's alone, as the CIS benchmark asks (4.1.9).
    Ok(atomic_file::write_if_changed(&path, text.as_bytes(), Access::Secret)?)
}

/// Whether the kubelet gets its serving certificate by a request to the cluster, and not from `kubelet.crt` in `pki`: when
/// the profile says so, and on a node without that file, which is a worker that joined with a token.
///
/// # Errors
/// When it cannot be told whether the file is there.
pub fn serving_bootstrapped(state: &NodeState, pki: &Path) -> Result<bool, Error> {
    if state.profile.serving_bootstrap() {
        return Ok(true);
    }
    let path = pki.join(SERVING_CERTIFICATE);
    match path.try_exists() {
        Ok(there) => Ok(!there),
        Err(source) => Err(Error::Read { path, source }),
    }
}

const SERVING_CERTIFICATE: &str = "kubelet.crt";
const SERVING_KEY: &str = "kubelet.key";

/// The address of the cluster's DNS as this node's pods get it: for every part that renders it.
///
/// # Errors
/// When the range of Services is known and too small to have it.
pub fn cluster_dns_ip(state: &NodeState) -> Result<IpAddr, Error> {
    let address = state.networks.dns();
    match state.networks.services.first() {
        // Another cluster's default would send every look-up of every pod to nowhere.
        Some(range) if !range.contains(&address) => Err(Error::NoDnsAddress { range: *range }),
        Some(_) | None => Ok(address),
    }
}

/// The kubelet's command line, without the program.
///
/// Only what the configuration file has no field for.
#[must_use]
pub fn kubelet_arguments(layout: &Layout, state: &NodeState) -> Vec<OsString> {
    let mut arguments = vec![
        flag("config", &kubelet_config_path(layout)),
        flag("kubeconfig", &layout.kubeconfig(Identity::Kubelet)),
        flag("hostname-override", &state.node_name),
    ];
    let list = |items: Vec<String>| (!items.is_empty()).then(|| items.join(","));
    let addresses = list(state.addresses.iter().map(ToString::to_string).collect());
    arguments.extend(addresses.map(|addresses| flag("node-ip", &addresses)));
    let label = |(key, value): (&String, &String)| format!("{key}={value}");
    let labels = list(state.labels.iter().map(label).collect());
    arguments.extend(labels.map(|labels| flag("node-labels", &labels)));
    arguments.push(flag("cert-dir", &layout.kubelet_root().join("pki")));
    arguments.push(flag("root-dir", &layout.kubelet_root()));
    arguments
}

fn flag(name: &str, value: &(impl AsRef<std::ffi::OsStr> + ?Sized)) -> OsString {
    let mut argument = OsString::from(format!("--{name}="));
    argument.push(value);
    argument
}
