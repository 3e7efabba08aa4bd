//! Private keys: the only place where they, and the serial numbers of certificates, are made.
//!
//! A key leaves this file only as [`SecretPem`]. Written as PKCS#8; read as PKCS#8, PKCS#1 and SEC1, the latter also
//! behind an `EC PARAMETERS` block as `openssl ecparam -genkey` writes it.

use std::fmt;

use aws_lc_rs::encoding::{AsDer, Pkcs8V1Der};
use aws_lc_rs::rand::SecureRandom;
use aws_lc_rs::rsa;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, ECDSA_P384_SHA384_ASN1_SIGNING, EcdsaKeyPair};
use rcgen::{PublicKeyData, SigningKey};
use rustls_pki_types::PrivatePkcs8KeyDer;
use zeroize::{Zeroize, Zeroizing};

use super::der;

/// A key that could not be made or read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The cryptographic library refused, which it does only without a source of randomness.
    #[error("cannot make a {0} key")]
    Make(KeyKind),
    /// The file holds something, but no private key.
    #[error("no private key in the PEM data ({0})")]
    Missing(String),
    /// The file holds more than one private key.
    #[error("{0} private keys where one is expected")]
    Several(usize),
    /// The key is protected by a password.
    #[error("the private key is encrypted: decrypt it first (openssl pkey -in FILE -out DECRYPTED)")]
    Encrypted,
    /// A PEM block with the right label, whose content is no key of a kind known here.
    #[error("the {0} block holds no RSA key of 2048 to 8192 bits and no ECDSA key on P-256 or P-384")]
    Unsupported(String),
    /// Not PEM.
    #[error("the key file is not PEM")]
    Pem(#[source] pem::PemError),
}

/// Algorithm and size of a key.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    Hash,
    strum::Display,
    strum::EnumString,
    strum::EnumIter,
    serde::Serialize,
    serde::Deserialize,
)]
#[serde(try_from = "String", into = "String")]
#[strum(serialize_all = "kebab-case")]
pub enum KeyKind {
    /// ECDSA on the curve P-256: what is made unless something else is asked for.
    #[default]
    #[strum(serialize = "ecdsa-p256")]
    EcdsaP256,
    /// ECDSA on the curve P-384.
    #[strum(serialize = "ecdsa-p384")]
    EcdsaP384,
    /// RSA, 2048 bits.
    #[strum(serialize = "rsa-2048")]
    Rsa2048,
    /// RSA, 3072 bits.
    #[strum(serialize = "rsa-3072")]
    Rsa3072,
    /// RSA, 4096 bits; a larger key that was found counts as one.
    #[strum(serialize = "rsa-4096")]
    Rsa4096,
}

impl TryFrom<String> for KeyKind {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        name.parse().map_err(|_| format!("{name:?} is no kind of key"))
    }
}

impl From<KeyKind> for String {
    fn from(kind: KeyKind) -> Self {
        kind.to_string()
    }
}

impl KeyKind {
    /// Whether it is an RSA key, whose certificates also allow key encipherment.
    #[must_use]
    pub fn is_rsa(self) -> bool {
        match self {
            Self::EcdsaP256 | Self::EcdsaP384 => false,
            Self::Rsa2048 | Self::Rsa3072 | Self::Rsa4096 => true,
        }
    }
}

/// A private key. Cleared from memory when dropped; shows only its kind.
pub struct Key {
    pair: rcgen::KeyPair,
    kind: KeyKind,
}

