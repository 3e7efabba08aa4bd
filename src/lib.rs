//! Stratum runs on every node of a self-managed Kubernetes cluster: it renders the control plane as static pods,
//! runs the cluster's own controllers as a host process, and renews or replaces every certificate the cluster stands on.
//!
//! The layers, from the inside out; `tests/architecture.rs` fails on an import that goes the other way:
//!
//! | module | role | may use |
//! |---|---|---|
//! | [`text`] | what names, ids and messages have to look like | nothing internal |
//! | [`pki`] | X.509 as pure functions: bytes, keys and time in, bytes out | `text` |
//! | [`reconcilers`] | one file or folder per concern: what was observed, the pure decision, the plan it returns | `text`, `pki` |
//! | [`host`] | this machine: paths, atomic files, locks, processes, folders | `text`, `pki` |
//! | [`controllers`] | the kube-runtime shell: observe, act, leader election, metrics | `text`, `pki`, `reconcilers`, `host` |
//! | [`cli`] | clap, stdout, exit codes; thin | all of them |

pub mod cli;
pub mod controllers;
pub mod host;
pub mod pki;
pub mod reconcilers;
pub mod text;
