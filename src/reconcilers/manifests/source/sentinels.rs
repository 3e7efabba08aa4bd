//! Whole tokens `@stratum:NAME@` in a file, and the cluster's values that take their place.
//!
//! The replacement is of text, before the YAML is read: YAML does not let a plain scalar start with `@`, so a token
//! that stands unquoted has to be gone by then. That is safe because every value is a checked type: none can hold a
//! line break, a quote or a `: ` that would change the structure of the document.

use std::collections::BTreeSet;
use std::net::IpAddr;

use strum::IntoEnumIterator;

use super::{SourceError, SourceErrorKind};
use crate::reconcilers::host_name::{DnsName, Host};

const OPEN: &str = "@stratum:";

/// A value of the cluster that a manifest may ask for.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    strum::EnumIter,
    strum::EnumString,
    strum::IntoStaticStr,
    strum::Display,
)]
#[strum(serialize_all = "kebab-case")]
pub enum Sentinel {
    /// Host of the server URL in kube-public/cluster-info.
    ApiserverHost,
    /// Port of the server URL in kube-public/cluster-info.
    ApiserverPort,
    /// Address of the cluster's DNS Service.
    ClusterDns,
    /// DNS domain of the cluster.
    ClusterDomain,
    /// Whether the cluster has two address families.
    DualStack,
    /// Whether the bundled storage provides the default StorageClass.
    StorageDefault,
}

/// What the cluster state resolves; `None` refuses the files that need it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SentinelValues {
    /// [`Sentinel::ApiserverHost`].
    pub apiserver_host: Option<Host>,
    /// [`Sentinel::ApiserverPort`].
    pub apiserver_port: Option<u16>,
    /// [`Sentinel::ClusterDns`].
    pub cluster_dns: Option<IpAddr>,
    /// [`Sentinel::ClusterDomain`].
    pub cluster_domain: Option<DnsName>,
    /// [`Sentinel::DualStack`].
    pub dual_stack: Option<bool>,
    /// [`Sentinel::StorageDefault`].
    pub storage_default: Option<bool>,
}

impl SentinelValues {
    /// The text that takes a token's place.
    #[must_use]
    pub fn text(&self, sentinel: Sentinel) -> Option<String> {
        match sentinel {
            Sentinel::ApiserverHost => self.apiserver_host.as_ref().map(|host| match host {
                Host::Address(address) => address.to_string(),
                Host::Name(name) => name.as_str().to_owned(),
            }),
            Sentinel::ApiserverPort => self.apiserver_port.map(|v| v.to_string()),
            Sentinel::ClusterDns => self.cluster_dns.map(|v| v.to_string()),
            Sentinel::ClusterDomain => self.cluster_domain.as_ref().map(|v| v.as_str().to_owned()),
            Sentinel::DualStack => self.dual_stack.map(|v| v.to_string()),
            Sentinel::StorageDefault => self.storage_default.map(|v| v.to_string()),
        }
    }
}

/// One place in a text that starts like a token.
struct Token<'a> {
    start: usize,
    end: usize,
    /// What stands between the opening and the closing `@`; `None` if nothing closes it.
    name: Option<&'a str>,
}

fn tokens(text: &str) -> impl Iterator<Item = Token<'_>> {
    text.match_indices(OPEN).map(|(start, open)| {
        let rest = &text[start + open.len()..];
        let length = rest
            .bytes()
            .take_while(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
            .count();
        let name = (rest.as_bytes().get(length) == Some(&b'@')).then(|| &rest[..length]);
        Token {
            start,
            end: start + open.len() + length + usize::from(name.is_some()),
            name,
        }
    })
}

/// The sentinels a text asks for. Unknown and unclosed ones are left to [`replace`], which refuses them.
#[must_use]
pub fn sentinels_in(text: &str) -> BTreeSet<Sentinel> {
    tokens(text).filter_map(|token| token.name?.parse().ok()).collect()
}

/// Puts the values in the tokens' place.
pub(super) fn replace(file: &str, text: String, values: &SentinelValues) -> Result<String, SourceError> {
    if !text.contains(OPEN) {
        return Ok(text);
    }
    let mut out = String::with_capacity(text.len());
    let mut done = 0;
    for token in tokens(&text) {
        let refuse = |message: String| SourceError {
            file: file.to_owned(),
            line: Some(1 + text[..token.start].matches('\n').count()),
            kind: SourceErrorKind::UnresolvedSentinel,
            message,
        };
        let shown = &text[token.start..token.end];
        let Some(sentinel) = token.name.and_then(|name| name.parse::<Sentinel>().ok()) else {
            let known: Vec<&str> = Sentinel::iter().map(Into::into).collect();
            let hint = if token.name.is_some() {
                "is not known"
            } else {
                "has no closing @"
            };
            return Err(refuse(format!(
                "{shown} {hint}; write @stratum:NAME@ with NAME one of {}",
                known.join(", ")
            )));
        };
        let Some(value) = values.text(sentinel) else {
            return Err(refuse(format!(
                "the cluster state has no value for {shown} yet; {}",
                remedy(sentinel)
            )));
        };
        out.push_str(&text[done..token.start]);
        out.push_str(&value);
        done = token.end;
    }
    out.push_str(&text[done..]);
    Ok(out)
}

fn remedy(sentinel: Sentinel) -> &'static str {
    match sentinel {
        Sentinel::ApiserverHost | Sentinel::ApiserverPort => {
            "it is the server URL in ConfigMap kube-public/cluster-info: check that it exists and is readable"
        }
        Sentinel::ClusterDns | Sentinel::ClusterDomain | Sentinel::DualStack | Sentinel::StorageDefault => {
            "it is in key cluster-inputs of ConfigMap kube-system/stratum-addon-inventory: stage the bundled stacks, or add it there"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> SentinelValues {
        SentinelValues {
            apiserver_host: Some(Host::new("[fd00::1]").unwrap()),
            apiserver_port: Some(6443),
            cluster_dns: Some("10.96.0.10".parse().unwrap()),
            cluster_domain: Some(DnsName::new("cluster.local.").unwrap()),
            dual_stack: Some(false),
            storage_default: Some(true),
        }
    }

    #[test]
    fn every_sentinel_is_replaced() {
        let text: String = Sentinel::iter().map(|s| format!("@stratum:{s}@ ")).collect();
        assert_eq!(sentinels_in(&text).len(), 6);
        let out = replace("f", text, &all()).unwrap();
        assert_eq!(out, "fd00::1 6443 10.96.0.10 cluster.local false true ");
    }

    #[test]
    fn unknown_unclosed_and_unresolved_are_refused_with_their_line() {
        for (text, values) in [
            ("a\n@stratum:nope@\n", all()),
            ("a\nx @stratum:cluster-dns\n", all()),
            ("a\n@stratum:dual-stack@\n", SentinelValues::default()),
        ] {
            let error = replace("f", text.to_owned(), &values).unwrap_err();
            assert_eq!(
                (error.kind, error.line),
                (SourceErrorKind::UnresolvedSentinel, Some(2)),
                "{text}"
            );
        }
    }

    #[test]
    fn a_value_cannot_change_the_structure() {
        for bad in [
            "",
            "a b",
            "a\nb",
            "a: b",
            "A",
            "-a",
            "a..b",
            "a#",
            "\"a",
            &"a".repeat(64),
        ] {
            assert!(DnsName::new(bad).is_err(), "{bad:?}");
        }
        assert!(Host::new("[::1").is_err());
    }
}
