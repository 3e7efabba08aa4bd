//! Minting a grant on the API server, with the rights of an administrator.

use std::collections::BTreeMap;

use kube::Client;

use super::guard::{self, GuardError};
use super::store::{self, Written};
use crate::controllers::cluster::CallError;
use crate::controllers::contention;
use crate::host::{clock, entropy};
use crate::pki::seal::CertificateKey;
use crate::reconcilers::grants::NAME;
use crate::reconcilers::grants::material::Material;
use crate::reconcilers::grants::plan::{self, MintError, Wanted};
use crate::reconcilers::grants::token::{Gone, TokenId};

/// Tries before a mint gives up.
const TRIES: u32 = 60;

/// Why nothing was minted. The Secret is as it was.
#[derive(Debug, thiserror::Error)]
pub enum MintingError {
    /// The CAs are being replaced.
    #[error(transparent)]
    Guard(#[from] GuardError),
    /// The Secret could not be read or written.
    #[error("cannot read or write Secret {NAME}")]
    Secret(#[source] CallError),
    /// Without all tokens it cannot be told which grants are gone.
    #[error("cannot list the bootstrap tokens")]
    Tokens(#[source] CallError),
    /// The Secret is about to go, and the grant would go with it.
    #[error(
        "Secret {NAME} is being deleted; mint again when it is gone (kubectl -n kube-system get secret {NAME} shows the finalizer it waits for)"
    )]
    Terminating,
    /// The grant is refused.
    #[error(transparent)]
    Refused(#[from] MintError),
    /// Every try lost a race.
    #[error("Secret {NAME} could not be written in {TRIES} tries; others write it all the time")]
    Contended,
}

/// What a mint did besides adding its entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Minted {
    /// Grants that were gone and whose entries are dropped.
    pub dropped: BTreeMap<TokenId, Gone>,
}

/// Adds the grant of bootstrap token `id` to the Secret: `material`, sealed under `key`. The token has to exist; in the same
/// update the entries of tokens that are gone are dropped.
///
/// # Errors
/// When a CA rotation is open, the token is not there or has a grant already, the Secret is full, or the API server does not
/// answer. An unanswered write may have been carried out; make another token then.
pub async fn mint(
    client: &Client,
    namespace: &str,
    id: &TokenId,
    key: &CertificateKey,
    material: &Material,
) -> Result<Minted, MintingError> {
    for lost in 1..=TRIES {
        let began = clock::monotonic();
        guard::guard_rekey(client, namespace).await?;
        let read = store::read(client, namespace).await.map_err(MintingError::Secret)?;
        if read.as_ref().is_some_and(|read| read.terminating) {
            return Err(MintingError::Terminating);
        }
        // Only now: see the head of the module.
        let tokens = store::list_tokens(client, namespace)
            .await
            .map_err(MintingError::Tokens)?;
        let none = plan::Stored::default();
        let stored = read.as_ref().map_or(&none, |read| &read.stored);
        let wanted = Wanted {
            id,
            material,
            key,
            nonce: entropy::bytes(),
        };
        let update = plan::mint(stored, &tokens, &wanted, clock::now())?;
        let written = store::write(client, namespace, read.as_ref(), &update)
            .await
            .map_err(MintingError::Secret)?;
        match written {
            Written::Stored => return Ok(Minted { dropped: update.drop }),
            Written::LostRace => contention::wait(began.elapsed(), lost).await,
        }
    }
    Err(MintingError::Contended)
}
