//! This machine as a node: how it becomes one, what keeps it one, and how it stops being one.
//!
//! | module | what |
//! |---|---|
//! | [`wish`] | what was asked for, made into a node state or refused; pure |
//! | [`node`] | everything that is rendered on this machine, from node state and configuration |
//! | [`install`] | the first writes of `stratum server` and `stratum join` |
//! | [`bundles`] | the stacks that come with this binary |
//! | [`control_plane`] | what a controller does once its API server answers, before the operator may start |
//! | [`claim`] | how a machine that joins gets its kubelet's first certificate |
//! | [`status`] | how the node is, by this machine's own lights |
//! | [`uninstall`] | taking the node off: the cluster is told, services end, nothing stays |
//! | [`up`] | `stratum up`: containerd, the kubelet and the operator, kept running |

pub mod bundles;
pub mod claim;
pub mod control_plane;
pub mod install;
pub mod join;
pub mod node;
pub mod status;
pub mod uninstall;
pub mod up;
pub mod wish;
