//! How the records that earlier releases kept on each node become the inventory of the cluster, and which record a
//! prune may go by meanwhile.
//!
//! Each node adds its own record and none other's. The migration closes when all control-plane nodes have, or when a
//! person sets `recovery`; never because time has passed, since a prune before the last contribution could delete
//! objects that only that node's record remembers.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::document::{Entry, Inventory, Reference};
use crate::reconcilers::object::ObjectId;

/// This node's `.applied.json`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LocalRecord {
    /// There is none: this node never applied anything, or its record is retired.
    Absent,
    /// It was read.
    Read(Entry),
    /// It is there and cannot be read; the reason. What it remembers is unknown, which is not the same as nothing.
    Unreadable(String),
}

/// What one decision about the migration needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observed {
    /// The inventory in cluster state.
    pub inventory: Option<Inventory>,
    /// The names of the Nodes labelled as control plane.
    pub control_plane: BTreeSet<String>,
    /// This node.
    pub node: String,
    /// Its local record.
    pub local: LocalRecord,
}

/// Where the migration stands after a plan is carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, strum::IntoStaticStr, strum::EnumIter)]
#[serde(rename_all = "camelCase")]
#[strum(serialize_all = "snake_case")]
pub enum Note {
    /// It had closed before.
    Closed,
    /// It closes now, because every expected node has contributed.
    Complete,
    /// It closes now, because a person said so.
    Recovery,
    /// Nodes have not contributed yet.
    Waiting,
    /// This node's own record cannot be read, so it contributes nothing.
    LocalUnreadable,
    /// No control-plane Node is registered, so nobody knows who has to contribute.
    NoControlPlane,
}

/// What is done for the migration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// A record to add to this node's entry.
    pub publish: Option<Entry>,
    /// When to say that the migration closed.
    pub close: Option<Timestamp>,
    /// Whether the local record is put aside, after everything else is stored.
    pub retire: bool,
    /// The nodes that have not contributed, once this plan is carried out.
    pub missing: Vec<String>,
    /// Why it is so.
    pub note: Note,
}

impl Plan {
    /// Whether the inventory changes.
    #[must_use]
    pub fn writes(&self) -> bool {
        self.publish.is_some() || self.close.is_some()
    }

    /// Carries the part of the plan out that is in the inventory.
    pub fn carry_out(&self, node: &str, inventory: &mut Option<Inventory>) {
        if !self.writes() {
            return;
        }
        let inventory = inventory.get_or_insert_default();
        if let Some(record) = &self.publish {
            inventory.union_into(node, record);
        }
        inventory.closed_at = inventory.closed_at.or(self.close);
    }
}

/// Decides the next step of the migration, as one node sees it.
#[must_use]
pub fn decide(observed: &Observed, now: Timestamp) -> Plan {
    let inventory = observed.inventory.as_ref();
    if inventory.is_some_and(|inventory| inventory.closed_at.is_some()) {
        // A record of before the close could bring back what has been pruned since: it is not even read.
        return Plan {
            publish: None,
            close: None,
            retire: observed.local != LocalRecord::Absent,
            missing: Vec::new(),
            note: Note::Closed,
        };
    }
    let publish = contribution(inventory, &observed.node, &observed.local);
    let missing: Vec<String> = missing(inventory, &observed.control_plane, &observed.node)
        .into_iter()
        .filter(|node| publish.is_none() || *node != observed.node)
        .collect();
    let recovery = inventory.is_some_and(|inventory| inventory.recovery);
    let note = if recovery {
        Note::Recovery
    } else if matches!(observed.local, LocalRecord::Unreadable(_)) {
        Note::LocalUnreadable
    } else if observed.control_plane.is_empty() {
        Note::NoControlPlane
    } else if missing.is_empty() {
        Note::Complete
    } else {
        Note::Waiting
    };
    let closes = matches!(note, Note::Recovery | Note::Complete);
    Plan {
        publish,
        close: closes.then_some(now),
        retire: closes && observed.local != LocalRecord::Absent,
        missing: if closes { Vec::new() } else { missing },
        note,
    }
}

