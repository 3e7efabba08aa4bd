//! Who a certificate is about: the subject, and the names it may serve.

use std::fmt;
use std::net::IpAddr;

use super::der;

/// The subject of a leaf. Kubernetes reads it as user (common name) and groups (organizations).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Subject {
    /// CN
    pub common_name: String,
    /// O, any number of them, in this order.
    pub organizations: Vec<String>,
}

impl Subject {
    /// A user without groups.
    pub fn user(common_name: impl Into<String>) -> Self {
        Self {
            common_name: common_name.into(),
            organizations: Vec::new(),
        }
    }

    /// The same with one more group.
    #[must_use]
    pub fn in_group(mut self, organization: impl Into<String>) -> Self {
        self.organizations.push(organization.into());
        self
    }

    /// The name as it stands in a certificate: one relative name for each attribute (RFC 5280, section 4.1.2.4).
    pub(super) fn to_der(&self) -> Vec<u8> {
        let organizations = self.organizations.iter().map(|value| (ORGANIZATION, value));
        let attributes = organizations.chain([(COMMON_NAME, &self.common_name)]);
        let relative: Vec<Vec<u8>> = attributes.map(|(kind, value)| relative_name(kind, value)).collect();
        let parts: Vec<&[u8]> = relative.iter().map(Vec::as_slice).collect();
        der::element(der::SEQUENCE, &parts)
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for organization in &self.organizations {
            write!(formatter, "O={organization}, ")?;
        }
        write!(formatter, "CN={}", self.common_name)
    }
}

/// A subject alternative name a server may be reached by.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AlternativeName {
    /// A host name.
    Dns(String),
    /// An address; an IPv4 address mapped into IPv6 is written as IPv4, which is what clients ask for.
    Ip(IpAddr),
    /// Something else that was found in a certificate, as text; never written.
    Other(String),
}

impl AlternativeName {
    /// A host name.
    pub fn dns(name: impl Into<String>) -> Self {
        Self::Dns(name.into())
    }

    /// An address, also in brackets, or a host name: as clients compare it, in lower case and without the dot of the root.
    #[must_use]
    pub fn host(text: &str) -> Self {
        let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        match bare.unwrap_or(text).parse::<IpAddr>() {
            Ok(address) => Self::ip(address),
            Err(_) => Self::dns(text.trim_end_matches('.').to_ascii_lowercase()),
        }
    }

    /// An address.
    pub fn ip(address: impl Into<IpAddr>) -> Self {
        Self::Ip(address.into().to_canonical())
    }
}

impl fmt::Display for AlternativeName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dns(name) | Self::Other(name) => formatter.write_str(name),
            Self::Ip(address) => write!(formatter, "{address}"),
        }
    }
}

/// 2.5.4.3
const COMMON_NAME: &[u8] = &[0x55, 4, 3];
/// 2.5.4.10
const ORGANIZATION: &[u8] = &[0x55, 4, 10];

fn relative_name(kind: &[u8], value: &str) -> Vec<u8> {
    let kind = der::element(der::OBJECT_IDENTIFIER, &[kind]);
    let value = der::element(der::UTF8_STRING, &[value.as_bytes()]);
    der::element(der::SET, &[&der::element(der::SEQUENCE, &[&kind, &value])])
}
