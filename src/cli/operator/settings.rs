//! The operator's settings: flag before environment before file before default.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::PossibleValuesParser;
use jiff::SignedDuration;
use strum::VariantNames;

use super::super::config::{OperatorSection, TlsSection};
use crate::controllers::admin::{AdminSettings, TlsFiles};
use crate::controllers::operator::{RESYNC, SYSTEM_NAMESPACE, Settings};
use crate::controllers::telemetry::{LogFilter, LogFormat, TelemetryError};
use crate::host::layout::{Identity, Layout};
use crate::text::is_node_name;

/// The admin server's port, when nothing else is said.
const PORT: u16 = 9440;
const DRAIN: Duration = Duration::from_secs(20);

/// The flags of `stratum operator`.
#[derive(Clone, Debug, Default, clap::Args)]
pub(in crate::cli) struct Arguments {
    /// The configuration file [default: /etc/stratum/config.yaml, if it is there]
    #[arg(long, value_name = "FILE", env = "STRATUM_CONFIG")]
    pub(super) config: Option<PathBuf>,
    /// The kubeconfig of the operator itself [default: /var/lib/stratum/kubeconfig/operator.conf]
    #[arg(long, value_name = "FILE", env = "STRATUM_KUBECONFIG")]
    kubeconfig: Option<PathBuf>,
    /// The kubeconfig that manifests are applied with [default: /var/lib/stratum/kubeconfig/deployer.conf]
    #[arg(long, value_name = "FILE", env = "STRATUM_DEPLOYER_KUBECONFIG")]
    deployer_kubeconfig: Option<PathBuf>,
    /// The name of this node [default: the host name in lower case]
    #[arg(long, value_name = "NAME", env = "STRATUM_NODE_NAME")]
    node_name: Option<String>,
    /// The folder of manifests to apply [default: /etc/stratum/manifests]
    #[arg(long, value_name = "FOLDER", env = "STRATUM_MANIFESTS_DIR")]
    manifests_dir: Option<PathBuf>,
    /// Where this node keeps what it must remember [default: /var/lib/stratum]
    #[arg(long, value_name = "FOLDER", env = "STRATUM_STATE_DIR")]
    state_dir: Option<PathBuf>,
    /// Where metrics and health are served; port 0 takes a free one [default: 127.0.0.1:9440]
    #[arg(long, value_name = "ADDRESS:PORT", env = "STRATUM_LISTEN")]
    listen: Option<SocketAddr>,
    /// The certificate of that server; needed on any address that is not loopback
    #[arg(long, value_name = "FILE", env = "STRATUM_TLS_CERTIFICATE")]
    tls_certificate: Option<PathBuf>,
    /// The key of that certificate
    #[arg(long, value_name = "FILE", env = "STRATUM_TLS_KEY")]
    tls_key: Option<PathBuf>,
    /// The CA whose clients may ask that server
    #[arg(long, value_name = "FILE", env = "STRATUM_TLS_CLIENT_CA")]
    tls_client_ca: Option<PathBuf>,
    /// How log lines look [default: text]
    #[arg(long, value_name = "FORMAT", env = "STRATUM_LOG_FORMAT", value_parser = PossibleValuesParser::new(LogFormat::VARIANTS))]
    log_format: Option<String>,
    /// What is logged: a level, or MODULE=LEVEL, separated by commas [default: info]
    #[arg(long, value_name = "LEVEL", env = "STRATUM_LOG_LEVEL")]
    log_level: Option<String>,
    /// Applied objects are compared with the cluster once in this time, such as 5m [default: 5m]
    #[arg(long, value_name = "TIME", env = "STRATUM_RESYNC")]
    resync: Option<String>,
    /// Hold a pass that would delete more than this share of a stack, of 0 to 1, until it is confirmed [default: never]
    #[arg(long, value_name = "SHARE", env = "STRATUM_PRUNE_MAX_SHARE")]
    prune_max_share: Option<f64>,
    /// How long a stop may take, such as 20s [default: 20s]
    #[arg(long, value_name = "TIME", env = "STRATUM_DRAIN")]
    drain: Option<String>,
}

