//! A change of the Secret by an administrator, tried again until no race is lost. The guard stands before each try, and the
//! tokens are listed after the Secret was read.

use kube::Client;

use super::guard::{self, GuardError};
use super::store::{self, Change, Written};
use crate::controllers::cluster::CallError;
use crate::controllers::contention;
use crate::host::clock;
use crate::reconcilers::grants::NAME;
use crate::reconcilers::grants::plan::Stored;
use crate::reconcilers::grants::token::Tokens;

/// Tries before it gives up.
const TRIES: u32 = 60;

/// Why nothing was changed. The Secret is as it was.
#[derive(Debug, thiserror::Error)]
pub enum ChangeError<R: std::error::Error + 'static> {
    /// The CAs are being replaced.
    #[error(transparent)]
    Guard(#[from] GuardError),
    /// The Secret could not be read or written.
    #[error("cannot read or write Secret {NAME}")]
    Secret(#[source] CallError),
    /// Without all tokens it cannot be told which grants are gone.
    #[error("cannot list the bootstrap tokens")]
    Tokens(#[source] CallError),
    /// The Secret is about to go, and what is written would go with it.
    #[error(
        "Secret {NAME} is being deleted; try again when it is gone (kubectl -n kube-system get secret {NAME} shows the finalizer it waits for)"
    )]
    Terminating,
    /// The change is refused.
    #[error(transparent)]
    Refused(R),
    /// Every try lost a race.
    #[error("Secret {NAME} could not be written in {TRIES} tries; others write it all the time")]
    Contended,
}

/// Carries out what `plan` makes of the Secret and the tokens, and returns it.
///
/// # Errors
/// When a CA rotation is open, `plan` refuses, or the API server does not answer. An unanswered write may have been carried
/// out.
pub(super) async fn change<P, R>(
    client: &Client,
    namespace: &str,
    plan: impl Fn(&Stored, &Tokens) -> Result<P, R>,
) -> Result<P, ChangeError<R>>
where
    for<'a> &'a P: Into<Change<'a>>,
    R: std::error::Error + 'static,
{
    for lost in 1..=TRIES {
        let began = clock::monotonic();
        guard::guard_rekey(client, namespace).await?;
        let read = store::read(client, namespace).await.map_err(ChangeError::Secret)?;
        if read.as_ref().is_some_and(|read| read.terminating) {
            return Err(ChangeError::Terminating);
        }
        // Only now: see the head of the module `grants`.
        let tokens = store::list_tokens(client, namespace)
            .await
            .map_err(ChangeError::Tokens)?;
        let none = Stored::default();
        let stored = read.as_ref().map_or(&none, |read| &read.stored);
        let planned = plan(stored, &tokens).map_err(ChangeError::Refused)?;
        let written = store::write(client, namespace, read.as_ref(), &planned)
            .await
            .map_err(ChangeError::Secret)?;
        match written {
            Written::Stored => return Ok(planned),
            Written::LostRace => contention::wait(began.elapsed(), lost).await,
        }
    }
    Err(ChangeError::Contended)
}
