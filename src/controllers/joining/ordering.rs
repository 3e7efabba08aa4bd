//! `stratum token create` as one function: a token, what it may do, the sealed keys for a controller, and the signature by
//! which its bearer knows the cluster.
//!
//! What can be refused is refused before anything is made; what was made is taken away again when a later step fails, so
//! that no token is left that nobody was told of.

use jiff::Timestamp;
use kube::Client;

use super::publishing::{self, PublishError};
use super::tokens::{self, CreateError};
use crate::controllers::grants::guard::{GuardError, guard_rekey};
use crate::controllers::grants::minting::{self, MintingError};
use crate::host::entropy;
use crate::pki::pin::{Pin, pins};
use crate::pki::seal::CertificateKey;
use crate::reconcilers::bootstrap_token::BootstrapToken;
use crate::reconcilers::election::fence;
use crate::reconcilers::grants;
use crate::reconcilers::grants::material::Material;
use crate::reconcilers::joining::access;
use crate::reconcilers::joining::cluster_info::{self, KUBECONFIG, Malformed};
use crate::reconcilers::joining::token::{Kind, Life};
use crate::reconcilers::object::Uid;

/// What is asked for.
#[derive(Debug)]
pub struct Order<'a> {
    /// What the bearer becomes.
    pub joiner: Joiner<'a>,
    /// How long the token lives; none: as its kind usually does.
    pub life: Option<Life>,
    /// What it is for, in somebody's words.
    pub description: Option<&'a str>,
    /// The authorities that the bearer will look for: those of this node.
    pub pins: &'a [Pin],
}

/// Whom a token is for.
#[derive(Debug)]
pub enum Joiner<'a> {
    /// A worker.
    Worker,
    /// A controller, which is handed this.
    Controller(&'a Material),
}

impl Joiner<'_> {
    fn kind(&self) -> Kind {
        match self {
            Self::Worker => Kind::Worker,
            Self::Controller(_) => Kind::Controller,
        }
    }
}

/// What was made.
#[derive(Debug)]
pub struct Ordered {
    /// The token.
    pub token: BootstrapToken,
    /// When it ends; none: never.
    pub end: Option<Timestamp>,
    /// What opens the grant of a controller.
    pub certificate_key: Option<CertificateKey>,
}

/// Why there is no token.
#[derive(Debug, thiserror::Error)]
pub enum OrderError {
    /// The CAs are being replaced.
    #[error(transparent)]
    Guard(#[from] GuardError),
    /// cluster-info, or a right of the joiner.
    #[error(transparent)]
    Publish(#[from] PublishError),
    /// cluster-info cannot be read.
    #[error(
        "what cluster-info publishes cannot be used, so nobody could join; 'stratum up' on a controller publishes it again"
    )]
    Malformed(#[source] Malformed),
    /// Joiners would find another authority than the one they are told to.
    #[error(
        "cluster-info names other CAs than this node has, so nobody could join: this node missed a CA rotation, or 'stratum up' has not published the new CA yet"
    )]
    OtherAuthority,
    /// The token itself.
    #[error(transparent)]
    Token(#[from] CreateError),
    /// The grant.
    #[error(transparent)]
    Mint(#[from] MintingError),
}

/// Makes a token and everything that belongs to it. `now` begins its life.
///
/// # Errors
/// When a CA rotation is open, cluster-info is not as it should be, or the API server does not answer. No token is left
/// then, unless the API server cannot be reached any more.
pub async fn order(client: &Client, namespace: &str, order: &Order<'_>, now: Timestamp) -> Result<Ordered, OrderError> {
    guard_rekey(client, namespace).await?;
    check_published(client, order.pins).await?;
    for declared in access::standing(namespace, grants::NAME, fence::NAME) {
        publishing::apply(client, &declared).await?;
    }
    let kind = order.joiner.kind();
    let end = order.life.unwrap_or(kind.usual_life()).end(now);
    let (token, uid) = tokens::create(client, namespace, kind, end, order.description).await?;
    match complete(client, namespace, order, &token, &uid).await {
        Ok(certificate_key) => Ok(Ordered {
            token,
            end,
            certificate_key,
        }),
        Err(error) => {
            // What is told is why; a token that is left ends by itself, and its entry with it.
            let _ = tokens::delete(client, namespace, token.id()).await;
            Err(error)
        }
    }
}

async fn complete(
    client: &Client,
    namespace: &str,
    order: &Order<'_>,
    token: &BootstrapToken,
    uid: &Uid,
) -> Result<Option<CertificateKey>, OrderError> {
    let key = match &order.joiner {
        Joiner::Worker => None,
        Joiner::Controller(material) => {
            let binding = access::controller_binding(namespace, token.id(), uid);
            publishing::apply(client, &binding).await?;
            let key = CertificateKey::new(entropy::bytes());
            minting::mint(client, namespace, token.id(), &key, material).await?;
            Some(key)
        }
    };
    publishing::sign_cluster_info(client, namespace).await?;
    Ok(key)
}

/// Whether what is published leads to an authority that joiners are told of.
async fn check_published(client: &Client, told: &[Pin]) -> Result<(), OrderError> {
    let data = publishing::read_cluster_info(client)
        .await?
        .ok_or(PublishError::Missing)?;
    let content = data.get(KUBECONFIG).ok_or(PublishError::Missing)?;
    let published = cluster_info::parse(content).map_err(OrderError::Malformed)?;
    if pins(&published.bundle).iter().any(|pin| told.contains(pin)) {
        Ok(())
    } else {
        Err(OrderError::OtherAuthority)
    }
}