/// Settings that cannot be.
#[derive(Debug, thiserror::Error)]
pub(super) enum SettingsError {
    #[error("{what} {text:?} is not a time longer than nothing, such as 30s, 5m or 1h 30m")]
    Time { what: &'static str, text: String },
    #[error("prune.maxShare {share} is not between 0 and 1")]
    Share { share: f64 },
    #[error("{text:?} is no node name: letters in lower case, digits, '-' and '.', at most 253; set --node-name")]
    NodeName { text: String },
    #[error("reading the host name, which is the default node name; set --node-name")]
    HostName(#[source] std::io::Error),
    #[error("TLS for the admin server needs a certificate, its key and a client CA; {missing} is not set")]
    PartOfTls { missing: &'static str },
    #[error("log.format {text:?} is neither text nor json")]
    LogFormat { text: String },
    #[error(transparent)]
    LogLevel(#[from] TelemetryError),
}

/// What the command needs, complete.
#[derive(Debug)]
pub(super) struct Resolved {
    pub(super) operator: Settings,
    pub(super) log_format: LogFormat,
    pub(super) log_level: LogFilter,
}

/// Puts flags (with the environment in them), the file's section and the defaults together.
pub(super) fn resolve(
    flags: Arguments,
    file: OperatorSection,
    layout: &Layout,
    host_name: impl FnOnce() -> std::io::Result<String>,
) -> Result<Resolved, SettingsError> {
    let node = match flags.node_name.or(file.node_name) {
        Some(name) => name,
        None => host_name().map_err(SettingsError::HostName)?.trim().to_lowercase(),
    };
    let tls = TlsSection {
        certificate: flags.tls_certificate.or(file.tls.certificate),
        key: flags.tls_key.or(file.tls.key),
        client_ca: flags.tls_client_ca.or(file.tls.client_ca),
    };
    let log_format = flags.log_format.or(file.log.format);
    let log_level = flags.log_level.or(file.log.level);
    Ok(Resolved {
        operator: Settings {
            kubeconfig: flags
                .kubeconfig
                .or(file.kubeconfig)
                .unwrap_or_else(|| layout.kubeconfig(Identity::Operator)),
            deployer_kubeconfig: flags
                .deployer_kubeconfig
                .or(file.deployer_kubeconfig)
                .unwrap_or_else(|| layout.kubeconfig(Identity::Deployer)),
            node: node_name(node)?,
            manifests: flags
                .manifests_dir
                .or(file.manifests_dir)
                .unwrap_or_else(|| layout.manifests()),
            state: flags.state_dir.or(file.state_dir).unwrap_or_else(|| layout.state()),
            machine: layout.clone(),
            admin: AdminSettings {
                listen: flags
                    .listen
                    .or(file.listen)
                    .unwrap_or_else(|| (Ipv4Addr::LOCALHOST, PORT).into()),
                tls: tls_files(tls)?,
            },
            resync: time("resync", flags.resync.or(file.resync), RESYNC)?,
            prune_max_share: share(flags.prune_max_share.or(file.prune.max_share))?,
            drain: time("drain", flags.drain.or(file.drain), DRAIN)?,
            system_namespace: SYSTEM_NAMESPACE.to_owned(),
        },
        log_format: match log_format {
            Some(text) => text.parse().map_err(|_| SettingsError::LogFormat { text })?,
            None => LogFormat::default(),
        },
        log_level: match log_level {
            Some(text) => text.parse()?,
            None => LogFilter::default(),
        },
    })
}

fn node_name(text: String) -> Result<String, SettingsError> {
    if is_node_name(&text) {
        Ok(text)
    } else {
        Err(SettingsError::NodeName { text })
    }
}

fn tls_files(files: TlsSection) -> Result<Option<TlsFiles>, SettingsError> {
    let missing = |missing| SettingsError::PartOfTls { missing };
    match files {
        TlsSection {
            certificate: None,
            key: None,
            client_ca: None,
        } => Ok(None),
        TlsSection {
            certificate,
            key,
            client_ca,
        } => Ok(Some(TlsFiles {
            certificate: certificate.ok_or_else(|| missing("the certificate"))?,
            key: key.ok_or_else(|| missing("the key"))?,
            client_ca: client_ca.ok_or_else(|| missing("the client CA"))?,
        })),
    }
}

fn time(what: &'static str, text: Option<String>, default: Duration) -> Result<Duration, SettingsError> {
    let Some(text) = text else { return Ok(default) };
    let parsed = text
        .parse::<SignedDuration>()
        .ok()
        .and_then(|time| Duration::try_from(time).ok());
    match parsed {
        Some(time) if !time.is_zero() => Ok(time),
        Some(_) | None => Err(SettingsError::Time { what, text }),
    }
}

fn share(share: Option<f64>) -> Result<Option<f64>, SettingsError> {
    match share {
        Some(share) if !(0.0..=1.0).contains(&share) => Err(SettingsError::Share { share }),
        other => Ok(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(flags: Arguments, file: OperatorSection) -> Result<Resolved, String> {
        resolve(flags, file, &Layout::under("/r"), || Ok("Node-7.Example\n".to_owned()))
            .map_err(|error| error.to_string())
    }

    #[test]
    fn defaults_are_those_of_the_layout() {
        let Resolved {
            operator,
            log_format,
            log_level,
        } = with(Arguments::default(), OperatorSection::default()).unwrap();
        assert_eq!(operator.node, "node-7.example");
        assert_eq!(operator.manifests, PathBuf::from("/r/etc/stratum/manifests"));
        assert_eq!(
            operator.kubeconfig,
            PathBuf::from("/r/var/lib/stratum/kubeconfig/operator.conf")
        );
        assert_eq!(operator.admin.listen.to_string(), "127.0.0.1:9440");
        assert_eq!((operator.resync, operator.drain), (RESYNC, DRAIN));
        assert_eq!(operator.prune_max_share, None);
        assert_eq!(
            (log_format, log_level.to_string()),
            (LogFormat::Text, "info".to_owned())
        );
    }

    #[test]
    fn a_flag_comes_before_the_file() {
        let file = OperatorSection {
            node_name: Some("file".to_owned()),
            resync: Some("1h 30m".to_owned()),
            ..OperatorSection::default()
        };
        let flags = Arguments {
            node_name: Some("flag".to_owned()),
            ..Arguments::default()
        };
        let operator = with(flags, file).unwrap().operator;
        assert_eq!((operator.node.as_str(), operator.resync.as_secs()), ("flag", 5400));
    }

    #[test]
    fn what_cannot_be_is_refused_with_its_name() {
        let flags = |change: fn(&mut Arguments)| {
            let mut flags = Arguments::default();
            change(&mut flags);
            with(flags, OperatorSection::default()).unwrap_err()
        };
        for (error, word) in [
            (flags(|flags| flags.resync = Some("soon".into())), "resync"),
            (flags(|flags| flags.drain = Some("0s".into())), "drain"),
            (flags(|flags| flags.drain = Some("-3s".into())), "drain"),
            (flags(|flags| flags.prune_max_share = Some(1.5)), "1.5"),
            (flags(|flags| flags.prune_max_share = Some(f64::NAN)), "NaN"),
            (flags(|flags| flags.node_name = Some("a_b".into())), "a_b"),
            (flags(|flags| flags.node_name = Some(String::new())), "\"\""),
            (flags(|flags| flags.tls_key = Some("k".into())), "the certificate"),
            (flags(|flags| flags.log_level = Some("loud".into())), "loud"),
            (flags(|flags| flags.log_format = Some("xml".into())), "xml"),
        ] {
            assert!(error.contains(word), "{word}: {error}");
        }
    }
}
