//! What is on the disk, as a decision needs it.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::super::super::concern::chain;
use crate::host::certificates::{Entry, Found, KeyState, Machine, Role};
use crate::host::rotation_incomplete::incomplete_rotation;
use crate::reconcilers::certificates::renewal::{Leaf, Observed, RenewedBy};

/// Everything that was read.
#[derive(Debug)]
pub(super) struct Seen {
    /// Without the last attempt.
    pub(super) observed: Observed,
    /// Certificates that are there and cannot be read: name, and why.
    pub(super) unreadable: Vec<(String, String)>,
}

/// Reads every certificate of the machine.
pub(super) fn observe(machine: &Machine) -> Seen {
    let mut found: Vec<(Entry, Found)> = Vec::new();
    let mut unreadable = Vec::new();
    for entry in machine.entries() {
        match entry.read() {
            Ok(Some(read)) => found.push((entry, read)),
            Ok(None) => {}
            Err(error) => unreadable.push((entry.name, chain(&error))),
        }
    }
    let able = |read: &Found| matches!(read.key, KeyState::Matches(_));
    let signers: BTreeMap<&str, Timestamp> = found
        .iter()
        .filter(|(entry, read)| entry.role == Role::Authority && able(read))
        .map(|(entry, read)| (entry.name.as_str(), read.certificate.details().not_after))
        .collect();
    let leaves = found
        .iter()
        .filter_map(|(entry, read)| leaf(machine, entry, read, &signers))
        .collect();
    Seen {
        observed: Observed {
            leaves,
            last: None,
            incomplete: incomplete_rotation(&machine.layout).0,
        },
        unreadable,
    }
}

fn leaf(machine: &Machine, entry: &Entry, read: &Found, signers: &BTreeMap<&str, Timestamp>) -> Option<Leaf> {
    let signer = entry.signer.as_deref();
    let renewed_by = match entry.role {
        Role::Authority => return None,
        // One that the kubelet signed itself is verified by nobody.
        Role::KubeletServer if signer.is_none() => return None,
        Role::KubeletClient | Role::KubeletServer => RenewedBy::Kubelet,
        Role::Leaf => match signer.and_then(|signer| signers.get(signer)) {
            Some(not_after) => RenewedBy::Signer { not_after: *not_after },
            None => RenewedBy::Nobody,
        },
    };
    let details = read.certificate.details();
    Some(Leaf {
        name: entry.name.clone(),
        not_before: details.not_before,
        not_after: details.not_after,
        lifetime: match &entry.expected {
            Some(expected) => Some(expected.lifetime),
            None => machine.leaf_lifetime,
        },
        renewed_by,
        broken: entry.role == Role::Leaf && matches!(read.key, KeyState::Other | KeyState::Absent),
    })
}
