//! A certificate as it was found: parsed once, owned, and asked plain questions.

use std::net::IpAddr;

use jiff::{SignedDuration, Timestamp};
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::prelude::{FromDer, X509Certificate};

use super::name::AlternativeName;

/// What is wrong with certificate data, or with a certificate's claim to come from a signer.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Not PEM.
    #[error("the certificate file is not PEM")]
    Pem(#[source] pem::PemError),
    /// Empty, cut off, or with bytes before the first block that hide it (a byte order mark does).
    #[error("no certificate in the PEM data")]
    Missing,
    /// A block of another kind among certificates, a private key for example.
    #[error("a {0} block where only certificates belong")]
    Foreign(String),
    /// More than one certificate where exactly one belongs (a signer's file, for example).
    #[error("{0} certificates where one is expected")]
    Several(usize),
    /// The content of the block is no certificate.
    #[error("the certificate cannot be parsed")]
    Parse(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The issuer field is not, byte for byte, the signer's subject; strict verifiers would not find the signer.
    #[error("the certificate names another issuer than the signer's subject")]
    OtherIssuer,
    /// The authority key identifier is another one than the signer's.
    #[error("the certificate names another signing key than the signer's")]
    OtherSigningKey,
    /// The signature does not verify with the signer's key.
    #[error("the certificate was not signed by the signer's key")]
    Signature(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// One certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificate {
    der: Vec<u8>,
    subject: Vec<u8>,
    issuer: Vec<u8>,
    public_key: Vec<u8>,
    details: Details,
}

/// The fields of a certificate that decisions are made on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Details {
    /// CN of the subject; the first one if there are several.
    pub common_name: Option<String>,
    /// Every O of the subject, in their order.
    pub organizations: Vec<String>,
    /// Subject alternative names, in their order.
    pub alternative_names: Vec<AlternativeName>,
    /// First second of its life.
    pub not_before: Timestamp,
    /// Last second of its life.
    pub not_after: Timestamp,
    /// Serial number, big-endian, without leading zeros.
    pub serial: Vec<u8>,
    /// Subject key identifier.
    pub key_id: Option<Vec<u8>>,
    /// Key identifier of the signer, as the certificate claims it.
    pub authority_key_id: Option<Vec<u8>>,
    /// Basic constraints say that it is an authority.
    pub is_ca: bool,
    /// It may sign certificates: an authority whose key usage, if it has one, says so.
    pub may_sign: bool,
    /// It may stand for a server.
    pub server_auth: bool,
    /// It may stand for a client.
    pub client_auth: bool,
}

impl Certificate {
    /// Parses one DER certificate.
    ///
    /// # Errors
    /// When it is none, or when bytes follow it.
    pub fn from_der(der: &[u8]) -> Result<Self, Error> {
        let (rest, parsed) = X509Certificate::from_der(der).map_err(|error| Error::Parse(Box::new(error)))?;
        if !rest.is_empty() {
            return Err(Error::Parse("bytes after its end".into()));
        }
        Ok(Self {
            der: der.to_vec(),
            subject: parsed.subject().as_raw().to_vec(),
            issuer: parsed.issuer().as_raw().to_vec(),
            public_key: parsed.public_key().raw.to_vec(),
            details: details(&parsed)?,
        })
    }

    /// Reads PEM data that holds exactly one certificate and nothing else.
    ///
    /// # Errors
    /// Says what else it holds.
    pub fn from_pem(pem: &[u8]) -> Result<Self, Error> {
        let mut bundle = Self::bundle_from_pem(pem)?;
        match (bundle.pop(), bundle.len()) {
            (Some(certificate), 0) => Ok(certificate),
            (Some(_), others) => Err(Error::Several(others + 1)),
            (None, _) => Err(Error::Missing),
        }
    }

    /// Reads PEM data that holds at least one certificate and nothing else.
    ///
    /// # Errors
    /// When there is none, a foreign block, or one that does not parse: a bundle is never silently shortened.
    pub fn bundle_from_pem(pem: &[u8]) -> Result<Vec<Self>, Error> {
        let blocks = pem::parse_many(pem).map_err(Error::Pem)?;
        // The reader skips what it cannot make a block of; a block that was begun and not read is damage, not absence.
        let begun = pem.windows(BEGIN.len()).filter(|window| *window == BEGIN).count();
        if blocks.is_empty() || blocks.len() != begun {
            return Err(Error::Missing);
        }
        let certificate = |block: &pem::Pem| match block.tag() {
            "CERTIFICATE" => Self::from_der(block.contents()),
            other => Err(Error::Foreign(other.to_owned())),
        };
        blocks.iter().map(certificate).collect()
    }

    /// Its DER bytes.
    #[must_use]
    pub fn der(&self) -> &[u8] {
        &self.der
    }

    /// As one PEM block with a final newline.
    #[must_use]
    pub fn to_pem(&self) -> String {
        let config = pem::EncodeConfig::new().set_line_ending(pem::LineEnding::LF);
        pem::encode_config(&pem::Pem::new("CERTIFICATE", self.der.clone()), config)
    }

    /// Its subject, as the DER bytes that stand in it.
    #[must_use]
    pub fn subject_der(&self) -> &[u8] {
        &self.subject
    }

    /// Its public key, as DER `SubjectPublicKeyInfo`.
    #[must_use]
    pub fn public_key_der(&self) -> &[u8] {
        &self.public_key
    }

    /// The parsed fields.
    #[must_use]
    pub fn details(&self) -> &Details {
        &self.details
    }

    /// Whether `at` lies in its life.
    #[must_use]
    pub fn is_in_date(&self, at: Timestamp) -> bool {
        (self.details.not_before..=self.details.not_after).contains(&at)
    }

    /// Whether it is time to renew it: less than 90 days, or a third of its life if that is shorter, are left.
    #[must_use]
    pub fn is_due(&self, now: Timestamp) -> bool {
        let life = self.details.not_after.duration_since(self.details.not_before);
        self.details.not_after.duration_since(now) <= RENEWAL_WINDOW.min(life / 3)
    }

    /// Checks that `signer` issued this certificate: names byte for byte, key identifiers, and the signature itself.
    /// Dates are not looked at.
    ///
    /// # Errors
    /// Says which of them does not fit.
    pub fn check_issued_by(&self, signer: &Self) -> Result<(), Error> {
        if self.issuer != signer.subject {
            return Err(Error::OtherIssuer);
        }
        if let (Some(claimed), Some(actual)) = (&self.details.authority_key_id, &signer.details.key_id)
            && claimed != actual
        {
            return Err(Error::OtherSigningKey);
        }
        let parse = |der| X509Certificate::from_der(der).map_err(|error| Error::Parse(Box::new(error)));
        let ((_, this), (_, signer)) = (parse(&self.der)?, parse(&signer.der)?);
        let verified = this.verify_signature(Some(signer.public_key()));
        verified.map_err(|error| Error::Signature(Box::new(error)))
    }
}

/// The longest time before its end at which a certificate is renewed.
pub const RENEWAL_WINDOW: SignedDuration = SignedDuration::from_hours(90 * 24);

const BEGIN: &[u8] = b"-----BEGIN ";

fn details(parsed: &X509Certificate<'_>) -> Result<Details, Error> {
    let mut details = Details {
        common_name: parsed.subject().iter_common_name().find_map(text),
        organizations: parsed.subject().iter_organization().filter_map(text).collect(),
        alternative_names: Vec::new(),
        not_before: timestamp(parsed.validity().not_before.timestamp())?,
        not_after: timestamp(parsed.validity().not_after.timestamp())?,
        serial: parsed.tbs_certificate.serial.to_bytes_be(),
        key_id: None,
        authority_key_id: None,
        is_ca: parsed.is_ca(),
        may_sign: parsed.is_ca(),
        server_auth: false,
        client_auth: false,
    };
    for extension in parsed.iter_extensions() {
        match extension.parsed_extension() {
            ParsedExtension::SubjectAlternativeName(names) => {
                details.alternative_names = names.general_names.iter().map(alternative_name).collect();
            }
            ParsedExtension::SubjectKeyIdentifier(id) => details.key_id = Some(id.0.to_vec()),
            ParsedExtension::AuthorityKeyIdentifier(id) => {
                details.authority_key_id = id.key_identifier.as_ref().map(|id| id.0.to_vec());
            }
            ParsedExtension::KeyUsage(usage) => details.may_sign = details.is_ca && usage.key_cert_sign(),
            ParsedExtension::ExtendedKeyUsage(usage) => {
                details.server_auth = usage.any || usage.server_auth;
                details.client_auth = usage.any || usage.client_auth;
            }
            _ => {}
        }
    }
    Ok(details)
}

fn text(attribute: &x509_parser::x509::AttributeTypeAndValue<'_>) -> Option<String> {
    attribute.as_str().ok().map(str::to_owned)
}

fn timestamp(seconds: i64) -> Result<Timestamp, Error> {
    Timestamp::from_second(seconds).map_err(|error| Error::Parse(Box::new(error)))
}

pub(super) fn alternative_name(name: &GeneralName<'_>) -> AlternativeName {
    match name {
        GeneralName::DNSName(name) => AlternativeName::dns(*name),
        GeneralName::IPAddress(bytes) => match (<[u8; 4]>::try_from(*bytes), <[u8; 16]>::try_from(*bytes)) {
            (Ok(four), _) => AlternativeName::Ip(IpAddr::from(four)),
            (_, Ok(sixteen)) => AlternativeName::Ip(IpAddr::from(sixteen)),
            (Err(_), Err(_)) => AlternativeName::Other(format!("{name:?}")),
        },
        _ => AlternativeName::Other(format!("{name:?}")),
    }
}
