//! One file or folder per concern: what was observed, the pure decision, and the plan it returns.
//!
//! No client, no clock, no filesystem, no `async`. Concerns never import one another; what they share is a value in
//! [`object`].

pub mod election;
pub mod inventory;
pub mod manifests;
pub mod object;
