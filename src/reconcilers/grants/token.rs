//! Bootstrap tokens, as far as a grant depends on them: which there are, and until when.
//!
//! The rules are those of the API server's authenticator and of kube-controller-manager's token cleaner (Kubernetes,
//! `cluster-bootstrap/util/secrets`): both read the expiration the same way, and so a token that is dead here is dead there.

use std::collections::BTreeMap;
use std::fmt;

use jiff::{SignedDuration, Timestamp};

pub use crate::reconcilers::bootstrap_token::{Expiration, NotATokenId, SECRET_TYPE, TokenId};
use crate::reconcilers::object::Uid;

/// How far a token's end has to lie back before its grant is dropped: the clock of this machine may be ahead of that of
/// the API server, which decides whether the token still works. A token that does not work any more opens nothing, so
/// that its entry stays a little longer costs nothing.
pub const SKEW: SignedDuration = SignedDuration::from_mins(5);

/// What is known of one token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// The UID of its Secret. A token that is made again under the same id has another one.
    pub uid: Uid,
    /// When it ends.
    pub expiration: Expiration,
    /// It is being deleted, which cannot be taken back; the API server does not accept it any more.
    pub terminating: bool,
}

/// All bootstrap tokens of the cluster, none left out, as they were at one moment that lies after the moment at which the
/// Secret with the grants was read. A list that failed, or that ends early, is not one of these, and neither is an older one:
/// it would not know the tokens of grants that were minted since, and they would be dropped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tokens(BTreeMap<TokenId, Token>);

impl Tokens {
    /// From a complete, consistent list.
    #[must_use]
    pub fn complete(all: impl IntoIterator<Item = (TokenId, Token)>) -> Self {
        Self(all.into_iter().collect())
    }

    /// The token of an id.
    #[must_use]
    pub fn find(&self, id: &TokenId) -> Option<&Token> {
        self.0.get(id)
    }
}

/// Why a grant is gone. The discriminant is a metric label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr, strum::EnumIter)]
#[strum(serialize_all = "snake_case")]
pub enum Gone {
    /// Its token was deleted.
    Revoked,
    /// Its token was deleted, and there is another one under the same id.
    Recreated,
    /// Its token has ended.
    Expired,
    /// The expiration of its token is no time.
    ExpirationUnreadable,
}

impl fmt::Display for Gone {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Revoked => "its bootstrap token was deleted",
            Self::Recreated => "its bootstrap token was deleted, and the one that has its id now is another",
            Self::Expired => "its bootstrap token has expired",
            Self::ExpirationUnreadable => "the expiration of its bootstrap token is no RFC 3339 time, so it is expired",
        })
    }
}

/// Whether the grant of a token is gone. `remembered` is the UID of the token it was minted for.
#[must_use]
pub fn gone(id: &TokenId, remembered: &Uid, tokens: &Tokens, now: Timestamp) -> Option<Gone> {
    let token = match tokens.find(id) {
        Some(token) if !token.terminating => token,
        Some(_) | None => return Some(Gone::Revoked),
    };
    if *remembered != token.uid {
        return Some(Gone::Recreated);
    }
    match token.expiration {
        Expiration::Never => None,
        Expiration::At(end) => (now.duration_since(end) >= SKEW).then_some(Gone::Expired),
        Expiration::Unreadable => Some(Gone::ExpirationUnreadable),
    }
}
