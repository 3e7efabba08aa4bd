//! X.509 as pure functions: bytes, keys and time in, bytes out.
//!
//! Nothing here reads a clock, a file or the network, and nothing internal is imported. Keys are made in one leaf file.
