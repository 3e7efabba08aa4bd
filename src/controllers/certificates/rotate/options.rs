//! How a rotation is run, and what comes of it.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};

use super::moving::Moved;
use crate::pki::seal::CertificateKey;
use crate::reconcilers::certificates::reissue::Keys;
use crate::reconcilers::grants::token::TokenId;

/// How a rotation is run.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Nothing is done unless a leaf ends within this time, or is broken; none: everything is reissued.
    pub if_expiring: Option<SignedDuration>,
    /// What becomes of keys.
    pub keys: Keys,
    /// Makes the shared certificate key anew as well.
    pub rekey_shared: bool,
    /// Goes on without the cluster.
    pub offline: bool,
    /// Whether it fails when kube-vip was not replaced; else that is a warning.
    pub kube_vip_required: bool,
    /// Who has the node's lock.
    pub lock: NodeLock,
    /// Only says what would be done.
    pub dry_run: bool,
}

/// Who takes the lock of the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeLock {
    /// The rotation does.
    Take,
    /// The caller has it, for the whole call. Taking it again would be refused: locks of one process exclude each other too.
    Held,
}

/// What was done.
#[derive(Debug, Default)]
pub struct Rotated {
    /// The leaves that were made anew; empty when nothing was due.
    pub reissued: Vec<String>,
    /// Who moved, and what shows it.
    pub moves: Vec<Moved>,
    /// Why nothing was made anew.
    pub idle: Option<String>,
    /// The first end among all leaves now.
    pub first_end: Option<Timestamp>,
    /// What only a person can do.
    pub by_hand: Vec<String>,
    /// What went wrong and is no failure.
    pub warnings: Vec<String>,
    /// Why some leaves were not made anew, though they have to be: somebody has to.
    pub skipped: Vec<String>,
    /// The shared certificate key, if it was made anew: told once, and kept nowhere.
    pub certificate_key: Option<CertificateKey>,
    /// The grants that were live and are dropped, by their tokens.
    pub dropped_grants: BTreeSet<TokenId>,
}
