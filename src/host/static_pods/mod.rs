//! The control plane as static pods: which there are, what their manifests say, and how one is stopped, started and
//! restarted by nothing but files in the folder that the kubelet reads.
//!
//! This program is the only writer of that folder. Every manifest is derived from `node.yaml`, the configuration and this
//! binary, and is written again whenever a controller starts: an edit by hand does not last. The kubelet takes every
//! visible file in the folder for a pod, so whatever else the pods need lies in a folder beside it.
//!
//! | module | what |
//! |---|---|
//! | `roster` | the components, in start order, and which of them a node has |
//! | `profiles` | what each profile brings: files, admission plugins, arguments |
//! | `render` | pure: node state, layout and inputs in, a Pod out |
//! | `folder` | the manifests on disk: read, put, write all |
//! | `lifecycle` | stop, start, restart and the waits; `in_place`: a restart of the same pod |
//! | `processes` | what runs, told by the cgroup of a static pod |
//! | `snapshot` | the set copied aside and put back |

mod error;
mod folder;
mod lifecycle;
mod manifest;
mod processes;
pub mod profiles;
pub mod render;
mod roster;
mod snapshot;
#[cfg(test)]
mod tests;

pub use error::Error;
pub use folder::{StaticPods, Written, trust_folders};
pub use lifecycle::Mark;
pub use manifest::ContainerSpec;
pub use render::{Argument, Inputs};
pub use roster::{Component, manifest_name, names_for};

/// Changed to make the kubelet replace a pod: its only purpose is to change.
pub const RESTARTED_AT: &str = "stratum.ciq.com/restarted-at";
/// On the API server's pod: SHA-256 of the profile's plain files, in order. The manifest names such a file without its
/// content and the API server reads it at its start only, so a changed file has to change the pod.
pub const AUDIT_POLICY_SHA256: &str = "stratum.ciq.com/audit-policy-sha256";
/// On the API server's pod: SHA-256 of the profile's admission configuration, for the same reason. Apart, so that the
/// other keeps its value.
pub const ADMISSION_CONFIG_SHA256: &str = "stratum.ciq.com/admission-config-sha256";
/// On the API server's pod: SHA-256 of the file that says which paths need no credential, for the same reason.
pub const AUTHENTICATION_CONFIG_SHA256: &str = "stratum.ciq.com/authentication-config-sha256";
