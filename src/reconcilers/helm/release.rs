//! What helm has stored of a release: one Secret for each revision.
//!
//! The labels say most; only the chart's version and the rendered objects are inside (JSON, gzip, base64, and once more
//! base64 as in any Secret). <https://helm.sh/docs/topics/advanced/#storage-backends>

use std::collections::BTreeMap;
use std::io::Read;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flate2::read::GzDecoder;
use jiff::Timestamp;
use serde::Deserialize;

use super::{ChartId, DIGEST_LABEL, NAME_LABEL, NAMESPACE_LABEL, ReleaseId};

/// The type of a Secret that holds a revision.
pub const SECRET_TYPE: &str = "helm.sh/release.v1";
/// The key of the Secret that holds it.
pub const SECRET_KEY: &str = "release";
/// A Secret holds a megabyte, which is no more than this of text.
const LARGEST: u64 = 64 * 1024 * 1024;

/// How far a revision came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::EnumString, strum::IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum ReleaseStatus {
    /// It is what runs.
    Deployed,
    /// A later one took its place.
    Superseded,
    /// It did not come to its end.
    Failed,
    /// It is being installed, or helm died while it was.
    PendingInstall,
    /// It is being upgraded to, or helm died meanwhile.
    PendingUpgrade,
    /// It is being rolled back to, or helm died meanwhile.
    PendingRollback,
    /// It is being uninstalled, or helm died meanwhile.
    Uninstalling,
    /// It is uninstalled, and its history was kept.
    Uninstalled,
    /// helm itself does not know, or says a word that is not known here.
    Unknown,
}

/// One revision, as its labels tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Revision {
    /// Of which release.
    pub release: ReleaseId,
    /// Its number, from 1 on.
    pub number: u32,
    /// How far it came.
    pub status: ReleaseStatus,
    /// The HelmChart it was made for; none: somebody else made it.
    pub owner: Option<ChartId>,
    /// The digest of what was asked for, as far as its label holds it.
    pub digest: Option<String>,
    /// When its Secret was made.
    pub created: Option<Timestamp>,
}

impl Revision {
    /// Reads the labels of a Secret; `None` when they are not those of a revision.
    #[must_use]
    pub fn of(namespace: &str, labels: &BTreeMap<String, String>, created: Option<Timestamp>) -> Option<Self> {
        let label = |name: &str| labels.get(name).filter(|value| !value.is_empty());
        if label("owner").map(String::as_str) != Some("helm") {
            return None;
        }
        let status = label("status").and_then(|word| word.parse().ok());
        let owner = label(NAMESPACE_LABEL).zip(label(NAME_LABEL));
        Some(Self {
            release: ReleaseId {
                namespace: namespace.to_owned(),
                name: label("name")?.clone(),
            },
            number: label("version")?.parse().ok()?,
            status: status.unwrap_or(ReleaseStatus::Unknown),
            owner: owner.map(|(namespace, name)| ChartId::new(namespace, name)),
            digest: label(DIGEST_LABEL).cloned(),
            created,
        })
    }
}

/// What is inside of a revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Content {
    /// The version of the chart.
    pub chart_version: Option<String>,
    /// The version of what it deploys.
    pub app_version: Option<String>,
    /// The objects, as YAML documents; without those of hooks.
    pub manifest: String,
}

/// What is no revision inside.
#[derive(Debug, thiserror::Error)]
pub enum Unreadable {
    /// It is not base64.
    #[error("it is not base64")]
    Base64(#[source] base64::DecodeError),
    /// It cannot be unpacked.
    #[error("it cannot be unpacked")]
    Gzip(#[source] std::io::Error),
    /// Nothing that fits into a Secret is that long.
    #[error("it is longer than {LARGEST} bytes when it is unpacked")]
    TooLong,
    /// It is not in helm's form.
    #[error("it is not in helm's form")]
    Form(#[source] serde_json::Error),
}

/// Reads what a Secret's key `release` holds, already without the base64 of the Secret itself.
///
/// # Errors
/// When it is not in helm's form.
pub fn content(data: &[u8]) -> Result<Content, Unreadable> {
    let packed = STANDARD.decode(data).map_err(Unreadable::Base64)?;
    let mut text = Vec::new();
    let mut unpacked = GzDecoder::new(packed.as_slice()).take(LARGEST + 1);
    unpacked.read_to_end(&mut text).map_err(Unreadable::Gzip)?;
    if text.len() as u64 > LARGEST {
        return Err(Unreadable::TooLong);
    }
    let stored: Stored = serde_json::from_slice(&text).map_err(Unreadable::Form)?;
    let metadata = stored.chart.and_then(|chart| chart.metadata).unwrap_or_default();
    Ok(Content {
        chart_version: metadata.version,
        app_version: metadata.app_version,
        manifest: stored.manifest,
    })
}

#[derive(Deserialize)]
struct Stored {
    #[serde(default)]
    manifest: String,
    #[serde(default)]
    chart: Option<StoredChart>,
}

#[derive(Deserialize)]
struct StoredChart {
    #[serde(default)]
    metadata: Option<ChartMetadata>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ChartMetadata {
    #[serde(default)]
    version: Option<String>,
    #[serde(default)]
    app_version: Option<String>,
}
