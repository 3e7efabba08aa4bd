//! What is read for a decision about one HelmChart.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Client, ResourceExt};
use secrecy::SecretString;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256};

use super::error::HelmError;
use super::index::Named;
use super::object::{CHARTS, GROUP, HelmChart, HelmChartConfig};
use crate::controllers::cluster::{self, CallError, CallErrorKind};
use crate::pki::hexadecimal;
use crate::reconcilers::helm::command::{Credentials, only_passwords};
use crate::reconcilers::helm::decide::Dependency;
use crate::reconcilers::helm::refusal::Refusal;
use crate::reconcilers::helm::release::{Revision, SECRET_KEY};
use crate::reconcilers::helm::source::{Policy, Source, accept};
use crate::reconcilers::helm::spec::{ChartSpec, ConfigSpec};
use crate::reconcilers::helm::values::{Data, Sources};
use crate::reconcilers::helm::{ChartId, ReleaseId};

const JSON: &str = "application/json";
const METADATA_LIST: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
/// The largest chart that is read from a file, in bytes. helm itself unpacks at most 100 MiB.
const LARGEST_FILE: u64 = 64 * 1024 * 1024;

/// Reads the cluster with the deployer's rights.
#[derive(Clone)]
pub(super) struct Reader {
    pub(super) client: Client,
}

#[derive(Deserialize)]
struct Items<T> {
    /// The API server says `null` where there is none.
    items: Option<Vec<T>>,
}

#[derive(Deserialize)]
struct Bare {
    metadata: ObjectMeta,
}

impl Reader {
    /// All HelmCharts.
    pub(super) async fn charts(&self) -> Result<Vec<HelmChart>, HelmError> {
        let path = cluster::collection_path(GROUP, "v1", CHARTS, None);
        let listed = cluster::fetch::<Items<HelmChart>>(&self.client, &path, JSON).await;
        Ok(listed.map_err(look("the HelmCharts"))?.items.unwrap_or_default())
    }

    pub(super) async fn config(&self, id: &ChartId) -> Result<Option<ConfigSpec>, HelmError> {
        let collection = cluster::collection_path(GROUP, "v1", "helmchartconfigs", Some(&id.namespace));
        let found = self.optional::<HelmChartConfig>(&collection, &id.name).await;
        Ok(found
            .map_err(look("the HelmChartConfig"))?
            .map(|config| config.spec.config))
    }

    /// The revisions of a release.
    pub(super) async fn revisions(&self, release: &ReleaseId) -> Result<Vec<Revision>, HelmError> {
        let collection = cluster::collection_path("", "v1", "secrets", Some(&release.namespace));
        let path = format!(
            "{collection}?labelSelector=owner%3Dhelm%2Cname%3D{}",
            cluster::segment(&release.name)
        );
        let listed = cluster::fetch::<Items<Bare>>(&self.client, &path, METADATA_LIST).await;
        let items = listed.map_err(look("its release"))?.items.unwrap_or_default();
        let revisions = items.into_iter().filter_map(|one| {
            let created = one.metadata.creation_timestamp.map(|time| time.0);
            Revision::of(&release.namespace, &one.metadata.labels.unwrap_or_default(), created)
        });
        Ok(revisions.collect())
    }

    /// What helm stored of one revision.
    pub(super) async fn stored(&self, revision: &Revision) -> Result<Option<Vec<u8>>, HelmError> {
        let ReleaseId { namespace, name } = &revision.release;
        let secret = format!("sh.helm.release.v1.{name}.v{}", revision.number);
        let data = self.secret(namespace, &secret).await?;
        Ok(data.and_then(|mut data| data.remove(SECRET_KEY)))
    }

    pub(super) async fn is_terminating(&self, namespace: &str) -> Result<bool, HelmError> {
        let collection = cluster::collection_path("", "v1", "namespaces", None);
        let found = self.optional::<Namespace>(&collection, namespace).await;
        let found = found.map_err(look("the release's namespace"))?;
        Ok(found.is_some_and(|namespace| namespace.metadata.deletion_timestamp.is_some()))
    }

    /// What the values of a HelmChart and its config come from, as far as it is there.
    pub(super) async fn sources(
        &self,
        namespace: &str,
        spec: &ChartSpec,
        config: Option<&ConfigSpec>,
    ) -> Result<Sources, HelmError> {
        let mut sources = Sources::default();
        let more = config
            .map(|config| config.values_secrets.as_slice())
            .unwrap_or_default();
        for source in spec.values_secrets.iter().chain(more) {
            if let Some(data) = self.secret(namespace, &source.name).await? {
                sources.secrets.insert(source.name.clone(), data);
            }
        }
        for source in &spec.values_config_maps {
            if let Some(data) = self.config_map(namespace, &source.name).await? {
                sources.config_maps.insert(source.name.clone(), data);
            }
        }
        Ok(sources)
    }

