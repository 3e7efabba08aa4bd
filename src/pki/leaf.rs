//! Certificates of servers and clients, issued from a request that is a value.
//!
//! rcgen builds the certificate, but keeps one attribute of a kind in a name and re-encodes the signer's. So the two
//! names are put in as bytes (the signer's exactly as they stand in its own certificate), the result is signed again, and
//! nothing leaves this file that does not verify against the signer.

use jiff::{SignedDuration, Timestamp};
use rcgen::{
    CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyIdMethod, KeyUsagePurpose,
    SanType, SerialNumber,
};

use super::authority::Authority;
use super::certificate::{self, Certificate};
use super::key::{Key, Serial};
use super::name::{AlternativeName, Subject};
use super::{BACKDATE, date, der};

/// How long a leaf lives unless its request says otherwise: 365 days.
pub const LIFETIME: SignedDuration = SignedDuration::from_hours(365 * 24);

/// A leaf that was not issued.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The signer has expired or is not valid yet: whatever it signs, nobody accepts.
    #[error("the signer is valid from {not_before} to {not_after}, not now ({now})")]
    SignerOutOfDate {
        /// Start of the signer's life.
        not_before: Timestamp,
        /// End of the signer's life.
        not_after: Timestamp,
        /// The time that was given.
        now: Timestamp,
    },
    /// A name that cannot stand in a certificate.
    #[error("{0:?} cannot be a subject alternative name")]
    AlternativeName(String),
    /// The certificate could not be built.
    #[error("cannot build the certificate of {subject}")]
    Build {
        /// Whom it is for.
        subject: String,
        /// What the certificate library said.
        #[source]
        source: rcgen::Error,
    },
    /// The certificate library's output is not what X.509 says; nothing can be done with it.
    #[error("the certificate of {0} came out malformed")]
    Malformed(String),
    /// What was signed does not verify, and is thrown away.
    #[error("the certificate of {subject} does not verify against its signer")]
    Unverified {
        /// Whom it is for.
        subject: String,
        /// What does not fit.
        #[source]
        source: certificate::Error,
    },
}

/// What a leaf may be used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Usage {
    /// To stand for a server.
    Server,
    /// To stand for a client.
    Client,
}

/// What a leaf shall say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Whom it is for.
    pub subject: Subject,
    /// What a server is reached by; empty for clients.
    pub alternative_names: Vec<AlternativeName>,
    /// What it may be used for.
    pub usages: Vec<Usage>,
    /// How long it lives; cut short at the end of its signer.
    pub lifetime: SignedDuration,
}

impl Request {
    /// A client of [`LIFETIME`].
    #[must_use]
    pub fn client(subject: Subject) -> Self {
        Self {
            subject,
            alternative_names: Vec::new(),
            usages: vec![Usage::Client],
            lifetime: LIFETIME,
        }
    }

    /// A server of [`LIFETIME`].
    #[must_use]
    pub fn server(subject: Subject, alternative_names: Vec<AlternativeName>) -> Self {
        Self {
            subject,
            alternative_names,
            usages: vec![Usage::Server],
            lifetime: LIFETIME,
        }
    }
}

/// Issues the certificate of `key`'s public half.
///
/// # Errors
/// When the signer is out of date, a name is unusable, or the result does not verify against the signer.
pub fn issue(
    signer: &Authority,
    request: &Request,
    key: &Key,
    serial: Serial,
    now: Timestamp,
) -> Result<Certificate, Error> {
    let signed_by = signer.certificate();
    if !signed_by.is_in_date(now) {
        let (not_before, not_after) = (signed_by.details().not_before, signed_by.details().not_after);
        return Err(Error::SignerOutOfDate {
            not_before,
            not_after,
            now,
        });
    }
    let subject = request.subject.to_string();
    let params = params(signer, request, key, serial, now)?;
    let build = |source| Error::Build {
        subject: subject.clone(),
        source,
    };
    let template = params.signed_by(key.pair(), &issuer(signer)).map_err(build)?;
    let names = Names {
        issuer: signed_by.subject_der(),
        subject: &request.subject.to_der(),
    };
    let malformed = || Error::Malformed(subject.clone());
    let unsigned = with_names(template.der(), &names).ok_or_else(malformed)?;
    let signature = signer.key().sign(&unsigned.to_be_signed).map_err(build)?;
    let unverified = |source| Error::Unverified {
        subject: subject.clone(),
        source,
    };
    let certificate = Certificate::from_der(&unsigned.signed(&signature)).map_err(unverified)?;
    certificate.check_issued_by(signed_by).map_err(unverified)?;
    if certificate.public_key_der() != key.public_key_der() {
        return Err(malformed());
    }
    Ok(certificate)
}

