//! The tier on a real API server: etcd and kube-apiserver as child processes, one pair for the whole test binary, one
//! namespace for each test. A test that needs other settings, or that kills things, starts a pair of its own.
//!
//! Without the programs these tests fail and say what to do; they are never skipped.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod certificates;
mod csr;
mod departed;
mod etcd_members;
mod fence;
mod grants;
mod inventory;
mod joining;
mod leader;
mod manifests;
mod plane;
mod session;
mod spread;
mod static_pod_flags;
mod support;
mod yaml_parity;
