//! The certificates this machine holds: what is decided about them.

pub mod status;
