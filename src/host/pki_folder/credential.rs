//! A credential that is written nowhere.

use std::path::PathBuf;

use jiff::{SignedDuration, Timestamp};

use super::Error;
use crate::pki::authority::Authority;
use crate::pki::key::{Key, KeyKind, SecretPem, Serial};
use crate::pki::leaf::{Request, issue};
use crate::pki::name::Subject;

/// A client certificate that is only in memory.
#[derive(Clone, Debug)]
pub struct Credential {
    /// The certificate, PEM.
    pub certificate: String,
    /// Its key.
    pub key: SecretPem,
}

/// Makes a client certificate of group `system:masters`, for the bindings without which no written credential may do
/// anything.
///
/// # Errors
/// When the authority cannot sign.
pub fn master(
    authority: &Authority,
    kind: KeyKind,
    lifetime: SignedDuration,
    now: Timestamp,
) -> Result<Credential, Error> {
    let path = || PathBuf::from("the bootstrap certificate");
    let unusable = |source| Error::Key { path: path(), source };
    let key = Key::generate(kind).map_err(unusable)?;
    let serial = Serial::random().map_err(unusable)?;
    let subject = Subject::user("stratum:bootstrap").in_group("system:masters");
    let request = Request {
        lifetime,
        ..Request::client(subject)
    };
    let certificate = issue(authority, &request, &key, serial, now);
    let certificate = certificate.map_err(|source| Error::Issue { path: path(), source })?;
    Ok(Credential {
        certificate: certificate.to_pem(),
        key: key.to_pem(),
    })
}
