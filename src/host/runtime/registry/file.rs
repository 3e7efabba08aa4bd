//! registries.yaml: read, every key known, every value checked.
//! <https://docs.k3s.io/installation/private-registry>

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_saphyr::Spanned;
use zeroize::Zeroizing;

use super::endpoint::{Endpoint, Registry};
use crate::pki::certificate::Certificate;
use crate::pki::key::Key;
use crate::text::yaml_fault;

/// Why registries.yaml cannot be used. Nothing was changed then.
#[derive(Debug, thiserror::Error)]
pub enum RegistriesError {
    /// It is not what the form allows; the reason has the line.
    #[error("{}: {reason}", path.display())]
    Parse {
        /// The file.
        path: PathBuf,
        /// What is wrong, and where.
        reason: String,
    },
    /// A value means nothing.
    #[error("{}: {}{key}", path.display(), line.map(|line| format!("line {line}: ")).unwrap_or_default())]
    Invalid {
        /// The file.
        path: PathBuf,
        /// The line, where it is known.
        line: Option<u64>,
        /// The key, with dots.
        key: String,
        /// What is wrong.
        #[source]
        problem: Problem,
    },
}

/// What is wrong with a value of registries.yaml.
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    /// The name of a registry is none.
    #[error("no registry's name: a host such as docker.io, with its port if it has one, or \"*\" for all others")]
    Name,
    /// A pattern other than `*`.
    #[error("containerd knows no patterns: name each registry, or \"*\" alone for all others")]
    Pattern,
    /// `https://...`
    #[error("a registry is named by its host, without https://")]
    NameWithScheme,
    /// `docker.io/library`
    #[error("a registry is named by its host alone: containerd cannot mirror a part of one")]
    NameWithPath,
    /// Docker Hub by a name nothing looks for.
    #[error("images of Docker Hub are looked for as docker.io: name that")]
    DockerHub,
    /// An endpoint is no URL.
    #[error("no endpoint: http:// or https://, a host, and a port and a path if it has them")]
    Endpoint,
    /// An endpoint with a user in it.
    #[error("a user and password belong into configs, under the endpoint's host")]
    EndpointWithPassword,
    /// The same endpoint again.
    #[error("the same endpoint twice")]
    Twice,
    /// Names of images cannot be changed.
    #[error(
        "containerd cannot change the names of images: remove it, and serve them under their own names, or below a path of the endpoint"
    )]
    Rewrite,
    /// A password for everybody.
    #[error("a password for \"*\" would be sent to every registry there is: name the registry")]
    AuthForAll,
    /// A token that only a registry can turn into a password.
    #[error("containerd takes no identity token from a file: use username and password here, or an imagePullSecret")]
    IdentityToken,
    /// Half a password.
    #[error("username and password, or auth alone: base64 of USERNAME:PASSWORD, with no colon in USERNAME")]
    Auth,
    /// Half a pair.
    #[error("cert_file and key_file go together")]
    HalfPair,
    /// A relative path.
    #[error("{} is not an absolute path", .0.display())]
    Relative(PathBuf),
    /// A file cannot be read.
    #[error("cannot read {}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// A file without certificates.
    #[error("{} has no certificate that can be read", path.display())]
    NoCertificate {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        source: crate::pki::certificate::Error,
    },
    /// A file without a key.
    #[error("{} has no private key that can be read", path.display())]
    NoKey {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        source: crate::pki::key::Error,
    },
    /// Two files that are no pair.
    #[error("{} is not the key of the certificate in {}", key.display(), certificate.display())]
    NoPair {
        /// The key's file.
        key: PathBuf,
        /// The certificate's file.
        certificate: PathBuf,
    },
}

/// The file, checked.
#[derive(Debug, Default)]
pub(super) struct Registries {
    /// The endpoints of each registry, in the order they are tried.
    pub(super) mirrors: BTreeMap<Registry, Vec<Endpoint>>,
    /// How each host is spoken to.
    pub(super) configs: BTreeMap<Registry, HostConfig>,
}

