//! The certificates this machine holds: what is decided about them.

pub mod cluster;
pub mod moves;
pub mod reissue;
pub mod renewal;
pub mod status;
