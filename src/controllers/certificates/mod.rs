//! The certificates this machine holds: observed, and looked after.

pub mod check;
pub mod rotate;
