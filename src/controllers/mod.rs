//! The kube-runtime shell around the pure decisions of [`crate::reconcilers`]: roots, watches, observe, act,
//! leader election, metrics.
//!
//! No decision is taken here: a file of this layer reads the world into an owned value, hands it to a `decide`
//! function, and carries out the plan that comes back.

pub mod admin;
pub mod bootstrap;
pub mod certificates;
pub mod cluster;
pub mod cluster_fence;
pub mod cluster_info;
pub mod concern;
pub mod concerns;
pub mod connection;
mod contention;
pub mod csr;
pub mod departed;
pub mod events;
pub mod grants;
pub mod hands;
pub mod health;
pub mod identities;
pub mod in_term;
pub mod inventory;
pub mod joining;
pub mod leader;
pub mod lease;
pub mod light;
pub mod machine;
pub mod manifests;
pub mod metrics;
pub mod mirror;
pub mod node_jobs;
pub mod nodes;
pub mod once;
pub mod operator;
mod progress;
pub mod shutdown;
pub mod spread;
pub mod status;
pub mod telemetry;
mod watching;
