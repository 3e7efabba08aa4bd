//! Charts: what a HelmChart asks for, what its release is, and what is to be done about the difference.
//!
//! The names and the meaning of the fields are those of `helm.cattle.io/v1`, so that a user of k3s changes one line.
//! Nothing here runs `helm`: [`spec`] is what was asked for.

pub mod spec;
