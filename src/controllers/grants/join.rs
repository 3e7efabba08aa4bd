//! Opening a grant, with the rights of the one that joins: it may read the one Secret and nothing else.

use kube::Client;

use super::store;
use crate::controllers::cluster::CallError;
use crate::pki::seal::CertificateKey;
use crate::reconcilers::grants::NAME;
use crate::reconcilers::grants::entry::{self, OpenError};
use crate::reconcilers::grants::material::Material;
use crate::reconcilers::grants::token::TokenId;

/// Why a joiner gets nothing.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// There is no Secret, so no grant is live.
    #[error(
        "there is no Secret {NAME}: every grant has expired or was revoked; make another token with 'stratum token create --control-plane' on a controller"
    )]
    NoSecret,
    /// The Secret could not be read.
    #[error("cannot read Secret {NAME}; if it is forbidden, the token is for workers")]
    Call(#[source] CallError),
    /// The entry does not open.
    #[error(transparent)]
    Open(#[from] OpenError),
}

/// The material of the grant of token `id`, all of it, by one read: a prune at the same time leaves either the whole entry or
/// none.
///
/// # Errors
/// When there is none, it does not open under `key`, or the API server does not answer.
pub async fn open(client: &Client, namespace: &str, id: &TokenId, key: &CertificateKey) -> Result<Material, JoinError> {
    let secret = store::read_data(client, namespace).await.map_err(JoinError::Call)?;
    let secret = secret.ok_or(JoinError::NoSecret)?;
    Ok(entry::open(&secret.data, id, key)?)
}
