//! Where a chart comes from, and who may have what.
//!
//! Charts in the allowed namespaces act with the deployer's rights, and come from wherever they say. Everywhere else
//! somebody who may create HelmCharts must gain nothing by it: helm acts as a ServiceAccount of the namespace, installs in it
//! only, reads no file of this machine, and asks nobody who is not allowed.

use std::collections::BTreeSet;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::refusal::Refusal;
use super::spec::{ChartSpec, Driver};
use super::{ChartId, ReleaseId};
use crate::text::is_dns_name;

/// The longest name of a release that helm takes.
const LONGEST_RELEASE: usize = 53;
/// As helm's own default.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(300);
/// Nobody waits longer for one chart, and a longer one is a slip of the pen.
const LONGEST_TIMEOUT: Duration = Duration::from_secs(24 * 60 * 60);
/// What a gzip file begins with.
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// What the operator allows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// The namespaces whose charts have the deployer's rights.
    pub namespaces: BTreeSet<String>,
    /// The hosts that charts of other namespaces may come from.
    pub hosts: BTreeSet<String>,
}

/// Where a chart comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// From the HelmChart itself: the archive.
    Content(Vec<u8>),
    /// From a file below the manifests folder.
    File(String),
    /// From the address of an archive, or of a chart in an OCI registry.
    Address(String),
    /// By name from a repository.
    Repository {
        /// The repository's address.
        repository: String,
        /// The chart's name there.
        chart: String,
    },
}

/// A HelmChart that is accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Accepted {
    /// Its release.
    pub release: ReleaseId,
    /// Where the chart comes from.
    pub source: Source,
    /// The ServiceAccount as which helm acts; none: with the deployer's rights.
    pub service_account: Option<String>,
    /// How long helm may take.
    pub timeout: Duration,
    /// Those that have to be deployed before.
    pub depends_on: Vec<ChartId>,
}

/// Whether a HelmChart is accepted.
///
/// # Errors
/// The first reason why it is not.
pub fn accept(id: &ChartId, spec: &ChartSpec, policy: &Policy) -> Result<Accepted, Refusal> {
    if id.name.len() > LONGEST_RELEASE {
        return Err(Refusal::LongName { length: id.name.len() });
    }
    let version = spec.helm_version.as_deref().unwrap_or_default();
    if !matches!(version, "" | "v3" | "v4") {
        return Err(Refusal::HelmVersion(version.to_owned()));
    }
    if spec.driver == Some(Driver::Configmap) {
        return Err(Refusal::Driver);
    }
    for (field, value) in [("chart", &spec.chart), ("version", &spec.version), ("repo", &spec.repo)] {
        if let Some(value) = value.as_ref().filter(|value| value.starts_with('-')) {
            let value = value.clone();
            return Err(Refusal::LikeAFlag { field, value });
        }
    }
    let named = [
        ("targetNamespace", "Namespace", &spec.target_namespace),
        ("serviceAccountName", "ServiceAccount", &spec.service_account_name),
    ];
    for (field, kind, value) in named {
        if let Some(value) = value.as_ref().filter(|value| !is_dns_name(value)) {
            let value = value.clone();
            return Err(Refusal::NotAName { field, value, kind });
        }
    }
    let source = source(spec)?;
    confine(id, spec, policy, &source)?;
    Ok(Accepted {
        release: ReleaseId {
            namespace: spec.target_namespace.clone().unwrap_or_else(|| id.namespace.clone()),
            name: id.name.clone(),
        },
        source,
        service_account: spec.service_account_name.clone(),
        timeout: timeout(spec.timeout.as_deref())?,
        depends_on: dependencies(id, spec)?,
    })
}

fn source(spec: &ChartSpec) -> Result<Source, Refusal> {
    let chart = match (&spec.chart, &spec.chart_content) {
        (Some(_), Some(_)) => return Err(Refusal::TwoCharts),
        (None, None) => return Err(Refusal::NoChart),
        (None, Some(content)) => {
            let packed: String = content.split_ascii_whitespace().collect();
            let archive = STANDARD.decode(packed).map_err(|_| Refusal::Content)?;
            return match archive.starts_with(&GZIP) {
                true => Ok(Source::Content(archive)),
                false => Err(Refusal::Content),
            };
        }
        (Some(chart), None) => chart,
    };
    if chart.is_empty() {
        return Err(Refusal::NoChart);
    }
    match &spec.repo {
        Some(repository) if host(repository, &["https://", "http://"]).is_none() => Err(Refusal::Address {
            field: "repo",
            value: repository.clone(),
            schemes: "https:// or http:// (a chart of an OCI registry is named by its whole address in spec.chart)",
        }),
        // The name becomes part of `repository/name`.
        Some(_) if chart.contains(['/', '\\']) || chart.chars().any(char::is_whitespace) => Err(Refusal::NotAName {
            field: "chart",
            value: chart.clone(),
            kind: "chart in a repository",
        }),
        Some(repository) => Ok(Source::Repository {
            repository: repository.clone(),
            chart: chart.clone(),
        }),
        None if host(chart, &ADDRESSES).is_some() => Ok(Source::Address(chart.clone())),
        None if chart.contains("://") || !has_archive_name(chart) => Err(Refusal::Address {
            field: "chart",
            value: chart.clone(),
            schemes: "oci://, https:// or http://, the name of a .tgz file below the manifests folder, or a chart's name beside spec.repo",
        }),
        None => path(chart).map(Source::File),
    }
}