impl Key {
    /// Makes a key. RSA takes 0.1 s and more.
    ///
    /// # Errors
    /// Only without a source of randomness.
    pub fn generate(kind: KeyKind) -> Result<Self, Error> {
        let rsa = |size| rcgen::KeyPair::generate_rsa_for(&rcgen::PKCS_RSA_SHA256, size);
        let pair = match kind {
            KeyKind::EcdsaP256 => rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256),
            KeyKind::EcdsaP384 => rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P384_SHA384),
            KeyKind::Rsa2048 => rsa(rcgen::RsaKeySize::_2048),
            KeyKind::Rsa3072 => rsa(rcgen::RsaKeySize::_3072),
            KeyKind::Rsa4096 => rsa(rcgen::RsaKeySize::_4096),
        };
        // The source says only that the library refused.
        let pair = pair.map_err(|_| Error::Make(kind))?;
        Ok(Self { pair, kind })
    }

    /// Reads the one private key in PEM data.
    ///
    /// # Errors
    /// When there is none, more than one, an encrypted one, or one of a kind not known here.
    pub fn from_pem(bytes: &[u8]) -> Result<Self, Error> {
        let (label, der) = block(bytes)?;
        Self::from_der(&der).ok_or(Error::Unsupported(label))
    }

    /// Whether the one private key in PEM data is that of `public_key`, a DER `SubjectPublicKeyInfo`. An RSA key is told by
    /// its modulus and exponent: that the rest of it fits is not proven, which takes a millisecond and more.
    ///
    /// # Errors
    /// As [`Key::from_pem`].
    pub fn belongs_to(bytes: &[u8], public_key: &[u8]) -> Result<bool, Error> {
        let (label, der) = block(bytes)?;
        if let Some(numbers) = rsa_numbers(&der) {
            if numbers[0].len() < SHORTEST_MODULUS {
                return Err(Error::Unsupported(label));
            }
            return Ok(rsa_public_numbers(public_key).is_some_and(|public| public == numbers));
        }
        let key = Self::from_der(&der).ok_or(Error::Unsupported(label))?;
        Ok(key.public_key_der() == public_key)
    }

    /// Algorithm and size.
    #[must_use]
    pub fn kind(&self) -> KeyKind {
        self.kind
    }

    /// The private key as a PKCS#8 PEM block.
    #[must_use]
    pub fn to_pem(&self) -> SecretPem {
        SecretPem(Zeroizing::new(self.pair.serialize_pem()))
    }

    /// The public key as a `PUBLIC KEY` PEM block.
    #[must_use]
    pub fn public_key_pem(&self) -> String {
        self.pair.public_key_pem()
    }

    /// The public key as DER `SubjectPublicKeyInfo`.
    #[must_use]
    pub fn public_key_der(&self) -> Vec<u8> {
        self.pair.subject_public_key_info()
    }

    /// A key of the same content, to hand to a part that owns its key.
    ///
    /// # Errors
    /// Never for a key that was made or read here.
    pub fn duplicate(&self) -> Result<Self, Error> {
        Self::from_pem(self.to_pem().expose().as_bytes())
    }

    pub(super) fn pair(&self) -> &rcgen::KeyPair {
        &self.pair
    }

    /// The signature of `message`, with SHA-2 of the size that belongs to the key.
    pub(super) fn sign(&self, message: &[u8]) -> Result<Vec<u8>, rcgen::Error> {
        self.pair.sign(message)
    }

    /// Any of the three encodings, brought to PKCS#8 so that one form is written.
    fn from_der(der: &[u8]) -> Option<Self> {
        let (pkcs8, kind) = ecdsa(der).or_else(|| rsa(der))?;
        let pair = rcgen::KeyPair::try_from(&PrivatePkcs8KeyDer::from(pkcs8.as_slice())).ok()?;
        Some(Self { pair, kind })
    }
}

impl Drop for Key {
    fn drop(&mut self) {
        self.pair.zeroize();
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Key({}, redacted)", self.kind)
    }
}

/// A private key as PEM text: for a file of mode 0600, or a client in this process. Shows nothing.
#[derive(Clone)]
pub struct SecretPem(Zeroizing<String>);

impl SecretPem {
    /// The text itself.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for SecretPem {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "SecretPem({} bytes, redacted)", self.0.len())
    }
}

/// The serial number of a certificate: positive and 16 bytes long, as RFC 5280, section 4.1.2.2, allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Serial([u8; 16]);

impl Serial {
    /// A random one; two never meet.
    ///
    /// # Errors
    /// Only without a source of randomness.
    pub fn random() -> Result<Self, Error> {
        let mut bytes = [0; 16];
        aws_lc_rs::rand::SystemRandom::new()
            .fill(&mut bytes)
            .map_err(|_| Error::Make(KeyKind::default()))?;
        // Not negative, and no leading zero that DER would drop.
        bytes[0] = bytes[0] & 0x3f | 0x40;
        Ok(Self(bytes))
    }

