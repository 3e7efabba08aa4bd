//! Bytes sealed under a certificate key, for what joining controllers are handed through the cluster.
//!
//! A box is, one after the other: the form (1 byte), which key it needs (8 bytes), the length of the content (4 bytes,
//! big-endian), the nonce (12 bytes), the content under AES-256-GCM, and the tag (16 bytes). The tag covers everything
//! before the nonce and the context that the caller names, too. The second field is a keyed hash of a constant: it tells
//! a wrong key from a damaged box, which the tag alone cannot, and nothing else.
//!
//! Randomness is an argument. A nonce must never serve twice under one key; a random one does not, for any number of
//! boxes that fit into a cluster.

use std::fmt;
use std::str::FromStr;

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::hmac;
use zeroize::{Zeroize, Zeroizing};

/// The bytes of a certificate key.
pub const KEY_LENGTH: usize = 32;
/// The bytes of a nonce.
pub const NONCE_LENGTH: usize = 12;
/// How much longer a box is than its content.
pub const OVERHEAD: usize = 1 + IDENTITY_LENGTH + LENGTH_LENGTH + NONCE_LENGTH + TAG_LENGTH;

const FORM: u8 = 1;
const IDENTITY_LENGTH: usize = 8;
const LENGTH_LENGTH: usize = 4;
const TAG_LENGTH: usize = 16;

/// A box that could not be made or opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// More than fits.
    #[error("{0} bytes cannot be sealed in one piece")]
    TooLong(usize),
    /// The cryptographic library refused the key, which it does for none of this length.
    #[error("the cryptographic library refused the certificate key")]
    Library,
    /// The box ends early.
    #[error("it is cut off: {found} of {expected} bytes are there")]
    CutOff {
        /// The bytes that are there.
        found: usize,
        /// The bytes that were written, as far as the rest tells.
        expected: usize,
    },
    /// Another version of this program made it, or no version at all.
    #[error("it is no box of form {FORM} but begins with byte {found}: use the version of stratum that made it")]
    Form {
        /// The first byte.
        found: u8,
    },
    /// Another key is needed.
    #[error("it was sealed under another certificate key: use the one that was printed together with this token")]
    OtherKey,
    /// The tag does not fit.
    #[error("it was changed after it was sealed, or does not belong here")]
    Changed,
}

/// A text that is no certificate key. The text itself is not repeated: it may be nearly one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotACertificateKey {
    /// Too short or too long.
    #[error("a certificate key has 64 hexadecimal digits, and this text has {0} characters")]
    Length(usize),
    /// Something other than a digit.
    #[error("a certificate key has hexadecimal digits only, and character {0} of this text is none")]
    Digit(usize),
}

/// The key that grants are sealed under: 32 random bytes, shown to a person once, as 64 hexadecimal digits like kubeadm's.
/// Cleared from memory when dropped; shows nothing.
pub struct CertificateKey(Zeroizing<Box<[u8]>>);

impl CertificateKey {
    /// The key of these bytes, which have to be random.
    #[must_use]
    pub fn new(mut bytes: [u8; KEY_LENGTH]) -> Self {
        let key = Self(Zeroizing::new(bytes.into()));
        bytes.zeroize();
        key
    }

    /// The key as text, for the one moment at which a person is told.
    #[must_use]
    pub fn expose(&self) -> Zeroizing<String> {
        let mut text = Zeroizing::new(String::with_capacity(2 * KEY_LENGTH));
        for byte in self.0.iter() {
            for digit in [byte >> 4, byte & 0x0f] {
                text.push(char::from_digit(digit.into(), 16).unwrap_or_default());
            }
        }
        text
    }

    /// Which key this is, for whoever has none.
    fn identity(&self) -> [u8; IDENTITY_LENGTH] {
        let tag = hmac::sign(
            &hmac::Key::new(hmac::HMAC_SHA256, &self.0),
            b"stratum: identity of a certificate key",
        );
        let mut identity = [0; IDENTITY_LENGTH];
        identity.iter_mut().zip(tag.as_ref()).for_each(|(to, from)| *to = *from);
        identity
    }

