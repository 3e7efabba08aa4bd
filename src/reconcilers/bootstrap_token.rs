//! Bootstrap tokens: the two halves, and when one ends. Values only.
//!
//! The rules are those of the API server's authenticator and of kube-controller-manager (Kubernetes,
//! `cluster-bootstrap/token/api` and `cluster-bootstrap/util/secrets`): what is no token there is none here.

use std::fmt;
use std::str::FromStr;

use jiff::Timestamp;
use zeroize::Zeroizing;

/// The type of a bootstrap token's Secret.
pub const SECRET_TYPE: &str = "bootstrap.kubernetes.io/token";
/// Every bootstrap token acts as a member of this group.
pub const GROUP: &str = "system:bootstrappers";

const PREFIX: &str = "bootstrap-token-";
const ID_LENGTH: usize = 6;
const SECRET_LENGTH: usize = 16;
const ALPHABET: &[u8; 36] = b"abcdefghijklmnopqrstuvwxyz0123456789";

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

    /// The user that whoever has the token is, to the API server.
    #[must_use]
    pub fn user(&self) -> String {
        format!("system:bootstrap:{}", self.0)
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
        if is_half(text, ID_LENGTH) {
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

/// A whole bootstrap token, `ID.SECRET`. Its secret half shows nowhere and is cleared from memory when dropped.
#[derive(Clone, PartialEq, Eq)]
pub struct BootstrapToken {
    id: TokenId,
    secret: Zeroizing<String>,
}

/// A text that is no bootstrap token. The text is not repeated: it may be nearly one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a join token has six characters, a dot and sixteen characters, all of a-z and 0-9: copy it whole from what 'stratum token create' printed"
)]
pub struct NotABootstrapToken;

impl BootstrapToken {
    /// The token that these random bytes make; none when too many of them fall where the alphabet does not divide evenly.
    #[must_use]
    pub fn from_random(bytes: &[u8]) -> Option<Self> {
        // 252 is the last multiple of 36: past it the first four characters would be likelier than the others.
        let even = |byte: &&u8| usize::from(**byte) < 256 / ALPHABET.len() * ALPHABET.len();
        let mut characters = bytes
            .iter()
            .filter(even)
            .map(|byte| char::from(ALPHABET[usize::from(*byte) % ALPHABET.len()]));
        let id: String = characters.by_ref().take(ID_LENGTH).collect();
        let secret: Zeroizing<String> = Zeroizing::new(characters.take(SECRET_LENGTH).collect());
        let whole = secret.len() == SECRET_LENGTH;
        whole.then_some(Self {
            id: TokenId(id),
            secret,
        })
    }

    /// From the two halves as they stand in a Secret; none when either is none.
    #[must_use]
    pub fn from_halves(id: TokenId, secret: &str) -> Option<Self> {
        is_half(secret, SECRET_LENGTH).then(|| Self {
            id,
            secret: Zeroizing::new(secret.to_owned()),
        })
    }

    /// Its public half.
    #[must_use]
    pub fn id(&self) -> &TokenId {
        &self.id
    }

    /// Its secret half.
    #[must_use]
    pub fn expose_secret(&self) -> &str {
        &self.secret
    }

    /// The whole token, for the one moment at which a person or a file is told.
    #[must_use]
    pub fn expose(&self) -> Zeroizing<String> {
        Zeroizing::new(format!("{}.{}", self.id, *self.secret))
    }
}

impl FromStr for BootstrapToken {
    type Err = NotABootstrapToken;

    fn from_str(text: &str) -> Result<Self, NotABootstrapToken> {
        let (id, secret) = text.split_once('.').ok_or(NotABootstrapToken)?;
        let id = id.parse().map_err(|NotATokenId| NotABootstrapToken)?;
        Self::from_halves(id, secret).ok_or(NotABootstrapToken)
    }
}

impl fmt::Debug for BootstrapToken {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "BootstrapToken({}, redacted)", self.id)
    }
}

fn is_half(text: &str, length: usize) -> bool {
    text.len() == length && text.bytes().all(|byte| ALPHABET.contains(&byte))
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

    /// Whether the token does not work any more, to an API server whose clock says `now`.
    #[must_use]
    pub fn has_passed(self, now: Timestamp) -> bool {
        match self {
            Self::Never => false,
            Self::At(end) => now >= end,
            Self::Unreadable => true,
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_read_back_as_it_is_told_and_shows_only_its_id() {
        let token: BootstrapToken = "abc123.0123456789abcdef".parse().unwrap();
        assert_eq!(token.id().as_str(), "abc123");
        assert_eq!(token.id().user(), "system:bootstrap:abc123");
        assert_eq!(token.expose_secret(), "0123456789abcdef");
        assert_eq!(*token.expose(), "abc123.0123456789abcdef");
        assert_eq!(format!("{token:?}"), "BootstrapToken(abc123, redacted)");
    }

    #[test]
    fn what_is_no_token_is_refused_and_not_repeated() {
        for text in [
            "",
            ".",
            "abc123",
            "abc123.",
            ".0123456789abcdef",
            "abc123.0123456789abcde",
            "abc123.0123456789abcdeff",
            "abc12.0123456789abcdef",
            "abc1234.0123456789abcdef",
            "ABC123.0123456789abcdef",
            "abc123.0123456789abcdeF",
            "abc123.01234567.9abcdef",
            "abc123.0123456789abcdé",
            "abc123.0123456789abcdef\n",
            " abc123.0123456789abcdef",
        ] {
            let error = text.parse::<BootstrapToken>().unwrap_err().to_string();
            assert!(!error.contains("0123"), "{error}");
        }
    }

    #[test]
    fn each_character_is_as_likely_as_the_others() {
        let all: Vec<u8> = (0..=255).collect();
        // Without the last four bytes, each character is made by exactly seven.
        let mut made = std::collections::BTreeMap::<char, u32>::new();
        for start in (0..252).step_by(22) {
            let bytes: Vec<u8> = all.iter().copied().cycle().skip(start).take(22).collect();
            let Some(token) = BootstrapToken::from_random(&bytes) else {
                continue;
            };
            for character in token.expose().chars().filter(|character| *character != '.') {
                *made.entry(character).or_default() += 1;
            }
        }
        assert_eq!(made.len(), 36);
        assert!(made.values().all(|times| (6..=7).contains(times)), "{made:?}");
        assert!(BootstrapToken::from_random(&[255; 64]).is_none());
        assert!(BootstrapToken::from_random(&[0; 21]).is_none());
        let skipped = [&[255; 9][..], &[0; 22]].concat();
        let token = BootstrapToken::from_random(&skipped).unwrap();
        assert_eq!(*token.expose(), "aaaaaa.aaaaaaaaaaaaaaaa");
    }

    #[test]
    fn a_token_ends_in_the_moment_of_its_expiration() {
        let end: Timestamp = "2026-01-02T03:04:05Z".parse().unwrap();
        let before = end - jiff::SignedDuration::from_nanos(1);
        assert!(!Expiration::At(end).has_passed(before));
        assert!(Expiration::At(end).has_passed(end));
        assert!(!Expiration::Never.has_passed(end) && Expiration::Unreadable.has_passed(end));
    }
}
