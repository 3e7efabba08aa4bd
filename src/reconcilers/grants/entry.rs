//! One entry of the Secret: a head that everybody who may read the Secret can read, and the sealed material.
//!
//! The head is one line of JSON, the box follows it without a break. Both are bytes and not text, since the API server counts
//! bytes and text would be a third longer. The box is bound to the entry's name and to its head: an entry that is copied
//! under another name, or whose head is edited, opens no more.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::ByteString;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::material::{self, Material};
use super::token::{Expiration, Token, TokenId};
use super::{LEGACY, NAME};
use crate::pki::seal::{self, CertificateKey, NONCE_LENGTH};
use crate::reconcilers::object::Uid;

/// The form that is written. What later forms add to the head does not hide from this version which token it names.
const FORM: u32 = 1;

/// What an entry says openly, and what it is known by: nothing without one is an entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Head {
    form: u32,
    token: String,
    /// The UID of the token it was minted for.
    #[serde(rename = "tokenUID")]
    pub token_uid: Uid,
    /// When that token was to end at that time, for whoever may not read the token; nothing is decided by it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<Timestamp>,
}

impl Head {
    /// Reads the head of the entry `id`; none when it is no entry that was minted for this id, of whatever form. What
    /// follows the head does not matter: an entry that was cut off is still one.
    #[must_use]
    pub fn of(id: &TokenId, entry: &[u8]) -> Option<Self> {
        let (head, _) = split(entry)?;
        let head: Self = serde_json::from_slice(head).ok()?;
        (head.token == id.as_str()).then_some(head)
    }
}

/// Why an entry could not be sealed.
#[derive(Debug, thiserror::Error)]
pub enum SealError {
    /// The material.
    #[error("the CA material of this node cannot be handed over")]
    Material(#[source] material::Error),
    /// The seal.
    #[error("the CA material of this node cannot be sealed")]
    Seal(#[source] seal::Error),
    /// The head has no JSON form: a fault of this program.
    #[error("the head of the entry cannot be written")]
    Head(#[source] serde_json::Error),
}

/// Why a joiner gets nothing. It never gets a part.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The Secret has no entry for the token.
    #[error(
        "Secret {NAME} has no grant for token {id}: the token expired, was deleted, or was made for a worker; make another with 'stratum token create --control-plane' on a controller"
    )]
    NoGrant {
        /// The token.
        id: TokenId,
    },
    /// The entry is none, or of another token.
    #[error(
        "entry {id} of Secret {NAME} is not what was minted for token {id}; make another with 'stratum token create --control-plane' on a controller"
    )]
    NotItsEntry {
        /// The token.
        id: TokenId,
    },
    /// A later version minted it.
    #[error(
        "the grant of token {id} is of form {found}, and this version reads form {FORM}: join with the version that runs on the controllers"
    )]
    Form {
        /// The token.
        id: TokenId,
        /// Its form.
        found: u32,
    },
    /// The box does not open.
    #[error("the grant of token {id} in Secret {NAME} cannot be opened")]
    Sealed {
        /// The token.
        id: TokenId,
        /// Why.
        #[source]
        source: seal::Error,
    },
    /// It opened, and holds something else.
    #[error("the grant of token {id} in Secret {NAME} holds no usable CA material")]
    Material {
        /// The token.
        id: TokenId,
        /// What is wrong, with the file.
        #[source]
        source: material::Error,
    },
}

/// The entry of a token, for the data of the Secret under the token's id. `nonce` has to be random.
///
/// # Errors
/// When there is no material.
pub fn seal(
    id: &TokenId,
    token: &Token,
    material: &Material,
    key: &CertificateKey,
    nonce: [u8; NONCE_LENGTH],
) -> Result<Vec<u8>, SealError> {
    let head = Head {
        form: FORM,
        token: id.as_str().to_owned(),
        token_uid: token.uid.clone(),
        expires: match token.expiration {
            Expiration::At(end) => Some(end),
            Expiration::Never | Expiration::Unreadable => None,
        },
    };
    let mut entry = serde_json::to_vec(&head).map_err(SealError::Head)?;
    let content = material.to_bytes().map_err(SealError::Material)?;
    let sealed = seal::seal(key, nonce, &context(id.as_str(), &entry), &content).map_err(SealError::Seal)?;
    entry.push(b'\n');
    entry.extend(sealed);
    Ok(entry)
}

