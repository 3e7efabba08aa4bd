//! `/etc/stratum/config.yaml`: a section for the operator, and what is passed through to the parts of a node. Unknown keys
//! of ours are refused with their line.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use jiff::SignedDuration;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::controllers::machine::node::Config;
use crate::host::runtime;
use crate::host::static_pods::{Argument, Component};
use crate::reconcilers::joining::token::Life;
use crate::text::yaml_fault;

/// Why the file cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConfigError {
    #[error("reading {}", path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    // The parser's text has the line, and a picture of it below: the first line is enough.
    #[error("{}: {reason}", path.display())]
    Parse { path: PathBuf, reason: String },
}

/// The whole file.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ConfigFile {
    pub(crate) operator: OperatorSection,
    /// Fields of a `KubeletConfiguration`.
    kubelet: Map<String, Value>,
    /// Keys of containerd's `config.toml`.
    containerd: Map<String, Value>,
    certificates: CertificatesSection,
    /// More arguments of static pods, by component.
    components: BTreeMap<Component, Vec<Argument>>,
}

/// Section `operator`. What is not set is left to flags, environment and defaults.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct OperatorSection {
    pub(crate) kubeconfig: Option<PathBuf>,
    pub(crate) deployer_kubeconfig: Option<PathBuf>,
    pub(crate) node_name: Option<String>,
    pub(crate) manifests_dir: Option<PathBuf>,
    pub(crate) state_dir: Option<PathBuf>,
    pub(crate) listen: Option<SocketAddr>,
    pub(crate) tls: TlsSection,
    pub(crate) log: LogSection,
    pub(crate) resync: Option<String>,
    pub(crate) prune: PruneSection,
    pub(crate) drain: Option<String>,
}

/// `operator.tls`: PEM files, for an address other than loopback.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct TlsSection {
    pub(crate) certificate: Option<PathBuf>,
    pub(crate) key: Option<PathBuf>,
    pub(crate) client_ca: Option<PathBuf>,
}

/// `operator.log`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct LogSection {
    pub(crate) format: Option<String>,
    pub(crate) level: Option<String>,
}

/// Section `certificates`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
struct CertificatesSection {
    leaf_lifetime: Option<LeafLifetime>,
}

/// How long leaves live, such as `90d`: a minute at least, for a renewal takes a part of one.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(try_from = "String")]
struct LeafLifetime(SignedDuration);

impl TryFrom<String> for LeafLifetime {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        match text.parse() {
            Ok(Life::For(life)) if life >= SHORTEST_LEAF => Ok(Self(life)),
            Ok(_) | Err(_) => Err(format!(
                "leafLifetime {text:?} is no time of a minute at least, such as 90d"
            )),
        }
    }
}

const SHORTEST_LEAF: SignedDuration = SignedDuration::from_mins(1);

/// `operator.prune`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct PruneSection {
    pub(crate) max_share: Option<f64>,
}

impl ConfigFile {
    /// What is passed through to the parts of a node.
    pub(crate) fn node(self) -> Config {
        let Self {
            operator: _,
            kubelet,
            containerd,
            certificates,
            components,
        } = self;
        Config {
            runtime: runtime::Settings { kubelet, containerd },
            leaf_lifetime: certificates.leaf_lifetime.map(|LeafLifetime(life)| life),
            arguments: components,
        }
    }

    /// Reads the file at `path`. One that is not there counts as empty, unless somebody `named` it.
    pub(crate) fn load(path: &Path, named: bool) -> Result<Self, ConfigError> {
        match std::fs::read_to_string(path) {
            Ok(text) => Self::parse(path, &text),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound && !named => Ok(Self::default()),
            Err(source) => Err(ConfigError::Read {
                path: path.to_owned(),
                source,
            }),
        }
    }

