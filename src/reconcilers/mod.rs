//! One file or folder per concern: what was observed, the pure decision, and the plan it returns.
//!
//! No client, no clock, no filesystem, no `async`. Concerns never import one another; what they share are the values
//! in [`object`], [`host_name`] and [`bootstrap_token`].

pub mod bootstrap_token;
pub mod certificates;
pub mod csr;
pub mod departed;
pub mod election;
pub mod grants;
pub mod helm;
pub mod host_name;
pub mod inventory;
pub mod joining;
pub mod manifests;
pub mod node;
pub mod node_jobs;
pub mod object;
pub mod spread;
