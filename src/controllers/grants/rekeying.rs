//! The shared certificate key made anew: whatever key of the cluster was printed before opens nothing any more.

use std::collections::BTreeSet;

use kube::Client;

use super::changing::{ChangeError, change};
use crate::host::{clock, entropy};
use crate::pki::seal::CertificateKey;
use crate::reconcilers::grants::entry::{self, SealError};
use crate::reconcilers::grants::material::Material;
use crate::reconcilers::grants::plan::{self, Stored};
use crate::reconcilers::grants::token::TokenId;

/// Why the key is the old one still. The Secret is as it was.
pub type RekeyError = ChangeError<SealError>;

/// Seals `material` under `key` as the one entry of the Secret that everybody's key opens, and drops every grant: each was
/// sealed under a key that nobody keeps. Returns those whose bearers could still have joined.
///
/// # Errors
/// When a CA rotation is open or the API server does not answer. An unanswered write may have been carried out; do it again
/// then.
pub async fn rekey(
    client: &Client,
    namespace: &str,
    key: &CertificateKey,
    material: &Material,
) -> Result<BTreeSet<TokenId>, RekeyError> {
    let plan = |stored: &Stored, tokens: &_| {
        let shared = entry::seal_shared(material, key, entropy::bytes())?;
        Ok(plan::rekey(stored, tokens, shared, clock::now()))
    };
    let rekey = change(client, namespace, plan).await?;
    Ok(rekey.live)
}
