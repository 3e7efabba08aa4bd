//! Bootstrap tokens, as far as a grant depends on them: which there are, and until when.
//!
//! The rules are those of the API server's authenticator and of kube-controller-manager's token cleaner (Kubernetes,
//! `cluster-bootstrap/util/secrets`): both read the expiration the same way, and so a token that is dead here is dead there.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use jiff::{SignedDuration, Timestamp};

use crate::reconcilers::object::Uid;

/// The type of a bootstrap token's Secret.
pub const SECRET_TYPE: &str = "bootstrap.kubernetes.io/token";

/// How far a token's end has to lie back before its grant is dropped: the clock of this machine may be ahead of that of
/// the API server, which decides whether the token still works. A token that does not work any more opens nothing, so
/// that its entry stays a little longer costs nothing.
pub const SKEW: SignedDuration = SignedDuration::from_mins(5);

const PREFIX: &str = "bootstrap-token-";
const ID_LENGTH: usize = 6;

/// The public half of a bootstrap token: six characters of a-z and 0-9.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TokenId(String);

/// A text that is no token id.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a token id has six characters of a-z and 0-9, as in the part of a join token before the dot")]
pub struct NotATokenId;

impl TokenId {
    /// The id as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The name under which the API server looks for the token's Secret; nothing else is this token.
    #[must_use]
    pub fn secret_name(&self) -> String {
        format!("{PREFIX}{}", self.0)
    }

    /// The id in the name of a token's Secret; none for other names.
    #[must_use]
    pub fn of_secret(name: &str) -> Option<Self> {
        name.strip_prefix(PREFIX)?.parse().ok()
    }
}

impl FromStr for TokenId {
    type Err = NotATokenId;

    fn from_str(text: &str) -> Result<Self, NotATokenId> {
        let valid = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        if text.len() == ID_LENGTH && text.bytes().all(valid) {
            Ok(Self(text.to_owned()))
        } else {
            // Not repeated: somebody may have given the whole token, with its secret half.
            Err(NotATokenId)
        }
    }
}

impl fmt::Display for TokenId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// When a token ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expiration {
    /// It does not end by itself.
    Never,
    /// Then.
    At(Timestamp),
    /// Something is written there that is no time. It counts as the past.
    Unreadable,
}

impl Expiration {
    /// Reads the field `expiration` of a token's data: a time as RFC 3339 has it. No field, or an empty one: never.
    #[must_use]
    pub fn parse(field: Option<&[u8]>) -> Self {
        let text = match field {
            None | Some([]) => return Self::Never,
            Some(bytes) => std::str::from_utf8(bytes).unwrap_or_default(),
        };
        // jiff reads more than RFC 3339, such as a space for the T; the API server does not.
        if !is_rfc3339(text) {
            return Self::Unreadable;
        }
        text.parse().map_or(Self::Unreadable, Self::At)
    }
}

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

/// Whether the grant of a token is gone. `remembered` is the UID of the token it was minted for; none when its entry does
/// not tell, and then the id alone has to do.
#[must_use]
pub fn gone(id: &TokenId, remembered: Option<&Uid>, tokens: &Tokens, now: Timestamp) -> Option<Gone> {
    let token = match tokens.find(id) {
        Some(token) if !token.terminating => token,
        Some(_) | None => return Some(Gone::Revoked),
    };
    if remembered.is_some_and(|uid| *uid != token.uid) {
        return Some(Gone::Recreated);
    }
    match token.expiration {
        Expiration::Never => None,
        Expiration::At(end) => (now.duration_since(end) >= SKEW).then_some(Gone::Expired),
        Expiration::Unreadable => Some(Gone::ExpirationUnreadable),
    }
}

/// `2026-01-02T03:04:05Z`, with a fraction or an offset if need be (RFC 3339, section 5.6, as Go reads it).
fn is_rfc3339(text: &str) -> bool {
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let like = |part: &str, pattern: &str| {
        part.len() == pattern.len()
            && part.bytes().zip(pattern.bytes()).all(|(byte, wanted)| {
                if wanted == b'0' {
                    byte.is_ascii_digit()
                } else {
                    byte == wanted
                }
            })
    };
    let Some((whole, rest)) = text.split_at_checked("0000-00-00T00:00:00".len()) else {
        return false;
    };
    let zone_at = rest.find(['Z', '+', '-']).unwrap_or(rest.len());
    let (fraction, zone) = rest.split_at(zone_at);
    let fraction_fits = fraction.is_empty() || fraction.strip_prefix(['.', ',']).is_some_and(digits);
    let zone_fits = zone == "Z" || like(zone, "+00:00") || like(zone, "-00:00");
    like(whole, "0000-00-00T00:00:00") && fraction_fits && zone_fits
}
