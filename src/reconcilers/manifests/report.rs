//! What a pass says afterwards: counts for each stack, every refusal with its place, and why pruning waited.
//!
//! It is a value: `stratum dev --once` and `stratum manifests` print it, the status ConfigMap stores it, metrics count it.

use std::collections::BTreeMap;
use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::reconcilers::object::{ObjectId, StackName};

/// What became of one object in a pass.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    strum::IntoStaticStr,
    strum::EnumIter,
)]
#[serde(rename_all = "camelCase")]
#[strum(serialize_all = "snake_case")]
pub enum Outcome {
    /// It did not exist.
    Created,
    /// It existed and differed.
    Configured,
    /// It is as declared.
    Unchanged,
    /// It was deleted: recorded once, declared no more.
    Pruned,
    /// Its file, its document or the API server refused it.
    Refused,
}

/// Why a file, a document or an object was not applied. The discriminant is a metric label.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    strum::IntoStaticStr,
    strum::EnumIter,
)]
#[serde(rename_all = "camelCase")]
#[strum(serialize_all = "snake_case")]
pub enum RefusalReason {
    /// The file could not be read.
    Unreadable,
    /// The file is no YAML, or a document of it is no Kubernetes object.
    Invalid,
    /// The file looks half written.
    HalfWritten,
    /// A sentinel that the cluster state does not resolve.
    UnresolvedSentinel,
    /// The folder's name cannot be a stack's name.
    StackName,
    /// Two documents declare one object.
    DeclaredTwice,
    /// No API serves the kind.
    UnknownKind,
    /// The API group could not be asked.
    GroupUnavailable,
    /// The kind cannot be applied (no patch verb).
    NotAppliable,
    /// The staged files of a bundled stack are not those of the recorded generation.
    DigestMismatch,
    /// The inventory would pass the size limit of a ConfigMap.
    InventoryTooLarge,
    /// The API server refused the object.
    Rejected,
    /// The API server could not be asked, or did not answer in time.
    Unanswered,
    /// The object is being deleted.
    Terminating,
}

/// One thing that was not applied: where it stands, why, and what to do.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Refusal {
    /// The file, relative to the manifests folder.
    pub file: String,
    /// The line in it, counted from 1, when one is known.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub line: Option<usize>,
    /// The object, as `group/resource namespace/name`, when it has got that far.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub object: Option<String>,
    /// The stack the file belongs to; none for a loose file.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub stack: Option<String>,
    /// The reason as a stable word.
    pub reason: RefusalReason,
    /// The reason in words.
    pub message: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.file)?;
        if let Some(line) = self.line {
            write!(formatter, ":{line}")?;
        }
        if let Some(object) = &self.object {
            write!(formatter, ": {object}")?;
        }
        write!(formatter, ": {}", self.message)
    }
}

/// Why no object is pruned in this pass. The discriminant is a metric label; `Display` says what to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, strum::EnumDiscriminants)]
#[serde(rename_all = "camelCase")]
#[strum_discriminants(
    name(SuspensionReason),
    derive(strum::IntoStaticStr, strum::EnumIter, Hash),
    strum(serialize_all = "snake_case")
)]
pub enum Suspension {
    /// Something in this pass was refused or failed, so what is declared is not known in full.
    PassIncomplete,
    /// Files vanished or lost documents; believed after a second equal read.
    Unsettled,
    /// Not every control-plane node has contributed its record.
    MigrationOpen {
        /// The nodes still missing.
        missing: Vec<String>,
    },
    /// The inventory in the cluster cannot be read.
    InventoryUnreadable {
        /// What is wrong with it.
        problem: String,
    },
    /// There is no inventory yet, and this node's own record of before cannot be read.
    LocalRecordUnreadable {
        /// What is wrong with it, with the file.
        problem: String,
    },
    /// The manifests folder holds no stack at all, and it is not the folder this node applied from before: perhaps
    /// an unmounted disk.
    FolderEmpty,
    /// The brake holds a pass that would delete a large share of a stack.
    Held {
        /// The stack.
        stack: StackName,
        /// How many of its objects would go.
        deletes: usize,
        /// How many it has.
        recorded: usize,
    },
}

impl fmt::Display for Suspension {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PassIncomplete => {
                formatter.write_str("something in this pass was refused; pruning waits until everything is applied")
            }
            Self::Unsettled => formatter.write_str("files changed a moment ago; pruning waits for a second, equal read"),
            Self::MigrationOpen { missing } if missing.is_empty() => formatter.write_str(
                "the inventory migration is open and no control-plane Node is registered yet; it closes when every one has contributed",
            ),
            Self::MigrationOpen { missing } => write!(
                formatter,
                "the inventory migration is open: no record yet from {}; start the operator there, or, if a node is gone for good, set \"recovery\": true in the inventory document of ConfigMap kube-system/stratum-addon-inventory",
                missing.join(", ")
            ),
            Self::InventoryUnreadable { problem } => write!(
                formatter,
                "the inventory in ConfigMap kube-system/stratum-addon-inventory cannot be read: {problem}; correct it by hand"
            ),
            Self::LocalRecordUnreadable { problem } => write!(
                formatter,
                "this node's own record cannot be read: {problem}; repair it, or remove it to forget what it names"
            ),
            Self::FolderEmpty => formatter.write_str(
                "the manifests folder holds no stack, and it is not the folder this node applied from before (an unmounted disk?); mount it, or confirm each stack with 'stratum manifests prune --confirm STACK'",
            ),
            Self::Held { stack, deletes, recorded } => write!(
                formatter,
                "{deletes} of {recorded} objects of stack {stack} would be pruned, more than prune.maxShare allows; look with 'stratum manifests diff', then 'stratum manifests prune --confirm {stack}'"
            ),
        }
    }
}

