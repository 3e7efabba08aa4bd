//! The certificates this machine holds: observed, made new before they end, and everybody brought along.

pub mod check;
pub mod cluster;
pub mod daemon;
pub mod metrics;
pub mod renewal;
pub mod rotate;
