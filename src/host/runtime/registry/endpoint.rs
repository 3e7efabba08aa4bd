//! Names of registries and addresses of mirrors, checked once.

use std::fmt;
use std::str::FromStr;

use http::Uri;

use super::file::Problem;

/// `docker.io`, `registry.example.org:5000`, or `*`: what stands before the first slash of an image's name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Registry {
    /// One registry.
    Named(String),
    /// Every registry that is not named.
    Others,
}

impl Registry {
    /// The folder containerd looks for it in.
    pub(super) fn folder(&self) -> &str {
        match self {
            Self::Named(name) => name,
            Self::Others => "_default",
        }
    }
}

impl FromStr for Registry {
    type Err = Problem;

    fn from_str(name: &str) -> Result<Self, Problem> {
        if name == "*" {
            return Ok(Self::Others);
        }
        if name.contains('*') {
            return Err(Problem::Pattern);
        }
        if name.contains("://") {
            return Err(Problem::NameWithScheme);
        }
        if name.contains('/') {
            return Err(Problem::NameWithPath);
        }
        if name == "index.docker.io" {
            return Err(Problem::DockerHub);
        }
        if is_authority(name) && is_registry(name) {
            Ok(Self::Named(name.to_owned()))
        } else {
            Err(Problem::Name)
        }
    }
}

/// `HOST`, `HOST:PORT`, an IPv6 address in brackets. It also becomes the name of a folder: it begins with a letter, a
/// digit or a bracket, so `..` is none.
fn is_authority(name: &str) -> bool {
    let (host, port) = match name.rfind(':') {
        Some(colon) if !name.ends_with(']') => (&name[..colon], Some(&name[colon + 1..])),
        Some(_) | None => (name, None),
    };
    let port_is_one = port.is_none_or(|port| port.parse::<u16>().is_ok_and(|port| port > 0));
    port_is_one && is_host(host)
}

fn is_host(host: &str) -> bool {
    if let Some(six) = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        return six.parse::<std::net::Ipv6Addr>().is_ok();
    }
    let plain = |character: char| character.is_ascii_alphanumeric() || matches!(character, '.' | '-' | '_');
    host.starts_with(|first: char| first.is_ascii_alphanumeric()) && host.chars().all(plain)
}

/// A first part without a dot or a port is no registry, but a folder at Docker Hub: `library` in `library/busybox`.
fn is_registry(name: &str) -> bool {
    name.contains(['.', ':']) || name == "localhost"
}

/// Where a mirror is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Endpoint {
    pub(super) scheme: Scheme,
    /// `HOST` or `HOST:PORT`.
    pub(super) authority: String,
    /// Where its API begins, without a slash at the end; none for the usual `/v2`.
    pub(super) path: Option<String>,
}

/// How a mirror is spoken to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::Display)]
#[strum(serialize_all = "lowercase")]
pub(super) enum Scheme {
    /// In the clear.
    Http,
    /// By TLS.
    Https,
}

impl FromStr for Endpoint {
    type Err = Problem;

    fn from_str(text: &str) -> Result<Self, Problem> {
        let uri: Uri = text.parse().map_err(|_| Problem::Endpoint)?;
        let scheme = match uri.scheme_str() {
            Some("http") => Scheme::Http,
            Some("https") => Scheme::Https,
            Some(_) | None => return Err(Problem::Endpoint),
        };
        let authority = uri.authority().map(http::uri::Authority::as_str).unwrap_or_default();
        if authority.contains('@') {
            return Err(Problem::EndpointWithPassword);
        }
        if !is_authority(authority) || text.contains(['?', '#']) {
            return Err(Problem::Endpoint);
        }
        let path = uri.path().trim_end_matches('/');
        Ok(Self {
            scheme,
            authority: authority.to_owned(),
            path: (!path.is_empty() && path != "/v2").then(|| path.to_owned()),
        })
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            scheme,
            authority,
            path,
        } = self;
        write!(
            formatter,
            "{scheme}://{authority}{}",
            path.as_deref().unwrap_or_default()
        )
    }
}
