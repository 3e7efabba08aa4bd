//! Joining, up to the point at which a machine begins to change itself: tokens, the printed command, finding the cluster,
//! and the keys of a controller.

pub(crate) mod bed;
mod claiming;
mod commands;
mod discovery;
mod kubeconfigs;
mod published;
mod strangers;
