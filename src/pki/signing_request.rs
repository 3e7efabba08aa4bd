//! A certificate signing request (PKCS#10, RFC 2986) as somebody sent it: parsed once, owned, and asked plain questions.
//!
//! Who sends one may be hostile. What a kubelet never asks for is an error here or a field to decide by, and never
//! ignored because the signer happens to ignore it. What this program asks for itself is made by [`make`].

mod make;

use x509_parser::asn1_rs::Tag;
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::cri_attributes::ParsedCriAttribute;
use x509_parser::extensions::{ParsedExtension, X509Extension};
use x509_parser::oid_registry::{
    OID_EC_P256, OID_NIST_EC_P384, OID_PKCS1_SHA1WITHRSA, OID_SHA1_WITH_RSA, OID_X509_COMMON_NAME,
    OID_X509_ORGANIZATION_NAME,
};
use x509_parser::prelude::FromDer;
use x509_parser::public_key::PublicKey;
use x509_parser::x509::{SubjectPublicKeyInfo, X509Name};

pub use make::{MakeError, make};

use super::certificate::alternative_name;
use super::name::AlternativeName;

/// Why bytes are no request that could be granted.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Not PEM.
    #[error("the request is not PEM")]
    Pem(#[source] pem::PemError),
    /// Not exactly one block.
    #[error("{0} PEM blocks where one is expected")]
    Blocks(usize),
    /// A block of another kind.
    #[error("a {0:?} block where a certificate request belongs")]
    Foreign(String),
    /// The block's content is no request, or more than one.
    #[error("the PEM block holds no certificate request: {0}")]
    Parse(String),
    /// A subject with something else than texts in CN and O.
    #[error("the subject holds {0}; a kubelet's has one CN and its O only")]
    Subject(String),
    /// An extension or attribute that stands there twice: which one counts is anybody's guess.
    #[error("{0} is requested twice")]
    Repeated(String),
    /// A key that no kubelet makes, or that is too weak or absurdly large.
    #[error("its key is {0}; granted are ECDSA on P-256 or P-384 and RSA of 2048 to 8192 bits")]
    Key(String),
    /// The signature does not prove that the sender has the key.
    #[error("its own signature does not verify: {0}")]
    Signature(String),
}

/// A request whose signature verifies with the key it carries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SigningRequest {
    /// Every CN of the subject.
    pub common_names: Vec<String>,
    /// Every O of the subject, in their order.
    pub organizations: Vec<String>,
    /// Subject alternative names, in their order, addresses as they were written.
    pub alternative_names: Vec<AlternativeName>,
    /// What it asks for besides.
    pub asks: Asks,
    /// Its public key, as DER `SubjectPublicKeyInfo`.
    pub public_key: Vec<u8>,
}

/// Extensions besides the alternative names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Asks {
    /// To be an authority, or to sign certificates or revocations.
    pub authority: bool,
    /// To stand for a client.
    pub client_auth: bool,
    /// To stand for a server.
    pub server_auth: bool,
    /// Any other purpose or extension, by its name or number.
    pub other: Vec<String>,
}

impl SigningRequest {
    /// Reads PEM data that holds exactly one request, and verifies its signature.
    ///
    /// # Errors
    /// The first thing that is wrong with it.
    pub fn from_pem(pem: &[u8]) -> Result<Self, Error> {
        let blocks = pem::parse_many(pem).map_err(Error::Pem)?;
        // The reader skips what it cannot make a block of.
        let begun = pem.windows(BEGIN.len()).filter(|window| *window == BEGIN).count();
        match blocks.as_slice() {
            [block] if begun == 1 && block.tag() == "CERTIFICATE REQUEST" => Self::from_der(block.contents()),
            [block] if begun == 1 => Err(Error::Foreign(block.tag().to_owned())),
            _ => Err(Error::Blocks(begun.max(blocks.len()))),
        }
    }

    /// Reads one DER request, and verifies its signature.
    ///
    /// # Errors
    /// The first thing that is wrong with it.
    pub fn from_der(der: &[u8]) -> Result<Self, Error> {
        let (rest, parsed) =
            X509CertificationRequest::from_der(der).map_err(|error| Error::Parse(error.to_string()))?;
        if !rest.is_empty() {
            return Err(Error::Parse("bytes after its end".to_owned()));
        }
        let info = &parsed.certification_request_info;
        check_key(&info.subject_pki)?;
        verify(&parsed)?;
        let mut request = Self {
            common_names: Vec::new(),
            organizations: Vec::new(),
            alternative_names: Vec::new(),
            asks: Asks::default(),
            public_key: info.subject_pki.raw.to_vec(),
        };
        request.take_subject(&info.subject)?;
        for extension in extensions(&parsed)? {
            request.take_extension(extension);
        }
        Ok(request)
    }

