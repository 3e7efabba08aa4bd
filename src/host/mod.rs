//! This machine: paths, atomic files, locks, child processes, folders.
//!
//! Nothing here knows the Kubernetes API; what a cluster needs of the machine is decided elsewhere and done here.

pub mod clock;
pub mod entropy;
