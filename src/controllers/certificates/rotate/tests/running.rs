//! Components that run.
