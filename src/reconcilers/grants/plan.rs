//! What becomes of the Secret: when a grant is minted, and when the operator looks.
//!
//! Both make one [`Update`]. It names the keys that change and no other, and is carried out only while the Secret is as
//! it was read, so that a mint and a prune at one time lose nothing.
//!
//! # Who owns the Secret
//! Kubernetes deletes an object once none of its owners exists any more; whole objects, never entries. So:
//!
//! 1. While the legacy entry is there, the Secret has no owner at all: it would go with the last token.
//! 2. While there is any other key that is no entry, whatever it looks like, no token owns it: it would go with the last
//!    token, too. An owner that somebody else set stays; it is theirs to keep.
//! 3. Otherwise it is owned by the tokens of its live grants, by name and UID, and by no other token: what stands there as
//!    an owner is then what holds it.
//! 4. Without a live grant no token owns it, and it stays, empty: then a deletion that was begun for the last grant
//!    cannot meet the first of the next.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

use super::entry::{self, Head, SealError};
use super::material::Material;
use super::token::{self, Expiration, Gone, SKEW, TokenId, Tokens};
use super::{LEGACY, NAME};
use crate::pki::seal::{CertificateKey, NONCE_LENGTH};
use crate::reconcilers::object::Uid;

/// The most that the values of a Secret may hold together, in bytes (Kubernetes, `MaxSecretSize`).
pub const LIMIT: usize = 1024 * 1024;

/// An entry as decisions see it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Held {
    bytes: usize,
    /// The UID of the token it was minted for.
    token_uid: Uid,
}

/// The Secret as decisions see it: no ciphertext. The default is one that does not exist.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stored {
    entries: BTreeMap<TokenId, Held>,
    /// Keys that are token ids and hold no entry: somebody else's.
    foreign: BTreeSet<TokenId>,
    legacy: bool,
    /// Whether there is any other key.
    others: bool,
    owners: Vec<OwnerReference>,
    bytes: usize,
}

impl Stored {
    /// Reads it from the Secret's data and owners.
    #[must_use]
    pub fn read(data: &BTreeMap<String, ByteString>, owners: Vec<OwnerReference>) -> Self {
        let mut stored = Self {
            owners,
            ..Self::default()
        };
        for (key, ByteString(value)) in data {
            stored.bytes += value.len();
            match key.parse::<TokenId>() {
                Ok(id) => match Head::of(&id, value) {
                    Some(Head { token_uid, .. }) => {
                        let bytes = value.len();
                        stored.entries.insert(id, Held { bytes, token_uid });
                    }
                    None => {
                        stored.foreign.insert(id);
                    }
                },
                Err(_) if key == LEGACY => stored.legacy = true,
                Err(_) => stored.others = true,
            }
        }
        stored
    }

    /// Whether a decision depends on the bootstrap tokens at all.
    #[must_use]
    pub fn has_entries(&self) -> bool {
        !self.entries.is_empty()
    }
}

/// A change of the Secret. What it does not name stays as it is.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Update {
    /// An entry to set.
    pub add: Option<(TokenId, Vec<u8>)>,
    /// Entries to remove, and why.
    pub drop: BTreeMap<TokenId, Gone>,
    /// The owners there should be; none when they are right.
    pub owners: Option<Vec<OwnerReference>>,
}

impl Update {
    /// Whether there is nothing to do.
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        let Self { add, drop, owners } = self;
        add.is_none() && drop.is_empty() && owners.is_none()
    }
}

/// What the operator does, and what will be there then.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Prune {
    /// The change.
    pub update: Update,
    /// How many grants live.
    pub live: usize,
    /// Keys that look like entries and are none. They stay, and while they do no token owns the Secret.
    pub foreign: BTreeSet<TokenId>,
    /// The size of the data, in bytes.
    pub bytes: usize,
    /// When the next grant ends; none when none does by itself.
    pub next_end: Option<Duration>,
}