/// What the shared entry says openly.
#[derive(Serialize, Deserialize)]
struct SharedHead {
    form: u32,
}

/// The shared entry, for the data of the Secret under [`LEGACY`]: whoever has its key opens it, whatever token he has.
///
/// # Errors
/// As [`seal()`].
pub fn seal_shared(material: &Material, key: &CertificateKey, nonce: [u8; NONCE_LENGTH]) -> Result<Vec<u8>, SealError> {
    let mut entry = serde_json::to_vec(&SharedHead { form: FORM }).map_err(SealError::Head)?;
    let content = material.to_bytes().map_err(SealError::Material)?;
    let sealed = seal::seal(key, nonce, &context(LEGACY, &entry), &content).map_err(SealError::Seal)?;
    entry.push(b'\n');
    entry.extend(sealed);
    Ok(entry)
}

/// Opens the shared entry for a token that has none of its own. One that does not open with the key at hand was not meant: the
/// key was printed for a grant that is gone.
fn open_shared(entry: &[u8], id: &TokenId, key: &CertificateKey) -> Result<Material, OpenError> {
    let none = || OpenError::NoGrant { id: id.clone() };
    let (head, sealed) = split(entry).ok_or_else(none)?;
    let SharedHead { form } = serde_json::from_slice(head).map_err(|_| none())?;
    if form != FORM {
        return Err(OpenError::Form {
            id: id.clone(),
            found: form,
        });
    }
    let content = seal::open(key, &context(LEGACY, head), sealed).map_err(|source| match source {
        seal::Error::OtherKey => none(),
        source => OpenError::Sealed { id: id.clone(), source },
    })?;
    Material::from_bytes(&content).map_err(|source| OpenError::Material { id: id.clone(), source })
}

/// The material that the Secret's `data` holds for a token, whole: its own entry's, and where it has none the shared one's.
///
/// # Errors
/// When there is none, the key is another, or anything of it was changed.
pub fn open(data: &BTreeMap<String, ByteString>, id: &TokenId, key: &CertificateKey) -> Result<Material, OpenError> {
    let ByteString(entry) = match (data.get(id.as_str()), data.get(LEGACY)) {
        (Some(entry), _) => entry,
        (None, Some(ByteString(shared))) => return open_shared(shared, id, key),
        (None, None) => return Err(OpenError::NoGrant { id: id.clone() }),
    };
    let (Some(read), Some((head, sealed))) = (Head::of(id, entry), split(entry)) else {
        return Err(OpenError::NotItsEntry { id: id.clone() });
    };
    if read.form != FORM {
        return Err(OpenError::Form {
            id: id.clone(),
            found: read.form,
        });
    }
    let content: Zeroizing<Vec<u8>> = seal::open(key, &context(id.as_str(), head), sealed)
        .map_err(|source| OpenError::Sealed { id: id.clone(), source })?;
    Material::from_bytes(&content).map_err(|source| OpenError::Material { id: id.clone(), source })
}

/// The head without its line end, and the box.
fn split(entry: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = entry.iter().position(|byte| *byte == b'\n')?;
    Some((&entry[..end], &entry[end + 1..]))
}

/// What the box is bound to. The Secret's name and the ids have a fixed length, which is not that of the shared entry's name,
/// so no two entries share a context.
fn context(name: &str, head: &[u8]) -> Vec<u8> {
    [NAME.as_bytes(), b"/", name.as_bytes(), b"\n", head].concat()
}
