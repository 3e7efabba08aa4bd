//! The text of `hosts.toml`.
//! <https://github.com/containerd/containerd/blob/v2.4.2/docs/hosts.md>
//!
//! - The order of the tables is the order in which mirrors are tried; the registry itself comes last.
//! - containerd skips a file it cannot parse, and goes to the registry itself: everything was checked before.
//! - A password is a header. That is read live, and nothing else in containerd is: the old tables for it need a restart
//!   and turn every pull into one of the old kind. The header is for that one host, and goes to the server of tokens the
//!   host names, as a password would.
//! - An endpoint's path is where its API begins, as it is for k3s: nothing is added to it.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::ByteString;
use serde::ser::{Serialize, SerializeMap, Serializer};
use zeroize::Zeroizing;

use super::super::super::atomic_file::Access;
use super::super::error::{Error, text};
use super::super::toml_text;
use super::endpoint::{Endpoint, Registry, Scheme};
use super::file::{HostConfig, Registries};

/// A file, and who may read it.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct HostsFile {
    pub(super) text: String,
    pub(super) access: Access,
}

impl std::fmt::Debug for HostsFile {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "HostsFile({:?}, {} bytes)", self.access, self.text.len())
    }
}

/// The files, by the name of their folder.
///
/// A registry's own file hides `_default`, so what is said of `"*"` is repeated in it, unless the registry has an entry of
/// its own in the same section.
pub(super) fn render(registries: &Registries) -> Result<BTreeMap<String, HostsFile>, Error> {
    let Registries { mirrors, configs } = registries;
    let named: BTreeSet<&Registry> = mirrors.keys().chain(configs.keys()).collect();
    named
        .into_iter()
        .map(|registry| Ok((registry.folder().to_owned(), file(registries, registry)?)))
        .collect()
}

fn file(registries: &Registries, registry: &Registry) -> Result<HostsFile, Error> {
    let Registries { mirrors, .. } = registries;
    let endpoints = mirrors.get(registry).or_else(|| mirrors.get(&Registry::Others));
    let mut endpoints = endpoints.map(Vec::as_slice).unwrap_or_default();
    // A registry that is its own last mirror is no mirror: it says how the registry itself is spoken to.
    let mut server = None;
    if let Some((last, before)) = endpoints.split_last()
        && last.authority == registry.folder()
    {
        (server, endpoints) = (Some(last), before);
    }
    let own = own_config(registries, registry);
    let file = File {
        server: server.map(ToString::to_string),
        own: Entry::new(server, own)?,
        hosts: endpoints
            .iter()
            .map(|endpoint| {
                let config = config_of(registries, &endpoint.authority);
                let entry = Entry {
                    mirror: true,
                    ..Entry::new(Some(endpoint), config)?
                };
                Ok((endpoint.to_string(), entry))
            })
            .collect::<Result<_, Error>>()?,
    };
    let secret = file.own.header.is_some() || file.hosts.iter().any(|(_, entry)| entry.header.is_some());
    Ok(HostsFile {
        text: toml_text::text("a registry's mirrors", "changes go to registries.yaml", &file)?,
        access: if secret { Access::Secret } else { Access::Public },
    })
}

/// How the registry itself is spoken to. Docker Hub answers under another name than the one in its images.
fn own_config<'a>(registries: &'a Registries, registry: &Registry) -> Option<&'a HostConfig> {
    match registry {
        Registry::Others => registries.configs.get(&Registry::Others),
        Registry::Named(name) if name == "docker.io" => {
            let named = |name: &str| registries.configs.get(&Registry::Named(name.to_owned()));
            named("docker.io")
                .or_else(|| named("registry-1.docker.io"))
                .or_else(|| registries.configs.get(&Registry::Others))
        }
        Registry::Named(name) => config_of(registries, name),
    }
}

fn config_of<'a>(registries: &'a Registries, authority: &str) -> Option<&'a HostConfig> {
    let configs = &registries.configs;
    configs
        .get(&Registry::Named(authority.to_owned()))
        .or_else(|| configs.get(&Registry::Others))
}