    /// Big-endian, most significant byte first.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// The one block of PEM data that holds a private key: its label and its content.
fn block(bytes: &[u8]) -> Result<(String, Zeroizing<Vec<u8>>), Error> {
    let text = String::from_utf8_lossy(bytes);
    // The second is how PKCS#1 and SEC1 say it: a header inside of the block.
    if text.contains("BEGIN ENCRYPTED PRIVATE KEY") || text.contains("Proc-Type: 4,ENCRYPTED") {
        return Err(Error::Encrypted);
    }
    let blocks = pem::parse_many(bytes).map_err(Error::Pem)?;
    let labels: Vec<String> = blocks.iter().map(|block| block.tag().to_owned()).collect();
    let mut keys = blocks.into_iter().filter(|block| block.tag().ends_with("PRIVATE KEY"));
    let Some(block) = keys.next() else {
        let found = if labels.is_empty() {
            "nothing found".to_owned()
        } else {
            format!("found {}", labels.join(", "))
        };
        return Err(Error::Missing(found));
    };
    match keys.count() {
        0 => {}
        more => return Err(Error::Several(more + 1)),
    }
    let label = block.tag().to_owned();
    Ok((label, Zeroizing::new(block.into_contents())))
}

/// As an INTEGER of DER: 2048 bits.
const SHORTEST_MODULUS: usize = 256;

/// rsaEncryption, 1.2.840.113549.1.1.1, as an element.
const RSA: &[u8] = &[6, 9, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 1];

/// Modulus and exponent of an RSA private key in PKCS#8 (RFC 5208) or PKCS#1 (RFC 8017, appendix A.1.2), as elements.
fn rsa_numbers(der: &[u8]) -> Option<[&[u8]; 2]> {
    let children = der::children(der)?;
    match children.as_slice() {
        [_version, algorithm, key, ..] if der::children(algorithm).is_some_and(|parts| parts.first() == Some(&RSA)) => {
            rsa_numbers(der::inside(key)?)
        }
        [_version, modulus, exponent, _private, _p, _q, _dp, _dq, _inverse] => Some([modulus, exponent]),
        _ => None,
    }
}

/// The same of a `SubjectPublicKeyInfo`.
fn rsa_public_numbers(der: &[u8]) -> Option<[&[u8]; 2]> {
    let [_algorithm, key] = der::children(der)?.try_into().ok()?;
    // The first byte counts unused bits.
    let numbers = der::children(der::inside(key)?.strip_prefix(&[0])?)?;
    numbers.try_into().ok()
}

type Encoded = (Zeroizing<Vec<u8>>, KeyKind);

fn ecdsa(der: &[u8]) -> Option<Encoded> {
    let curves = [
        (&ECDSA_P256_SHA256_ASN1_SIGNING, KeyKind::EcdsaP256),
        (&ECDSA_P384_SHA384_ASN1_SIGNING, KeyKind::EcdsaP384),
    ];
    curves.into_iter().find_map(|(curve, kind)| {
        let pair = EcdsaKeyPair::from_private_key_der(curve, der).ok()?;
        let pkcs8 = pair.to_pkcs8v1().ok()?;
        Some((Zeroizing::new(pkcs8.as_ref().to_vec()), kind))
    })
}

fn rsa(der: &[u8]) -> Option<Encoded> {
    let pair = rsa::KeyPair::from_pkcs8(der)
        .or_else(|_| rsa::KeyPair::from_der(der))
        .ok()?;
    let kind = match pair.public_modulus_len() * 8 {
        ..2048 => return None,
        2048..3072 => KeyKind::Rsa2048,
        3072..4096 => KeyKind::Rsa3072,
        4096.. => KeyKind::Rsa4096,
    };
    let pkcs8: Pkcs8V1Der<'_> = pair.as_der().ok()?;
    Some((Zeroizing::new(pkcs8.as_ref().to_vec()), kind))
}
