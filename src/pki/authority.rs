//! A certificate authority: a certificate that may sign, and its key.

use jiff::{SignedDuration, Timestamp};
use rcgen::{BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, KeyUsagePurpose, SerialNumber};

use super::certificate::{self, Certificate};
use super::key::{self, Key, Serial};
use super::{BACKDATE, date, hexadecimal};

/// How long a new authority lives: ten years of 365 days.
pub const LIFETIME: SignedDuration = SignedDuration::from_hours(10 * 365 * 24);

/// An authority that could not be made or loaded.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The certificate could not be built.
    #[error("cannot make the certificate of the authority {name}")]
    Make {
        /// The authority's name.
        name: String,
        /// What the certificate library said.
        #[source]
        source: rcgen::Error,
    },
    /// The certificate file does not hold one readable certificate.
    #[error("the authority's certificate cannot be used")]
    Certificate(#[source] certificate::Error),
    /// The key file does not hold one readable key.
    #[error("the authority's key cannot be used")]
    Key(#[source] key::Error),
    /// The certificate belongs to a leaf, or to an authority that may not sign certificates.
    #[error("the certificate may not sign others: basic constraints or key usage forbid it")]
    MayNotSign,
    /// Certificate and key are of two different pairs.
    #[error("the authority's key does not belong to its certificate")]
    OtherKey,
}

/// A certificate authority.
#[derive(Debug)]
pub struct Authority {
    certificate: Certificate,
    key: Key,
}

impl Authority {
    /// Makes an authority that signs itself and lives for [`LIFETIME`]. Its common name is `name` and the first digits
    /// of its serial number: a new authority never repeats an old one's subject, over which some verifiers stumble.
    ///
    /// # Errors
    /// When the certificate cannot be built.
    pub fn make(name: &str, key: Key, serial: Serial, now: Timestamp) -> Result<Self, Error> {
        let digits: String = hexadecimal(serial.bytes()).chars().take(8).collect();
        let mut distinguished_name = DistinguishedName::new();
        distinguished_name.push(DnType::CommonName, format!("{name}-{digits}"));
        let mut params = CertificateParams::default();
        params.distinguished_name = distinguished_name;
        params.not_before = date(now - BACKDATE);
        params.not_after = date(now + LIFETIME);
        params.serial_number = Some(SerialNumber::from_slice(serial.bytes()));
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![
            KeyUsagePurpose::KeyCertSign,
            KeyUsagePurpose::CrlSign,
            KeyUsagePurpose::DigitalSignature,
        ];
        let signed = params.self_signed(key.pair()).map_err(|source| Error::Make {
            name: name.to_owned(),
            source,
        })?;
        Self::new(Certificate::from_der(signed.der()).map_err(Error::Certificate)?, key)
    }

    /// Loads an authority from two PEM files. Whether it is in date is asked when it signs.
    ///
    /// # Errors
    /// When the certificate file holds anything but one certificate that may sign, or the key is not its own.
    pub fn load(certificate_pem: &[u8], key_pem: &[u8]) -> Result<Self, Error> {
        let certificate = Certificate::from_pem(certificate_pem).map_err(Error::Certificate)?;
        Self::new(certificate, Key::from_pem(key_pem).map_err(Error::Key)?)
    }

    fn new(certificate: Certificate, key: Key) -> Result<Self, Error> {
        if !certificate.details().may_sign {
            return Err(Error::MayNotSign);
        }
        if certificate.public_key_der() != key.public_key_der() {
            return Err(Error::OtherKey);
        }
        Ok(Self { certificate, key })
    }

    /// Its certificate.
    #[must_use]
    pub fn certificate(&self) -> &Certificate {
        &self.certificate
    }

    /// Its key.
    #[must_use]
    pub fn key(&self) -> &Key {
        &self.key
    }
}