/// Decides which entries go, and who owns the Secret.
#[must_use]
pub fn prune_expired_grants(stored: &Stored, tokens: &Tokens, now: Timestamp) -> Prune {
    let drop = all_gone(stored, tokens, now);
    let live = || stored.entries.iter().filter(|(id, _)| !drop.contains_key(*id));
    let ends = live().filter_map(|(id, _)| match tokens.find(id)?.expiration {
        Expiration::At(end) => Some(Duration::try_from(end.duration_since(now) + SKEW).unwrap_or_default()),
        Expiration::Never | Expiration::Unreadable => None,
    });
    Prune {
        live: live().count(),
        foreign: stored.foreign.clone(),
        bytes: live_bytes(stored, &drop),
        next_end: ends.min(),
        update: Update {
            add: None,
            owners: owners_to_set(stored, live().map(|(id, _)| id), tokens),
            drop,
        },
    }
}

/// A grant to be minted.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// The token it is for.
    pub id: &'a TokenId,
    /// What its joiner gets.
    pub material: &'a Material,
    /// The key its joiner will have.
    pub key: &'a CertificateKey,
    /// Random bytes that served for nothing else.
    pub nonce: [u8; NONCE_LENGTH],
}

/// Why nothing is minted. The Secret stays as it is.
#[derive(Debug, thiserror::Error)]
pub enum MintError {
    /// There is no such token.
    #[error("there is no bootstrap token {id}; it has to be made before its grant")]
    NoToken {
        /// The token.
        id: TokenId,
    },
    /// The token has ended.
    #[error("bootstrap token {id} cannot be used to join: {reason}; make another one")]
    TokenGone {
        /// The token.
        id: TokenId,
        /// Why.
        reason: Gone,
    },
    /// Replacing the entry would take it from whoever was told its key.
    #[error(
        "token {id} has a grant already, which opens with the certificate key that was printed for it; make another token"
    )]
    Granted {
        /// The token.
        id: TokenId,
    },
    /// Under the id stands something that is not ours to replace.
    #[error(
        "Secret {NAME} has a key {id} that holds no grant, so it is left alone, and there is no place for the grant of token {id}; make another token"
    )]
    Occupied {
        /// The token.
        id: TokenId,
    },
    /// The entry cannot be made.
    #[error("no grant could be made for token {id}")]
    Seal {
        /// The token.
        id: TokenId,
        /// Why.
        #[source]
        source: SealError,
    },
    /// The Secret would be too large.
    #[error(
        "Secret {NAME} would hold {bytes} bytes with this grant of {entry}, and the API server takes {LIMIT}; {live} other grants are live: delete tokens that nobody will use (stratum token list)"
    )]
    TooLarge {
        /// All values together, with the new entry.
        bytes: usize,
        /// The new entry.
        entry: usize,
        /// Live grants besides it.
        live: usize,
    },
}

/// Decides how a grant for the token `id` gets into the Secret: its entry, and without those that are gone.
///
/// # Errors
/// When there is no such token any more, it has a grant already, or there is no room.
pub fn mint(stored: &Stored, tokens: &Tokens, wanted: &Wanted<'_>, now: Timestamp) -> Result<Update, MintError> {
    let Wanted {
        id,
        material,
        key,
        nonce,
    } = *wanted;
    let token = tokens.find(id).ok_or_else(|| MintError::NoToken { id: id.clone() })?;
    if let Some(reason) = token::gone(id, &token.uid, tokens, now) {
        return Err(MintError::TokenGone { id: id.clone(), reason });
    }
    if stored.foreign.contains(id) {
        return Err(MintError::Occupied { id: id.clone() });
    }
    let mut drop = all_gone(stored, tokens, now);
    // An entry of an earlier token of this id is not removed but replaced.
    if drop.remove(id).is_none() && stored.entries.contains_key(id) {
        return Err(MintError::Granted { id: id.clone() });
    }
    let entry =
        entry::seal(id, token, material, key, nonce).map_err(|source| MintError::Seal { id: id.clone(), source })?;
    let replaced = stored.entries.get(id).map_or(0, |held| held.bytes);
    let bytes = live_bytes(stored, &drop) - replaced + entry.len();
    let others = || {
        stored
            .entries
            .keys()
            .filter(|other| *other != id && !drop.contains_key(*other))
    };
    if bytes > LIMIT {
        return Err(MintError::TooLarge {
            bytes,
            entry: entry.len(),
            live: others().count(),
        });
    }
    Ok(Update {
        owners: owners_to_set(stored, others().chain([id]), tokens),
        add: Some((id.clone(), entry)),
        drop,
    })
}

