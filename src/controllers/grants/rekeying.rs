//! The shared certificate key made anew: whatever key of the cluster was printed before opens nothing any more.

use std::collections::BTreeSet;

use kube::Client;

use super::guard::{self, GuardError};
use super::store::{self, Written};
use crate::controllers::cluster::CallError;
use crate::controllers::contention;
use crate::host::{clock, entropy};
use crate::pki::seal::CertificateKey;
use crate::reconcilers::grants::NAME;
use crate::reconcilers::grants::entry::{self, SealError};
use crate::reconcilers::grants::material::Material;
use crate::reconcilers::grants::plan::{self, Stored};
use crate::reconcilers::grants::token::TokenId;

/// Tries before it gives up.
const TRIES: u32 = 60;

/// Why the key is the old one still. The Secret is as it was.
#[derive(Debug, thiserror::Error)]
pub enum RekeyError {
    /// The CAs are being replaced.
    #[error(transparent)]
    Guard(#[from] GuardError),
    /// The Secret could not be read or written.
    #[error("cannot read or write Secret {NAME}")]
    Secret(#[source] CallError),
    /// Without all tokens it cannot be told which grants are live.
    #[error("cannot list the bootstrap tokens")]
    Tokens(#[source] CallError),
    /// The Secret is about to go, and the entry would go with it.
    #[error("Secret {NAME} is being deleted; try again when it is gone")]
    Terminating,
    /// The entry cannot be made.
    #[error("the shared entry of Secret {NAME} cannot be sealed")]
    Seal(#[source] SealError),
    /// Every try lost a race.
    #[error("Secret {NAME} could not be written in {TRIES} tries; others write it all the time")]
    Contended,
}

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
    for lost in 1..=TRIES {
        let began = clock::monotonic();
        guard::guard_rekey(client, namespace).await?;
        let read = store::read(client, namespace).await.map_err(RekeyError::Secret)?;
        if read.as_ref().is_some_and(|read| read.terminating) {
            return Err(RekeyError::Terminating);
        }
        let tokens = store::list_tokens(client, namespace)
            .await
            .map_err(RekeyError::Tokens)?;
        let shared = entry::seal_shared(material, key, entropy::bytes()).map_err(RekeyError::Seal)?;
        let none = Stored::default();
        let stored = read.as_ref().map_or(&none, |read| &read.stored);
        let rekey = plan::rekey(stored, &tokens, shared, clock::now());
        let written = store::write(client, namespace, read.as_ref(), &rekey)
            .await
            .map_err(RekeyError::Secret)?;
        match written {
            Written::Stored => return Ok(rekey.live),
            Written::LostRace => contention::wait(began.elapsed(), lost).await,
        }
    }
    Err(RekeyError::Contended)
}
