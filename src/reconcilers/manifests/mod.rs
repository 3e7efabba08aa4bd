//! Plain Kubernetes YAML from a host folder: what a pass applies, and what it may prune.
//!
//! The moments of a pass, each a pure function over owned data:
//!
//! 1. [`source`]: bytes of files -> declared objects, or the reason a file is refused.
//! 2. [`resolve`]: declared objects + what the API server serves -> objects with a canonical identity.
//! 3. [`apply`]: which of them have to be sent, in which stage.
//! 4. [`prune`]: what the record remembers and no file declares, and why it is or is not deleted.
//!
//! [`memory`] is what one process remembers between passes; losing it costs requests, never correctness.
//! [`report`] is what a pass says afterwards. Nothing here reads a clock, a file or the cluster.

pub mod apply;
pub mod memory;
pub mod prune;
pub mod rank;
pub mod report;
pub mod resolve;
pub mod resources;
pub mod source;

/// The label every object of a stack carries; its value is the stack's name.
pub const STACK_LABEL: &str = "stratum.ciq.com/stack";

/// The annotation with which an object asks never to be pruned; its value must be [`PRUNE_DISABLED`].
pub const PRUNE_ANNOTATION: &str = "stratum.ciq.com/prune";

/// The value of [`PRUNE_ANNOTATION`] that protects an object.
pub const PRUNE_DISABLED: &str = "disabled";