    fn cipher(&self) -> Result<LessSafeKey, Error> {
        // The source says only that the library refused.
        let key = UnboundKey::new(&AES_256_GCM, &self.0).map_err(|_| Error::Library)?;
        Ok(LessSafeKey::new(key))
    }
}

impl FromStr for CertificateKey {
    type Err = NotACertificateKey;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let count = text.chars().count();
        if count != 2 * KEY_LENGTH {
            return Err(NotACertificateKey::Length(count));
        }
        let mut bytes = Zeroizing::new([0; KEY_LENGTH]);
        for (index, character) in text.chars().enumerate() {
            let digit = character.to_digit(16).and_then(|digit| u8::try_from(digit).ok());
            let digit = digit.ok_or(NotACertificateKey::Digit(index + 1))?;
            bytes[index / 2] = bytes[index / 2] << 4 | digit;
        }
        Ok(Self::new(*bytes))
    }
}

impl fmt::Debug for CertificateKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("CertificateKey(redacted)")
    }
}

/// Seals `content`, bound to `context`: it opens only where the same context is named.
///
/// # Errors
/// When the content has 4 GiB or more.
pub fn seal(key: &CertificateKey, nonce: [u8; NONCE_LENGTH], context: &[u8], content: &[u8]) -> Result<Vec<u8>, Error> {
    let length = u32::try_from(content.len()).map_err(|_| Error::TooLong(content.len()))?;
    let cipher = key.cipher()?;
    // Never moved by growing, which would leave a copy of the content behind.
    let mut sealed = Vec::with_capacity(content.len() + OVERHEAD);
    sealed.push(FORM);
    sealed.extend(key.identity());
    sealed.extend(length.to_be_bytes());
    let bound = [sealed.as_slice(), context].concat();
    sealed.extend(nonce);
    let head = sealed.len();
    sealed.extend(content);
    let nonce = Nonce::assume_unique_for_key(nonce);
    let Ok(tag) = cipher.seal_in_place_separate_tag(nonce, Aad::from(bound), &mut sealed[head..]) else {
        sealed.zeroize();
        return Err(Error::Library);
    };
    sealed.extend(tag.as_ref());
    Ok(sealed)
}