/// Counts of one stack in one pass.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Objects that did not exist.
    pub created: usize,
    /// Objects that differed.
    pub configured: usize,
    /// Objects that are as declared.
    pub unchanged: usize,
    /// Objects that were deleted.
    pub pruned: usize,
    /// Files, documents and objects that were refused.
    pub refused: usize,
}

impl Counts {
    /// Counts one more of `outcome`.
    pub fn add(&mut self, outcome: Outcome) {
        match outcome {
            Outcome::Created => self.created += 1,
            Outcome::Configured => self.configured += 1,
            Outcome::Unchanged => self.unchanged += 1,
            Outcome::Pruned => self.pruned += 1,
            Outcome::Refused => self.refused += 1,
        }
    }
}

/// One complete pass over the manifests folder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// The node whose folder was read.
    pub node: String,
    /// The folder.
    pub folder: String,
    /// When the pass ended.
    pub at: Timestamp,
    /// Counts by stack; loose files stand under the empty name.
    pub stacks: BTreeMap<String, Counts>,
    /// Everything that was refused.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refusals: Vec<Refusal>,
    /// Why nothing was pruned though something might have been.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspended: Option<Suspension>,
    /// Recorded objects that are declared no more and stay, with the reason in words.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kept: Vec<String>,
    /// Things worth knowing that stop nothing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

impl Report {
    /// An empty report.
    #[must_use]
    pub fn new(node: &str, folder: &str, at: Timestamp) -> Self {
        Self {
            node: node.to_owned(),
            folder: folder.to_owned(),
            at,
            stacks: BTreeMap::new(),
            refusals: Vec::new(),
            suspended: None,
            kept: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// Counts an outcome for a stack, or for the loose files.
    pub fn count(&mut self, stack: Option<&StackName>, outcome: Outcome) {
        self.stacks
            .entry(stack.map(ToString::to_string).unwrap_or_default())
            .or_default()
            .add(outcome);
    }

    /// Adds a refusal and counts it.
    pub fn refuse(&mut self, refusal: Refusal) {
        self.stacks
            .entry(refusal.stack.clone().unwrap_or_default())
            .or_default()
            .add(Outcome::Refused);
        self.refusals.push(refusal);
    }

    /// Whether everything that is declared has been applied.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.refusals.is_empty()
    }

    /// The sum over all stacks.
    #[must_use]
    pub fn total(&self) -> Counts {
        let mut total = Counts::default();
        for counts in self.stacks.values() {
            let Counts {
                created,
                configured,
                unchanged,
                pruned,
                refused,
            } = counts;
            total.created += created;
            total.configured += configured;
            total.unchanged += unchanged;
            total.pruned += pruned;
            total.refused += refused;
        }
        total
    }

    /// Whether `other` says the same, its time aside.
    #[must_use]
    pub fn says_the_same(&self, other: &Self) -> bool {
        let mut other = other.clone();
        other.at = self.at;
        *self == other
    }
}

/// Why a recorded object that no file declares is not deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeptReason {
    /// The annotation `stratum.ciq.com/prune: disabled`.
    Protected,
    /// A namespace of Kubernetes itself, or the inventory.
    Reserved,
    /// A Namespace or CustomResourceDefinition that would take objects with it that are not pruned; one of them.
    HoldsOthers(String),
    /// A Namespace whose objects of this API group could not be listed.
    ContentsUnknown(String),
    /// Recorded without a UID, and the live object does not carry the stack's label: it is somebody else's.
    NotOurs,
    /// Its API group could not be asked.
    GroupUnavailable,
    /// The API server refused the deletion.
    Refused(String),
}

impl KeptReason {
    /// The line a report shows for a kept object.
    #[must_use]
    pub fn describe(&self, id: &ObjectId) -> String {
        match self {
            Self::Protected => format!("{id}: annotated stratum.ciq.com/prune: disabled"),
            Self::Reserved => format!("{id}: never pruned; delete it by hand if it must go"),
            Self::HoldsOthers(example) => format!("{id}: still holds {example}, which is not pruned"),
            Self::ContentsUnknown(group) => {
                format!("{id}: may hold objects of API group {group}, which does not answer")
            }
            Self::NotOurs => format!("{id}: recorded without a UID and not labelled as this stack's"),
            Self::GroupUnavailable => format!("{id}: its API group does not answer"),
            Self::Refused(message) => format!("{id}: the API server refused the deletion: {message}"),
        }
    }
}
