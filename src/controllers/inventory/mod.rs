//! The ConfigMap `stratum-addon-inventory`: its store, and the concern that publishes this node's record in it.

pub mod store;
