//! Certificates of a machine, as far as a real API server has a part in them.

mod check;
mod cluster;
mod renewal;