fn params(
    signer: &Authority,
    request: &Request,
    key: &Key,
    serial: Serial,
    now: Timestamp,
) -> Result<CertificateParams, Error> {
    let mut params = CertificateParams::default();
    // Put in as bytes later. Were it empty here, the alternative names would be marked critical (RFC 5280, section 4.2.1.6).
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, "subject");
    // A quarter of a short life: it would else be due for renewal, by the share of its life that is left, when it begins.
    params.not_before = date(now - BACKDATE.min(request.lifetime / 4));
    params.not_after = date((now + request.lifetime).min(signer.certificate().details().not_after));
    params.serial_number = Some(SerialNumber::from_slice(serial.bytes()));
    params.is_ca = IsCa::ExplicitNoCa;
    params.subject_alt_names = request.alternative_names.iter().map(san).collect::<Result<_, _>>()?;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    if key.kind().is_rsa() {
        params.key_usages.push(KeyUsagePurpose::KeyEncipherment);
    }
    params.extended_key_usages = request.usages.iter().copied().map(purpose).collect();
    // A signer without an identifier has none that could be named.
    params.use_authority_key_identifier_extension = signer.certificate().details().key_id.is_some();
    Ok(params)
}

fn purpose(usage: Usage) -> ExtendedKeyUsagePurpose {
    match usage {
        Usage::Server => ExtendedKeyUsagePurpose::ServerAuth,
        Usage::Client => ExtendedKeyUsagePurpose::ClientAuth,
    }
}

fn san(name: &AlternativeName) -> Result<SanType, Error> {
    let refused = || Error::AlternativeName(name.to_string());
    match name {
        AlternativeName::Dns(dns) if dns.is_empty() => Err(refused()),
        AlternativeName::Dns(dns) => dns.as_str().try_into().map(SanType::DnsName).map_err(|_| refused()),
        AlternativeName::Ip(address) => Ok(SanType::IpAddress(address.to_canonical())),
        AlternativeName::Other(_) => Err(refused()),
    }
}

fn issuer(signer: &Authority) -> Issuer<'static, &rcgen::KeyPair> {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    if let Some(id) = &signer.certificate().details().key_id {
        params.key_identifier_method = KeyIdMethod::PreSpecified(id.clone());
    }
    Issuer::new(params, signer.key().pair())
}

struct Names<'a> {
    issuer: &'a [u8],
    subject: &'a [u8],
}

struct Unsigned {
    to_be_signed: Vec<u8>,
    algorithm: Vec<u8>,
}

impl Unsigned {
    /// `Certificate`, RFC 5280, section 4.1.
    fn signed(&self, signature: &[u8]) -> Vec<u8> {
        // The first byte counts unused bits.
        let signature = der::element(der::BIT_STRING, &[&[0], signature]);
        der::element(der::SEQUENCE, &[&self.to_be_signed, &self.algorithm, &signature])
    }
}

/// The content of `template` with other names. The order of the fields is that of `TBSCertificate`, RFC 5280, section
/// 4.1: version, serial number, signature, issuer, validity, subject, public key, extensions.
fn with_names(template: &[u8], names: &Names<'_>) -> Option<Unsigned> {
    let [to_be_signed, algorithm, _signature] = der::children(template)?.try_into().ok()?;
    let [
        version,
        serial,
        signature,
        _issuer,
        validity,
        _subject,
        public_key,
        extensions,
    ] = der::children(to_be_signed)?.try_into().ok()?;
    let fields = [
        version,
        serial,
        signature,
        names.issuer,
        validity,
        names.subject,
        public_key,
        extensions,
    ];
    Some(Unsigned {
        to_be_signed: der::element(der::SEQUENCE, &fields),
        algorithm: algorithm.to_vec(),
    })
}