/// How a host is spoken to.
#[derive(Debug, Default)]
pub(super) struct HostConfig {
    pub(super) ca_file: Option<PathBuf>,
    /// Certificate and key.
    pub(super) pair: Option<(PathBuf, PathBuf)>,
    pub(super) insecure_skip_verify: bool,
    pub(super) credentials: Option<Credentials>,
}

/// A user and a password, as the header has them: base64.
pub(super) struct Credentials(pub(super) Zeroizing<String>);

impl fmt::Debug for Credentials {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Credentials(..)")
    }
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Document {
    mirrors: Option<BTreeMap<String, Option<Mirror>>>,
    configs: Option<BTreeMap<String, Option<Config>>>,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Mirror {
    #[serde(alias = "endpoints")]
    endpoint: Option<Vec<Spanned<String>>>,
    rewrite: Option<Spanned<BTreeMap<String, String>>>,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Config {
    tls: Option<Tls>,
    auth: Option<Auth>,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Tls {
    ca_file: Option<PathBuf>,
    cert_file: Option<PathBuf>,
    key_file: Option<PathBuf>,
    insecure_skip_verify: bool,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Auth {
    username: Option<String>,
    password: Option<Zeroizing<String>>,
    auth: Option<Zeroizing<String>>,
    identity_token: Option<Zeroizing<String>>,
}

/// Reads the text of the file. The files it names are not looked at.
pub(super) fn parse(path: &Path, bytes: &[u8]) -> Result<Registries, RegistriesError> {
    let failed = |reason: String| RegistriesError::Parse {
        path: path.to_owned(),
        reason,
    };
    let text = std::str::from_utf8(bytes).map_err(|_| failed("it is not UTF-8 text".to_owned()))?;
    let empty = |line: &str| line.trim().is_empty() || line.trim_start().starts_with('#');
    if text.lines().all(empty) {
        return Ok(Registries::default());
    }
    let Document { mirrors, configs } = serde_saphyr::from_str(text).map_err(|error| failed(yaml_fault(&error)))?;
    let mut registries = Registries::default();
    for (name, mirror) in mirrors.unwrap_or_default() {
        let key = format!("mirrors.{name:?}");
        let registry = name.parse().map_err(|problem| invalid(path, None, &key, problem))?;
        let endpoints = endpoints(path, &key, mirror.unwrap_or_default())?;
        registries.mirrors.insert(registry, endpoints);
    }
    for (name, config) in configs.unwrap_or_default() {
        let key = format!("configs.{name:?}");
        let registry = name.parse().map_err(|problem| invalid(path, None, &key, problem))?;
        let config = host_config(&registry, config.unwrap_or_default())
            .map_err(|(part, problem)| invalid(path, None, &format!("{key}.{part}"), problem))?;
        registries.configs.insert(registry, config);
    }
    Ok(registries)
}

fn invalid(path: &Path, line: Option<u64>, key: &str, problem: Problem) -> RegistriesError {
    RegistriesError::Invalid {
        path: path.to_owned(),
        line,
        key: key.to_owned(),
        problem,
    }
}

fn endpoints(path: &Path, key: &str, mirror: Mirror) -> Result<Vec<Endpoint>, RegistriesError> {
    let Mirror { endpoint, rewrite } = mirror;
    if let Some(rewrite) = rewrite {
        let line = Some(rewrite.referenced.line());
        return Err(invalid(path, line, &format!("{key}.rewrite"), Problem::Rewrite));
    }
    let mut endpoints: Vec<Endpoint> = Vec::new();
    for spanned in endpoint.unwrap_or_default() {
        let line = Some(spanned.referenced.line());
        let wrong = |problem| invalid(path, line, &format!("{key}.endpoint: {:?}", spanned.value), problem);
        let endpoint: Endpoint = spanned.value.parse().map_err(|problem| match problem {
            // Its text has the password in it.
            Problem::EndpointWithPassword => invalid(path, line, &format!("{key}.endpoint"), problem),
            other => wrong(other),
        })?;
        if endpoints.contains(&endpoint) {
            return Err(wrong(Problem::Twice));
        }
        endpoints.push(endpoint);
    }
    Ok(endpoints)
}

fn host_config(registry: &Registry, config: Config) -> Result<HostConfig, (&'static str, Problem)> {
    let Config { tls, auth } = config;
    let Tls {
        ca_file,
        cert_file,
        key_file,
        insecure_skip_verify,
    } = tls.unwrap_or_default();
    let pair = match (cert_file, key_file) {
        (None, None) => None,
        (Some(certificate), Some(key)) => Some((certificate, key)),
        (Some(_), None) | (None, Some(_)) => return Err(("tls", Problem::HalfPair)),
    };
    let credentials = match (auth, registry) {
        (None, _) => None,
        (Some(_), Registry::Others) => return Err(("auth", Problem::AuthForAll)),
        (Some(auth), Registry::Named(_)) => credentials(auth)?,
    };
    Ok(HostConfig {
        ca_file,
        pair,
        insecure_skip_verify,
        credentials,
    })
}

fn credentials(auth: Auth) -> Result<Option<Credentials>, (&'static str, Problem)> {
    let Auth {
        username,
        password,
        auth,
        identity_token,
    } = auth;
    let given = |text: &Zeroizing<String>| !text.is_empty();
    if identity_token.as_ref().is_some_and(given) {
        return Err(("auth.identity_token", Problem::IdentityToken));
    }
    let username = username.filter(|name| !name.is_empty());
    match (username, password.filter(given), auth.filter(given)) {
        (None, None, None) => Ok(None),
        (Some(username), Some(password), None) if !username.contains(':') => {
            let both = Zeroizing::new(format!("{username}:{}", password.as_str()));
            Ok(Some(Credentials(super::hosts::base64(both.as_bytes()))))
        }
        (None, None, Some(auth)) if super::hosts::holds_a_password(&auth) => {
            Ok(Some(Credentials(Zeroizing::new(auth.trim().to_owned()))))
        }
        (_, _, _) => Err(("auth", Problem::Auth)),
    }
}

impl Registries {
    /// Looks at every file that is named. containerd finds a bad one at the next pull only, and a missing one then.
    pub(super) fn check_files(&self, path: &Path) -> Result<(), RegistriesError> {
        for (registry, config) in &self.configs {
            let name = match registry {
                Registry::Named(name) => name,
                Registry::Others => "*",
            };
            config
                .check_files()
                .map_err(|(part, problem)| invalid(path, None, &format!("configs.{name:?}.tls.{part}"), problem))?;
        }
        Ok(())
    }
}

impl HostConfig {
    fn check_files(&self) -> Result<(), (&'static str, Problem)> {
        if let Some(path) = &self.ca_file {
            certificates(path).map_err(|problem| ("ca_file", problem))?;
        }
        let Some((certificate_path, key_path)) = &self.pair else {
            return Ok(());
        };
        let chain = certificates(certificate_path).map_err(|problem| ("cert_file", problem))?;
        let bytes = Zeroizing::new(content(key_path).map_err(|problem| ("key_file", problem))?);
        let key = Key::from_pem(&bytes).map_err(|source| {
            let path = key_path.clone();
            ("key_file", Problem::NoKey { path, source })
        })?;
        // The first one is the client's, those after it lead to its authority.
        if chain
            .first()
            .is_none_or(|leaf| leaf.public_key_der() != key.public_key_der())
        {
            let problem = Problem::NoPair {
                key: key_path.clone(),
                certificate: certificate_path.clone(),
            };
            return Err(("key_file", problem));
        }
        Ok(())
    }
}

fn certificates(path: &Path) -> Result<Vec<Certificate>, Problem> {
    Certificate::bundle_from_pem(&content(path)?).map_err(|source| Problem::NoCertificate {
        path: path.to_owned(),
        source,
    })
}

/// A relative path would be looked for beside `hosts.toml`.
fn content(path: &Path) -> Result<Vec<u8>, Problem> {
    if !path.is_absolute() {
        return Err(Problem::Relative(path.to_owned()));
    }
    std::fs::read(path).map_err(|source| Problem::Unreadable {
        path: path.to_owned(),
        source,
    })
}