    /// What lets helm into the repository. A Secret that is named and not there is a refusal.
    pub(super) async fn credentials(
        &self,
        namespace: &str,
        spec: &ChartSpec,
        source: &Source,
    ) -> Result<Result<Credentials, Refusal>, HelmError> {
        let mut credentials = Credentials {
            authorities: spec.repo_ca.clone(),
            ..Credentials::default()
        };
        let missing = |kind, name: &str| Refusal::Missing {
            kind,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        };
        if let Some(map) = &spec.repo_ca_config_map {
            let Some(data) = self.config_map(namespace, &map.name).await? else {
                return Ok(Err(missing("ConfigMap", &map.name)));
            };
            let mut all = credentials.authorities.take().unwrap_or_default();
            for bytes in data.values() {
                all.push('\n');
                all.push_str(&String::from_utf8_lossy(bytes));
            }
            credentials.authorities = Some(all);
        }
        if let Some(secret) = &spec.auth_secret {
            let Some(data) = self.secret(namespace, &secret.name).await? else {
                return Ok(Err(missing("Secret", &secret.name)));
            };
            credentials.password = text(&data, "username").zip(text(&data, "password").map(SecretString::from));
            credentials.certificate = text(&data, "tls.crt").zip(text(&data, "tls.key").map(SecretString::from));
            let is_plain = matches!(source, Source::Address(address) if !address.starts_with("oci://"));
            if is_plain && credentials.password.is_some() {
                return Ok(Err(Refusal::PasswordForAddress));
            }
            if credentials.password.is_none() && credentials.certificate.is_none() {
                return Ok(Err(Refusal::MissingKey {
                    kind: "Secret",
                    name: secret.name.clone(),
                    key: "username and password, or tls.crt and tls.key".to_owned(),
                }));
            }
        }
        if let Some(secret) = &spec.docker_registry_secret {
            let key = ".dockerconfigjson";
            let Some(data) = self.secret(namespace, &secret.name).await? else {
                return Ok(Err(missing("Secret", &secret.name)));
            };
            let Some(config) = text(&data, key).and_then(|config| only_passwords(&config)) else {
                return Ok(Err(Refusal::MissingKey {
                    kind: "Secret",
                    name: secret.name.clone(),
                    key: format!("{key}, with \"auths\" in it"),
                }));
            };
            credentials.registry = Some(config);
        }
        Ok(Ok(credentials))
    }

    async fn secret(&self, namespace: &str, name: &str) -> Result<Option<Data>, HelmError> {
        let collection = cluster::collection_path("", "v1", "secrets", Some(namespace));
        let found = self
            .optional::<Secret>(&collection, name)
            .await
            .map_err(look("a Secret"))?;
        let data = found.map(|secret| secret.data.unwrap_or_default());
        Ok(data.map(|data| data.into_iter().map(|(key, bytes)| (key, bytes.0)).collect()))
    }

    async fn config_map(&self, namespace: &str, name: &str) -> Result<Option<Data>, HelmError> {
        let collection = cluster::collection_path("", "v1", "configmaps", Some(namespace));
        let found = self.optional::<ConfigMap>(&collection, name).await;
        let found = found.map_err(look("a ConfigMap"))?;
        let data = found.map(|map| map.data.unwrap_or_default());
        Ok(data.map(|data| data.into_iter().map(|(key, text)| (key, text.into_bytes())).collect()))
    }

