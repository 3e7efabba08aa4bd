//! Minting a grant on the API server, with the rights of an administrator.

use std::collections::BTreeMap;

use kube::Client;

use super::changing::{ChangeError, change};
use crate::host::{clock, entropy};
use crate::pki::seal::CertificateKey;
use crate::reconcilers::grants::material::Material;
use crate::reconcilers::grants::plan::{self, MintError, Wanted};
use crate::reconcilers::grants::token::{Gone, TokenId};

/// Why nothing was minted. The Secret is as it was.
pub type MintingError = ChangeError<MintError>;

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
    let plan = |stored: &plan::Stored, tokens: &_| {
        let wanted = Wanted {
            id,
            material,
            key,
            nonce: entropy::bytes(),
        };
        plan::mint(stored, tokens, &wanted, clock::now())
    };
    let update = change(client, namespace, plan).await?;
    Ok(Minted { dropped: update.drop })
}