/// Opens what [`seal`] made under the same key, with the same context.
///
/// # Errors
/// When anything is not as it was sealed; no part of the content is returned then.
pub fn open(key: &CertificateKey, context: &[u8], sealed: &[u8]) -> Result<Zeroizing<Vec<u8>>, Error> {
    let cut_off = |content: usize| Error::CutOff {
        found: sealed.len(),
        expected: content.saturating_add(OVERHEAD),
    };
    let (form, rest) = sealed.split_first().ok_or_else(|| cut_off(0))?;
    if *form != FORM {
        return Err(Error::Form { found: *form });
    }
    let (identity, rest) = rest.split_first_chunk::<IDENTITY_LENGTH>().ok_or_else(|| cut_off(0))?;
    let (length, rest) = rest.split_first_chunk::<LENGTH_LENGTH>().ok_or_else(|| cut_off(0))?;
    let bound = [&sealed[..sealed.len() - rest.len()], context].concat();
    let length = usize::try_from(u32::from_be_bytes(*length)).unwrap_or(usize::MAX);
    let (nonce, rest) = rest
        .split_first_chunk::<NONCE_LENGTH>()
        .ok_or_else(|| cut_off(length))?;
    if *identity != key.identity() {
        return Err(Error::OtherKey);
    }
    let written = length.saturating_add(TAG_LENGTH);
    if rest.len() < written {
        return Err(cut_off(length));
    }
    if rest.len() > written {
        return Err(Error::Changed);
    }
    let mut content = Zeroizing::new(rest.to_vec());
    let nonce = Nonce::assume_unique_for_key(*nonce);
    key.cipher()?
        .open_in_place(nonce, Aad::from(bound), &mut content)
        .map_err(|_| Error::Changed)?;
    content.truncate(length);
    Ok(content)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONCE: [u8; NONCE_LENGTH] = [7; NONCE_LENGTH];

    fn key(byte: u8) -> CertificateKey {
        CertificateKey::new([byte; KEY_LENGTH])
    }

    #[test]
    fn what_was_sealed_opens_again() {
        for content in [&b""[..], b"x", &[0; 5000]] {
            let sealed = seal(&key(1), NONCE, b"here", content).unwrap();
            assert_eq!(sealed.len(), content.len() + OVERHEAD);
            assert_eq!(*open(&key(1), b"here", &sealed).unwrap(), content);
        }
    }

    #[test]
    fn nothing_of_the_content_shows() {
        let content = b"a secret that is long enough to be recognized";
        let sealed = seal(&key(1), NONCE, b"here", content).unwrap();
        assert!(
            !sealed
                .windows(8)
                .any(|part| content.windows(8).any(|secret| secret == part))
        );
        let other = seal(&key(1), [8; NONCE_LENGTH], b"here", content).unwrap();
        let (head, tail) = (1 + IDENTITY_LENGTH + LENGTH_LENGTH + NONCE_LENGTH, content.len());
        assert_ne!(sealed[head..head + tail], other[head..head + tail], "the nonce counts");
    }

    #[test]
    fn each_thing_that_is_wrong_is_told_as_what_it_is() {
        let sealed = seal(&key(1), NONCE, b"here", b"content").unwrap();
        let fails = |key: &CertificateKey, context: &[u8], sealed: &[u8]| open(key, context, sealed).unwrap_err();
        assert_eq!(fails(&key(2), b"here", &sealed), Error::OtherKey);
        assert_eq!(fails(&key(1), b"there", &sealed), Error::Changed);
        let longer = [&sealed[..], b"x"].concat();
        assert_eq!(fails(&key(1), b"here", &longer), Error::Changed);
        let mut other_form = sealed.clone();
        other_form[0] = b'{';
        assert_eq!(fails(&key(1), b"here", &other_form), Error::Form { found: b'{' });
        for length in 0..sealed.len() {
            let error = fails(&key(1), b"here", &sealed[..length]);
            assert!(
                matches!(error, Error::CutOff { found, expected } if found == length && expected > length),
                "{length}: {error}"
            );
        }
    }

    #[test]
    fn every_single_bit_counts() {
        let sealed = seal(&key(1), NONCE, b"here", b"content").unwrap();
        for index in 0..sealed.len() {
            for bit in 0..8 {
                let mut changed = sealed.clone();
                changed[index] ^= 1 << bit;
                assert!(open(&key(1), b"here", &changed).is_err(), "bit {bit} of byte {index}");
            }
        }
    }

    /// A box of the first form stays readable for later versions. This one was made by another library (Python's
    /// `cryptography`).
    #[test]
    fn the_form_is_what_it_was() {
        let sealed = seal(&key(1), NONCE, b"here", b"content").unwrap();
        assert_eq!(
            crate::pki::hexadecimal(&sealed),
            "017a62592bb38d64b900000007070707070707070707070707ee9c84d06ac0c55579229e98bdb0d2ea9cfb1fea987845"
        );
    }

    #[test]
    fn a_certificate_key_reads_back_as_it_is_told() {
        let text = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1eff";
        let key: CertificateKey = text.parse().unwrap();
        assert_eq!(*key.expose(), text);
        let upper: CertificateKey = text.to_uppercase().parse().unwrap();
        assert_eq!(*upper.expose(), text);
        assert_eq!(format!("{key:?}"), "CertificateKey(redacted)");
    }

    #[test]
    fn what_is_no_certificate_key_is_refused_and_not_repeated() {
        let digits = "0".repeat(63);
        for (text, error) in [
            (String::new(), NotACertificateKey::Length(0)),
            (digits.clone(), NotACertificateKey::Length(63)),
            (format!("{digits}00"), NotACertificateKey::Length(65)),
            (format!("{digits}g"), NotACertificateKey::Digit(64)),
            (format!("ü{digits}"), NotACertificateKey::Digit(1)),
            (format!("0 {}", &digits[1..]), NotACertificateKey::Digit(2)),
        ] {
            let found = text.parse::<CertificateKey>().unwrap_err();
            assert_eq!(found, error);
            assert!(!found.to_string().contains("000"), "{found}");
        }
    }
}