struct File {
    server: Option<String>,
    own: Entry,
    hosts: Vec<(String, Entry)>,
}

#[derive(Default)]
struct Entry {
    mirror: bool,
    ca: Option<String>,
    client: Option<[[String; 2]; 1]>,
    skip_verify: bool,
    override_path: bool,
    header: Option<Header>,
}

#[derive(serde::Serialize)]
struct Header {
    #[serde(rename = "Authorization")]
    authorization: Zeroizing<String>,
}

impl Entry {
    /// `endpoint` is none for a registry that is found by its name.
    fn new(endpoint: Option<&Endpoint>, config: Option<&HostConfig>) -> Result<Self, Error> {
        let mut entry = Self {
            override_path: endpoint.is_some_and(|endpoint| endpoint.path.is_some()),
            ..Self::default()
        };
        let Some(HostConfig {
            ca_file,
            pair,
            insecure_skip_verify,
            credentials,
        }) = config
        else {
            return Ok(entry);
        };
        let header = |base64: &str| Header {
            authorization: Zeroizing::new(format!("Basic {base64}")),
        };
        entry.header = credentials.as_ref().map(|credentials| header(&credentials.0));
        match endpoint.map(|endpoint| endpoint.scheme) {
            // With settings for TLS containerd would try TLS first.
            Some(Scheme::Http) => {}
            Some(Scheme::Https) | None => {
                entry.ca = ca_file.as_deref().map(owned).transpose()?;
                entry.client = match pair {
                    Some((certificate, key)) => Some([[owned(certificate)?, owned(key)?]]),
                    None => None,
                };
                entry.skip_verify = *insecure_skip_verify;
            }
        }
        Ok(entry)
    }

    fn fields<M: SerializeMap>(&self, map: &mut M) -> Result<(), M::Error> {
        let Self {
            mirror,
            ca,
            client,
            skip_verify,
            override_path,
            header,
        } = self;
        if *mirror {
            map.serialize_entry("capabilities", &["pull", "resolve"])?;
        }
        if let Some(ca) = ca {
            map.serialize_entry("ca", ca)?;
        }
        if let Some(client) = client {
            map.serialize_entry("client", client)?;
        }
        for (key, set) in [("skip_verify", skip_verify), ("override_path", override_path)] {
            if *set {
                map.serialize_entry(key, &true)?;
            }
        }
        if let Some(header) = header {
            map.serialize_entry("header", header)?;
        }
        Ok(())
    }
}

impl Serialize for File {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { server, own, hosts } = self;
        let mut map = serializer.serialize_map(None)?;
        if let Some(server) = server {
            map.serialize_entry("server", server)?;
        }
        own.fields(&mut map)?;
        if !hosts.is_empty() {
            map.serialize_entry("host", &Hosts(hosts))?;
        }
        map.end()
    }
}

/// A map that keeps its order.
struct Hosts<'a>(&'a [(String, Entry)]);

impl Serialize for Hosts<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (endpoint, entry) in self.0 {
            map.serialize_entry(endpoint, entry)?;
        }
        map.end()
    }
}

impl Serialize for Entry {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        self.fields(&mut map)?;
        map.end()
    }
}

fn owned(path: &std::path::Path) -> Result<String, Error> {
    text(path).map(str::to_owned)
}

/// Base64, as a header carries it.
pub(super) fn base64(bytes: &[u8]) -> Zeroizing<String> {
    let value = serde_json::to_value(ByteString(bytes.to_vec())).unwrap_or_default();
    Zeroizing::new(value.as_str().unwrap_or_default().to_owned())
}

/// Whether a text is base64 of `USERNAME:PASSWORD`.
pub(super) fn holds_a_password(text: &str) -> bool {
    let decoded = serde_json::from_value::<ByteString>(serde_json::Value::String(text.trim().to_owned()));
    decoded.is_ok_and(|bytes| Zeroizing::new(bytes.0).contains(&b':'))
}