    async fn optional<T: DeserializeOwned>(&self, collection: &str, name: &str) -> Result<Option<T>, CallError> {
        let path = format!("{collection}/{}", cluster::segment(name));
        match cluster::fetch(&self.client, &path, JSON).await {
            Ok(found) => Ok(Some(found)),
            Err(error) if error.kind() == CallErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}

fn look(what: &'static str) -> impl FnOnce(CallError) -> HelmError {
    move |source| HelmError::Look { what, source }
}

fn text(data: &BTreeMap<String, Vec<u8>>, key: &str) -> Option<String> {
    let text = String::from_utf8_lossy(data.get(key)?)
        .trim_end_matches('\n')
        .to_owned();
    (!text.is_empty()).then_some(text)
}

/// The chart in a file below the manifests folder, and its SHA-256.
pub(super) fn file(folder: &Path, name: &str) -> Result<(Vec<u8>, String), Refusal> {
    let path = folder.join(name);
    let read = || {
        let metadata = std::fs::metadata(&path)?;
        if !metadata.is_file() || metadata.len() > LARGEST_FILE {
            return Err(std::io::Error::other("it is no file, or longer than 64 MiB"));
        }
        std::fs::read(&path)
    };
    let bytes = read().map_err(|error| Refusal::NoFile {
        path: name.to_owned(),
        reason: error.to_string(),
    })?;
    let digest = hexadecimal(&Sha256::digest(&bytes));
    Ok((bytes, digest))
}

/// A HelmChart's name in its namespace.
pub(super) fn id_of(chart: &HelmChart) -> ChartId {
    ChartId::new(chart.namespace().unwrap_or_default(), chart.name_any())
}

/// The release that a HelmChart wants, whatever else it says.
pub(super) fn release_of(chart: &HelmChart) -> ReleaseId {
    let ChartId { namespace, name } = id_of(chart);
    ReleaseId {
        namespace: chart.spec.chart.target_namespace.clone().unwrap_or(namespace),
        name,
    }
}

/// How far a HelmChart is that another one depends on.
pub(super) fn dependency(charts: &[HelmChart], id: &ChartId) -> Dependency {
    let Some(chart) = charts.iter().find(|chart| id_of(chart) == *id) else {
        return Dependency::Missing;
    };
    let status = chart.status.as_ref();
    let is_ready = status.is_some_and(|status| {
        status.observed_generation == chart.metadata.generation
            && status
                .conditions
                .iter()
                .any(|one| one.kind == super::status::READY && one.status == "True")
    });
    if is_ready {
        Dependency::Ready
    } else {
        Dependency::NotReady
    }
}

/// The release that an accepted HelmChart wants. Anybody who may create HelmCharts somewhere can write any namespace into
/// one, and one that is not accepted has to keep nobody from anything.
pub(super) fn accepted_release(chart: &HelmChart, policy: &Policy) -> Option<ReleaseId> {
    let accepted = accept(&id_of(chart), &chart.spec.chart, policy);
    accepted.ok().map(|accepted| accepted.release)
}

/// The older HelmChart that wants the same release, and is accepted, if there is one. Of the same second, the first by name.
pub(super) fn rival(charts: &[HelmChart], chart: &HelmChart, policy: &Policy) -> Option<ChartId> {
    let release = Some(release_of(chart));
    let age = |chart: &HelmChart| {
        let created = chart.metadata.creation_timestamp.as_ref();
        (created.map(|time| time.0), id_of(chart))
    };
    let own = age(chart);
    let older = charts.iter().filter(|other| age(other) < own);
    let rivals = older.filter(|other| accepted_release(other, policy) == release);
    rivals.min_by_key(|other| age(other)).map(id_of)
}

/// Who depends on whom, as far as it can be told.
pub(super) fn graph(charts: &[HelmChart]) -> BTreeMap<ChartId, Vec<ChartId>> {
    let edges = charts.iter().map(|chart| {
        let id = id_of(chart);
        let named = chart.spec.chart.depends_on.iter();
        let on = named.map(|text| match text.split_once('/') {
            Some((namespace, name)) => ChartId::new(namespace, name),
            None => ChartId::new(&id.namespace, text),
        });
        (id.clone(), on.collect())
    });
    edges.collect()
}

/// What a HelmChart names, by which it is woken.
pub(super) fn names(
    id: &ChartId,
    spec: &ChartSpec,
    config: Option<&ConfigSpec>,
    depends_on: &[ChartId],
) -> BTreeSet<(Named, ChartId)> {
    let here = |name: &String| ChartId::new(&id.namespace, name);
    let more = config
        .map(|config| config.values_secrets.as_slice())
        .unwrap_or_default();
    let followed = spec
        .values_secrets
        .iter()
        .chain(more)
        .filter(|source| !source.ignore_updates);
    let mut named: BTreeSet<_> = followed.map(|source| (Named::Secret, here(&source.name))).collect();
    let secrets = [&spec.auth_secret, &spec.docker_registry_secret].into_iter().flatten();
    named.extend(secrets.map(|secret| (Named::Secret, here(&secret.name))));
    let maps = spec.values_config_maps.iter().filter(|source| !source.ignore_updates);
    named.extend(maps.map(|source| (Named::ConfigMap, here(&source.name))));
    named.extend(
        spec.repo_ca_config_map
            .iter()
            .map(|map| (Named::ConfigMap, here(&map.name))),
    );
    named.extend(depends_on.iter().map(|on| (Named::HelmChart, on.clone())));
    named
}
