//! The tier on real nodes: kubelets and containerd in namespaces of their own (`tests/rig`), as root.
//!
//! Where that is not possible the tests fail and say what is lacking; they are never skipped.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod bad_input;
mod bring_up;
mod certificates;
mod commands;
mod interrupted;
mod kubeadm;
mod kubelet_serving;
mod leaving;
mod many;
mod registry;
#[path = "../rig/mod.rs"]
#[expect(dead_code, unused_imports, reason = "the example and the benchmark use more of it")]
mod rig;
mod rig_itself;
mod started;
#[path = "../cluster/support/mod.rs"]
#[expect(dead_code, reason = "the tests without nodes use more of it")]
mod support;
mod traffic;