/// The shared entry made anew, and nothing beside it.
#[derive(Clone, Debug, PartialEq)]
pub struct Rekey {
    /// The entry.
    pub shared: Vec<u8>,
    /// Every grant: each holds the CA material under a key that somebody was told, and that nobody keeps.
    pub drop: BTreeSet<TokenId>,
    /// Those of them whose bearers could still have joined.
    pub live: BTreeSet<TokenId>,
    /// The owners there should be; none when they are right.
    pub owners: Option<Vec<OwnerReference>>,
}

/// Decides how the Secret comes to hold `shared` as the one entry that opens.
#[must_use]
pub fn rekey(stored: &Stored, tokens: &Tokens, shared: Vec<u8>, now: Timestamp) -> Rekey {
    let gone = all_gone(stored, tokens, now);
    let drop: BTreeSet<TokenId> = stored.entries.keys().cloned().collect();
    Rekey {
        shared,
        live: drop.iter().filter(|id| !gone.contains_key(*id)).cloned().collect(),
        drop,
        // See the head of this file: the shared entry has none.
        owners: (!stored.owners.is_empty()).then(Vec::new),
    }
}

fn all_gone(stored: &Stored, tokens: &Tokens, now: Timestamp) -> BTreeMap<TokenId, Gone> {
    let gone = |(id, held): (&TokenId, &Held)| Some((id.clone(), token::gone(id, &held.token_uid, tokens, now)?));
    stored.entries.iter().filter_map(gone).collect()
}

fn live_bytes(stored: &Stored, drop: &BTreeMap<TokenId, Gone>) -> usize {
    let dropped = drop.keys().filter_map(|id| stored.entries.get(id));
    stored.bytes - dropped.map(|held| held.bytes).sum::<usize>()
}

/// The owners there should be (see the head of this file); none when they are there.
fn owners_to_set<'a>(
    stored: &Stored,
    live: impl Iterator<Item = &'a TokenId>,
    tokens: &Tokens,
) -> Option<Vec<OwnerReference>> {
    let is_token = |owner: &OwnerReference| {
        owner.api_version == "v1" && owner.kind == "Secret" && TokenId::of_secret(&owner.name).is_some()
    };
    let mut missing: BTreeMap<String, String> = if stored.legacy || stored.others || !stored.foreign.is_empty() {
        BTreeMap::new()
    } else {
        live.filter_map(|id| Some((id.secret_name(), tokens.find(id)?.uid.0.clone())))
            .collect()
    };
    let mut owners = Vec::new();
    for owner in stored.owners.iter().filter(|_| !stored.legacy) {
        // One that is right stays in its place with its fields, so that nothing is written for nothing.
        let is_live = missing.get(&owner.name) == Some(&owner.uid);
        if !is_token(owner) || is_live {
            if is_live {
                missing.remove(&owner.name);
            }
            owners.push(owner.clone());
        }
    }
    owners.extend(missing.into_iter().map(|(name, uid)| OwnerReference {
        api_version: "v1".to_owned(),
        kind: "Secret".to_owned(),
        name,
        uid,
        // One owner at most may be the controller, and none of these is to wait for the Secret.
        controller: None,
        block_owner_deletion: None,
    }));
    (owners != stored.owners).then_some(owners)
}