    fn parse(path: &Path, text: &str) -> Result<Self, ConfigError> {
        if text
            .lines()
            .all(|line| line.trim().is_empty() || line.trim_start().starts_with('#'))
        {
            return Ok(Self::default());
        }
        serde_saphyr::from_str(text).map_err(|error| ConfigError::Parse {
            path: path.to_owned(),
            reason: yaml_fault(&error),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<ConfigFile, String> {
        ConfigFile::parse(Path::new("/c.yaml"), text).map_err(|error| error.to_string())
    }

    #[test]
    fn every_key_is_read() {
        let text = "operator:\n  kubeconfig: /k\n  deployerKubeconfig: /d\n  nodeName: n\n  manifestsDir: /m\n  \
                    stateDir: /s\n  listen: '[::1]:9'\n  tls: {certificate: /c, key: /y, clientCa: /a}\n  \
                    log: {format: json, level: debug}\n  resync: 1m\n  prune: {maxShare: 0.5}\n  drain: 3s\n";
        let OperatorSection {
            kubeconfig,
            deployer_kubeconfig,
            node_name,
            manifests_dir,
            state_dir,
            listen,
            tls,
            log,
            resync,
            prune,
            drain,
        } = parse(text).unwrap().operator;
        for path in [
            kubeconfig,
            deployer_kubeconfig,
            manifests_dir,
            state_dir,
            tls.certificate,
            tls.key,
            tls.client_ca,
        ] {
            assert!(path.is_some());
        }
        for word in [node_name, log.format, log.level, resync, drain] {
            assert!(word.is_some());
        }
        assert_eq!(listen, "[::1]:9".parse().ok());
        assert_eq!(prune.max_share, Some(0.5));
    }

    #[test]
    fn what_is_passed_through_is_kept_as_it_is() {
        let text = "kubelet: {maxPods: 20, evictionHard: {memory.available: 5%}}\n\
                    containerd: {oom_score: 0}\n\
                    certificates: {leafLifetime: 90d}\n\
                    components:\n  kube-apiserver: [{name: v, value: '4'}]\n";
        let Config {
            runtime,
            leaf_lifetime,
            arguments,
        } = parse(text).unwrap().node();
        assert_eq!(leaf_lifetime, Some(SignedDuration::from_hours(90 * 24)));
        assert_eq!(runtime.kubelet["maxPods"], 20);
        assert_eq!(runtime.kubelet["evictionHard"]["memory.available"], "5%");
        assert_eq!(runtime.containerd["oom_score"], 0);
        assert_eq!(arguments[&Component::KubeApiserver][0].value, "4");
    }

    #[test]
    fn an_empty_file_is_no_file() {
        for text in ["", "\n# nothing\n", "operator: {}\n"] {
            assert_eq!(parse(text).unwrap(), ConfigFile::default(), "{text:?}");
        }
    }

    #[test]
    fn what_is_not_known_is_refused_with_its_line() {
        for (text, line, word) in [
            ("operator:\n  nodeName: a\n  colour: red\n", "line 3", "colour"),
            ("operator:\n  prune:\n    maxshare: 1\n", "line 3", "maxshare"),
            ("operatr: {}\n", "line 1", "operatr"),
            ("components: {kube-proxy: []}\n", "line 1", "kube-proxy"),
            ("kubelet: 1\n", "line 1", ""),
            ("certificates: {leafLifetime: 59s}\n", "line 1", "59s"),
            ("certificates: {leafLifetime: forever}\n", "line 1", "forever"),
            ("certificates: {leafLifetime: '0'}\n", "line 1", "leafLifetime"),
            ("operator:\n  nodeName: a\n  nodeName: b\n", "line 3", "nodeName"),
            ("operator:\n  listen: 9440\n", "line 2", ""),
        ] {
            let error = parse(text).unwrap_err();
            assert!(
                error.contains(line) && error.contains(word) && error.contains("/c.yaml"),
                "{error}"
            );
            assert_eq!(error.lines().count(), 1, "{error}");
        }
    }
}