const ADDRESSES: [&str; 3] = ["oci://", "https://", "http://"];

fn has_archive_name(chart: &str) -> bool {
    std::path::Path::new(chart)
        .extension()
        .is_some_and(|extension| extension == "tgz")
}

/// A path that stays below its folder.
fn path(chart: &str) -> Result<String, Refusal> {
    let mut parts = chart.split('/');
    let is_plain = parts.all(|part| !part.is_empty() && part != "." && part != ".." && !part.contains('\0'));
    is_plain
        .then(|| chart.to_owned())
        .ok_or_else(|| Refusal::Path(chart.to_owned()))
}

/// The host of an address with one of these schemes, in lower case and without a port.
fn host(address: &str, schemes: &[&str]) -> Option<String> {
    let rest = schemes.iter().find_map(|scheme| address.strip_prefix(scheme))?;
    if address
        .chars()
        .any(|character| character == '\\' || character.is_whitespace() || character.is_control())
    {
        return None;
    }
    let authority = rest.split(['/', '?', '#']).next()?;
    // A name before an @ is no host; whoever reads the address quickly takes it for one.
    if authority.contains('@') {
        return None;
    }
    let host = match authority.strip_prefix('[') {
        Some(rest) => rest.split(']').next()?,
        None => authority.split(':').next()?,
    };
    (!host.is_empty()).then(|| host.to_ascii_lowercase())
}

/// What charts outside of the allowed namespaces may not have.
fn confine(id: &ChartId, spec: &ChartSpec, policy: &Policy, source: &Source) -> Result<(), Refusal> {
    if policy.namespaces.contains(&id.namespace) {
        return Ok(());
    }
    let namespace = || id.namespace.clone();
    if spec.service_account_name.is_none() {
        return Err(Refusal::NoServiceAccount { namespace: namespace() });
    }
    let elsewhere = spec
        .target_namespace
        .as_ref()
        .is_some_and(|target| *target != id.namespace);
    if elsewhere || spec.create_namespace {
        return Err(Refusal::OtherNamespace { namespace: namespace() });
    }
    let address = match source {
        Source::Content(_) => return Ok(()),
        Source::File(path) => {
            return Err(Refusal::NotAllowed {
                namespace: namespace(),
                from: format!("a file of this machine ({path})"),
            });
        }
        Source::Address(address)
        | Source::Repository {
            repository: address, ..
        } => address,
    };
    match host(address, &ADDRESSES) {
        Some(host) if policy.hosts.contains(&host) => Ok(()),
        Some(from) => Err(Refusal::NotAllowed {
            namespace: namespace(),
            from,
        }),
        None => Err(Refusal::NotAllowed {
            namespace: namespace(),
            from: address.clone(),
        }),
    }
}

fn dependencies(id: &ChartId, spec: &ChartSpec) -> Result<Vec<ChartId>, Refusal> {
    spec.depends_on
        .iter()
        .map(|text| {
            let (namespace, name) = text.split_once('/').unwrap_or((&id.namespace, text));
            match is_dns_name(namespace) && is_dns_name(name) {
                true => Ok(ChartId::new(namespace, name)),
                false => Err(Refusal::Dependency(text.clone())),
            }
        })
        .collect()
}

/// A duration as Go writes it: numbers with the units h, m and s, the longer before the shorter.
fn timeout(text: Option<&str>) -> Result<Duration, Refusal> {
    let Some(text) = text.filter(|text| !text.is_empty()) else {
        return Ok(DEFAULT_TIMEOUT);
    };
    let refuse = || Refusal::Timeout(text.to_owned());
    let mut rest = text;
    let mut seconds = 0_u64;
    for (unit, each) in [('h', 3600), ('m', 60), ('s', 1)] {
        let Some((number, after)) = rest.split_once(unit) else {
            continue;
        };
        let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
        let number: u64 = number.parse().ok().filter(|_| is_number).ok_or_else(refuse)?;
        seconds = number
            .checked_mul(each)
            .and_then(|more| seconds.checked_add(more))
            .ok_or_else(refuse)?;
        rest = after;
    }
    let duration = Duration::from_secs(seconds);
    let is_fine = rest.is_empty() && !duration.is_zero() && duration <= LONGEST_TIMEOUT;
    is_fine.then_some(duration).ok_or_else(refuse)
}
