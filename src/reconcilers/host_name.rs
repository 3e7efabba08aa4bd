//! Hosts: addresses and DNS names, as Nodes, certificates and server URLs spell them.

use std::fmt;
use std::net::IpAddr;

use crate::text::is_dns_name;

/// A DNS name of lower-case labels: nothing in it can change the structure of a YAML document.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DnsName(String);

/// Why a text is no DNS name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a DNS name (lower-case letters, digits and '-', labels of 1 to 63 separated by '.')")]
pub struct NotADnsName(String);

impl DnsName {
    /// Checks a name. One final dot is dropped.
    ///
    /// # Errors
    /// [`NotADnsName`] for anything that RFC 1123 does not call a host name, upper case included.
    pub fn new(name: &str) -> Result<Self, NotADnsName> {
        let bare = name.strip_suffix('.').unwrap_or(name);
        if is_dns_name(bare) {
            Ok(Self(bare.to_owned()))
        } else {
            Err(NotADnsName(name.to_owned()))
        }
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A host: an address or a DNS name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Host {
    /// An address.
    Address(IpAddr),
    /// A name.
    Name(DnsName),
}

impl Host {
    /// Reads an address (IPv6 with or without brackets) or a DNS name.
    ///
    /// # Errors
    /// [`NotADnsName`] if it is neither.
    pub fn new(text: &str) -> Result<Self, NotADnsName> {
        let bare = text.strip_prefix('[').and_then(|t| t.strip_suffix(']')).unwrap_or(text);
        match bare.parse() {
            Ok(address) => Ok(Self::Address(address)),
            Err(_) => DnsName::new(text).map(Self::Name),
        }
    }

    /// Reads what somebody else wrote, in the one form in which two hosts can be compared: an address that carries an
    /// IPv4 address is that address, and a name is lower-case without its final dot.
    ///
    /// # Errors
    /// [`NotADnsName`] if it is neither; an address with a zone (`fe80::1%eth0`) is no address for others.
    pub fn compared(text: &str) -> Result<Self, NotADnsName> {
        match Self::new(&text.to_ascii_lowercase())? {
            Self::Address(address) => Ok(Self::Address(address.to_canonical())),
            name @ Self::Name(_) => Ok(name),
        }
    }
}

impl fmt::Display for Host {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => write!(formatter, "{address}"),
            Self::Name(name) => formatter.write_str(name.as_str()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_spellings_of_a_host_are_one() {
        for (one, other) in [
            ("N1.Example.COM.", "n1.example.com"),
            ("fd00:0:0::1", "fd00::1"),
            ("::ffff:10.0.0.5", "10.0.0.5"),
            ("[fd00::1]", "FD00::1"),
        ] {
            assert_eq!(
                Host::compared(one).unwrap(),
                Host::compared(other).unwrap(),
                "{one} {other}"
            );
        }
        assert_ne!(
            Host::compared("10.0.0.5").unwrap(),
            Host::compared("10.0.0.50").unwrap()
        );
        for no in [
            "",
            ".",
            "fe80::1%eth0",
            "*.example.com",
            "a b",
            "a\0.example.com",
            "a\n",
            "a_b",
            "-a",
            "a..b",
        ] {
            assert!(Host::compared(no).is_err(), "{no:?}");
        }
        assert_eq!(Host::compared("A.b.").unwrap().to_string(), "a.b");
    }
}
