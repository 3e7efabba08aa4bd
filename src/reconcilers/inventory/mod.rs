//! The prune inventory in cluster state, and the records beside it: ConfigMap `stratum-addon-inventory`.
//!
//! - [`document`]: the inventory itself, which object was applied by which node from which stack; strict reading.
//! - [`records`]: all documents of the ConfigMap together, to and from its `data`, and the forecast of its size.
//! - [`migration`]: how the node-local records become the inventory, and which record a prune may go by.
//! - [`desired`]: which bundled set was staged last, and the cluster inputs staged with it.
//! - [`text`]: how a document is laid out, and where in it a fault is.
//! - [`confirmation`]: prune plans that a person confirmed.
//!
//! Nothing here reads a clock, a file or the cluster.

pub mod confirmation;
pub mod desired;
pub mod document;
pub mod migration;
pub mod records;
pub mod text;

/// The ConfigMap, in the system namespace.
pub const CONFIG_MAP: &str = "stratum-addon-inventory";