    fn take_subject(&mut self, subject: &X509Name<'_>) -> Result<(), Error> {
        for attribute in subject.iter_attributes() {
            let kind = attribute.attr_type();
            let value = attribute
                .as_str()
                .map_err(|_| Error::Subject(format!("a value of {kind} that is no text")))?;
            if *kind == OID_X509_COMMON_NAME {
                self.common_names.push(value.to_owned());
            } else if *kind == OID_X509_ORGANIZATION_NAME {
                self.organizations.push(value.to_owned());
            } else {
                return Err(Error::Subject(format!("attribute {kind}")));
            }
        }
        Ok(())
    }

    fn take_extension(&mut self, extension: &X509Extension<'_>) {
        match extension.parsed_extension() {
            ParsedExtension::SubjectAlternativeName(names) => {
                self.alternative_names = names.general_names.iter().map(alternative_name).collect();
            }
            ParsedExtension::BasicConstraints(constraints) => self.asks.authority |= constraints.ca,
            ParsedExtension::KeyUsage(usage) => self.asks.authority |= usage.key_cert_sign() || usage.crl_sign(),
            ParsedExtension::ExtendedKeyUsage(usage) => {
                self.asks.client_auth |= usage.client_auth;
                self.asks.server_auth |= usage.server_auth;
                let named = [
                    (usage.any, "any purpose"),
                    (usage.code_signing, "code signing"),
                    (usage.email_protection, "e-mail protection"),
                    (usage.time_stamping, "time stamping"),
                    (usage.ocsp_signing, "OCSP signing"),
                ];
                let named = named.into_iter().filter(|(asked, _)| *asked);
                self.asks.other.extend(named.map(|(_, name)| name.to_owned()));
                self.asks.other.extend(usage.other.iter().map(ToString::to_string));
            }
            _ => self.asks.other.push(format!("extension {}", extension.oid)),
        }
    }
}

const BEGIN: &[u8] = b"-----BEGIN ";

/// All requested extensions. RFC 2986 does not forbid a second list of them, and readers differ in which one they see.
fn extensions<'a>(parsed: &'a X509CertificationRequest<'a>) -> Result<&'a [X509Extension<'a>], Error> {
    let mut lists = parsed
        .certification_request_info
        .iter_attributes()
        .filter_map(|attribute| match attribute.parsed_attribute() {
            ParsedCriAttribute::ExtensionRequest(request) => Some(&request.extensions),
            ParsedCriAttribute::ChallengePassword(_) | ParsedCriAttribute::UnsupportedAttribute => None,
        });
    let Some(list) = lists.next() else {
        return Ok(&[]);
    };
    if lists.next().is_some() {
        return Err(Error::Repeated("the list of extensions".to_owned()));
    }
    for (index, extension) in list.iter().enumerate() {
        if list.iter().skip(index + 1).any(|other| other.oid == extension.oid) {
            return Err(Error::Repeated(format!("extension {}", extension.oid)));
        }
    }
    Ok(list)
}

fn check_key(key: &SubjectPublicKeyInfo<'_>) -> Result<(), Error> {
    let refused = |what: String| Err(Error::Key(what));
    match key.parsed() {
        Ok(PublicKey::RSA(rsa)) => match rsa.key_size() {
            2048..=8192 => Ok(()),
            bits => refused(format!("RSA of {bits} bits")),
        },
        Ok(PublicKey::EC(_)) => {
            let parameters = key.algorithm.parameters.as_ref();
            // Explicit parameters read as a nonsensical number otherwise.
            let named = parameters.filter(|parameters| parameters.tag() == Tag::Oid);
            let curve = named.and_then(|curve| curve.as_oid().ok());
            match curve {
                Some(curve) if curve == OID_EC_P256 || curve == OID_NIST_EC_P384 => Ok(()),
                Some(curve) => refused(format!("ECDSA on the curve {curve}")),
                None => refused("ECDSA on an unnamed curve".to_owned()),
            }
        }
        Ok(_) => refused(format!("of algorithm {}", key.algorithm.algorithm)),
        Err(error) => refused(format!("unreadable ({error})")),
    }
}

fn verify(parsed: &X509CertificationRequest<'_>) -> Result<(), Error> {
    let algorithm = &parsed.signature_algorithm.algorithm;
    // The library still verifies SHA-1, which proves nothing any more.
    if *algorithm == OID_PKCS1_SHA1WITHRSA || *algorithm == OID_SHA1_WITH_RSA {
        return Err(Error::Signature("it is made with SHA-1".to_owned()));
    }
    parsed
        .verify_signature()
        .map_err(|error| Error::Signature(error.to_string()))
}

#[cfg(test)]
pub(crate) mod kit;
#[cfg(test)]
mod tests;
