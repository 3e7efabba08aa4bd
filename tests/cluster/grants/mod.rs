//! Join grants on a real API server: minted, opened and pruned.
//!
//! kube-controller-manager is not among the test programs, so nothing collects the Secret here, and tokens are deleted by
//! hand. What the garbage collector would do is asked by its own rule, [`bed::is_collected`].

mod bed;
mod joining;
mod minting;
mod pruning;
mod rekeying;
