//! The requests this program sends itself.

use rcgen::{CertificateParams, DistinguishedName, DnType};

use super::super::key::Key;
use super::super::name::Subject;

/// A request that cannot be made.
#[derive(Debug, thiserror::Error)]
#[error("cannot make a certificate request for {subject}")]
pub struct MakeError {
    subject: String,
    #[source]
    source: rcgen::Error,
}

/// A request for a certificate of `subject` over the public half of `key`, without alternative names, as PEM. Of several
/// groups only the last would be kept: a subject here has one.
///
/// # Errors
/// When the key cannot sign.
pub fn make(key: &Key, subject: &Subject) -> Result<String, MakeError> {
    let failed = |source| MakeError {
        subject: subject.to_string(),
        source,
    };
    let mut name = DistinguishedName::new();
    for organization in &subject.organizations {
        name.push(DnType::OrganizationName, organization.as_str());
    }
    name.push(DnType::CommonName, subject.common_name.as_str());
    let mut params = CertificateParams::default();
    params.distinguished_name = name;
    let request = params.serialize_request(key.pair()).map_err(failed)?;
    request.pem().map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::super::SigningRequest;
    use super::*;
    use crate::pki::key::KeyKind;

    #[test]
    fn a_request_says_what_a_kubelets_says() {
        let key = Key::generate(KeyKind::EcdsaP256).unwrap();
        let subject = Subject::user("system:node:a").in_group("system:nodes");
        let pem = make(&key, &subject).unwrap();
        let read = SigningRequest::from_pem(pem.as_bytes()).unwrap();
        assert_eq!(
            (read.common_names, read.organizations),
            (vec!["system:node:a".to_owned()], vec!["system:nodes".to_owned()])
        );
        assert!(read.alternative_names.is_empty());
    }
}