/// What this node still has to add to its entry.
fn contribution(inventory: Option<&Inventory>, node: &str, local: &LocalRecord) -> Option<Entry> {
    let record = match local {
        LocalRecord::Absent => Entry::default(),
        LocalRecord::Read(record) => record.clone(),
        LocalRecord::Unreadable(_) => return None,
    };
    let known = inventory.and_then(|inventory| inventory.nodes.get(node));
    (!known.is_some_and(|known| known.covers(&record))).then_some(record)
}

/// The expected nodes without an entry.
fn missing(inventory: Option<&Inventory>, control_plane: &BTreeSet<String>, node: &str) -> BTreeSet<String> {
    let mut expected = control_plane.clone();
    expected.insert(node.to_owned());
    expected.retain(|node| !inventory.is_some_and(|inventory| inventory.nodes.contains_key(node)));
    expected
}

/// Why a node may not write its own entry yet.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this node's record cannot be added to the inventory: {problem}")]
pub struct CannotContribute {
    /// Why its record cannot be read.
    pub problem: String,
}

/// Adds the local record to this node's entry, if the migration is open. Has to stand before every write of a node to its
/// own entry: an entry counts as the node's contribution, and one without the local record would close the migration
/// and lose it.
///
/// # Errors
/// When the migration is open and the local record cannot be read; then the entry must not be written.
pub fn contribute_first(
    inventory: &mut Option<Inventory>,
    node: &str,
    local: &LocalRecord,
) -> Result<(), CannotContribute> {
    if inventory
        .as_ref()
        .is_some_and(|inventory| inventory.closed_at.is_some())
    {
        return Ok(());
    }
    if let LocalRecord::Unreadable(problem) = local {
        return Err(CannotContribute {
            problem: problem.clone(),
        });
    }
    if let Some(record) = contribution(inventory.as_ref(), node, local) {
        inventory.get_or_insert_default().union_into(node, &record);
    }
    Ok(())
}

/// What is in cluster state, for [`prune_record`].
#[derive(Clone, Copy, Debug)]
pub enum ClusterState<'a> {
    /// There is no inventory ConfigMap at all.
    NoConfigMap,
    /// There is one; `None` when it has no inventory in it yet.
    Readable(Option<&'a Inventory>),
}

/// The record a prune goes by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PruneRecord {
    /// The union of the cluster's inventory.
    Cluster(BTreeMap<ObjectId, Reference>),
    /// This node's own record, as before there was an inventory.
    Local(Entry),
    /// None: the migration is open.
    Open {
        /// The nodes that have not contributed.
        missing: Vec<String>,
    },
    /// None: this node's own record would count, and cannot be read.
    LocalUnreadable {
        /// Why, with the file.
        problem: String,
    },
}

/// Chooses the record a prune may go by.
#[must_use]
pub fn prune_record(
    state: ClusterState<'_>,
    control_plane: &BTreeSet<String>,
    node: &str,
    local: &LocalRecord,
) -> PruneRecord {
    match state {
        ClusterState::NoConfigMap => match local {
            LocalRecord::Absent => PruneRecord::Local(Entry::default()),
            LocalRecord::Read(record) => PruneRecord::Local(record.clone()),
            LocalRecord::Unreadable(problem) => PruneRecord::LocalUnreadable {
                problem: problem.clone(),
            },
        },
        ClusterState::Readable(Some(inventory)) if inventory.closed_at.is_some() => {
            PruneRecord::Cluster(inventory.references())
        }
        // `recovery` alone is not the close: whoever closes adds its own record in the same write.
        ClusterState::Readable(inventory) => PruneRecord::Open {
            missing: missing(inventory, control_plane, node).into_iter().collect(),
        },
    }
}

#[cfg(test)]
#[path = "migration/tests.rs"]
mod tests;
