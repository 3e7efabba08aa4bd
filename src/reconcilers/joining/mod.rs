//! Joining: what a machine needs from the cluster before it is a node, and what the cluster gives out for it.
//!
//! A [`token`] says who may join as what; [`cluster_info`] is what the cluster tells everybody who asks, signed under every
//! token; [`verify`] is how a machine that trusts nothing yet decides whether to believe it; [`access`] is what a token
//! may do; [`command`] is the line that a person carries from a controller to the machine; [`kubeconfig`] is for
//! whoever is no machine at all.
//!
//! Names and forms are kubeadm's where it has them, so that its tools, and kube-controller-manager's signer and cleaner of
//! tokens, work on what is made here.

pub mod access;
pub mod cluster_info;
pub mod command;
pub mod kubeconfig;
pub mod token;
pub mod verify;
