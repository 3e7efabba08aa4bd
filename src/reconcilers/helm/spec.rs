//! What a HelmChart and a HelmChartConfig say, and what their status tells.

use std::collections::BTreeMap;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What a HelmChart asks for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ChartSpec {
    /// The release's namespace; without it, the HelmChart's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_namespace: Option<String>,
    /// Whether helm makes that namespace when there is none.
    pub create_namespace: bool,
    /// The chart: its name in `repo`, an `oci://` or `https://` address, or a `.tgz` file below the manifests folder.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chart: Option<String>,
    /// The chart's version. Without effect for a file, an archive's address and `chartContent`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The address of the repository.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repo: Option<String>,
    /// The authorities that the repository's certificate may come from, as PEM.
    #[serde(rename = "repoCA", skip_serializing_if = "Option::is_none")]
    pub repo_ca: Option<String>,
    /// A ConfigMap whose values are more of them.
    #[serde(rename = "repoCAConfigMap", skip_serializing_if = "Option::is_none")]
    pub repo_ca_config_map: Option<ObjectName>,
    /// Single values, which win over all others.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub set: BTreeMap<String, SetValue>,
    /// Values, as a map. They win over `valuesContent`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "any_map")]
    pub values: Option<Value>,
    /// Values, as the text of a YAML document.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub values_content: Option<String>,
    /// Secrets of the HelmChart's namespace that hold values. They win over both.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub values_secrets: Vec<ValuesSource>,
    /// ConfigMaps of the HelmChart's namespace that hold values, after `values` and before the Secrets.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub values_config_maps: Vec<ValuesSource>,
    /// Nothing but `v3` and nothing at all, which are the same here: helm 4 is run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub helm_version: Option<String>,
    /// Without effect: no pod runs helm here, so there is none that had to start before the cluster's network.
    pub bootstrap: bool,
    /// Whether objects of the chart that are there already become the release's.
    pub take_ownership: bool,
    /// Whether the API server merges the chart's objects: `true`, `false` or `auto`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_side: Option<ServerSide>,
    /// Whether fields that somebody else owns are taken over. Without effect where the API server does not merge.
    pub force_conflicts: bool,
    /// The chart itself: a `.tgz` in base64.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chart_content: Option<String>,
    /// Without effect: there is no Job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job_image: Option<String>,
    /// Without effect: there is no Job. What fails is tried again with growing waits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub back_off_limit: Option<i32>,
    /// How long helm may take, such as `5m` or `1h30m`; 5 minutes without it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<String>,
    /// What follows an install or an upgrade that failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure_policy: Option<FailurePolicy>,
    /// A Secret with `username` and `password`, or `tls.crt` and `tls.key`, for the repository.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auth_secret: Option<ObjectName>,
    /// Whether the credential is given to every host that the repository names.
    pub auth_pass_credentials: bool,
    /// Whether any certificate of the repository is accepted.
    #[serde(rename = "insecureSkipTLSVerify")]
    pub insecure_skip_tls_verify: bool,
    /// Whether the registry is asked without TLS.
    #[serde(rename = "plainHTTP")]
    pub plain_http: bool,
    /// A Secret of type `kubernetes.io/dockerconfigjson`, for an OCI registry.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub docker_registry_secret: Option<ObjectName>,
    /// Without effect: no pod runs helm.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "any_map")]
    pub pod_security_context: Option<Value>,
    /// Without effect: no pod runs helm.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "any_map")]
    pub security_context: Option<Value>,
    /// Where helm keeps the release. Only `secret`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub driver: Option<Driver>,
    /// What becomes of the CRDs in the chart's folder `crds`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub crds: Option<CrdPolicy>,
    /// HelmCharts that have to be deployed before: `name` in the same namespace, or `namespace/name`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub depends_on: Vec<String>,
    /// Whether this chart is left alone.
    pub suspend: bool,
    /// What is done about objects of the release that somebody changed or deleted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drift_detection: Option<DriftDetection>,
    /// The ServiceAccount of the HelmChart's namespace as which helm acts. Required outside of the namespaces whose charts
    /// have the deployer's rights.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_account_name: Option<String>,
    /// How many revisions of the release are kept; 5 without it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_history: Option<u32>,
    /// Whether helm waits for the objects to be ready, and undoes an install or upgrade that did not come so far.
    pub atomic: bool,
}

/// What a HelmChartConfig of a chart's name adds to it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ConfigSpec {
    /// As the chart's, and after all of the chart's values.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "any_map")]
    pub values: Option<Value>,
    /// As the chart's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub values_content: Option<String>,
    /// As the chart's.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub values_secrets: Vec<ValuesSource>,
    /// In the chart's place.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure_policy: Option<FailurePolicy>,
    /// In the chart's place.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_side: Option<ServerSide>,
    /// In the chart's place.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub force_conflicts: Option<bool>,
}

/// An object of the same namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct ObjectName {
    /// Its name.
    pub name: String,
}

/// A Secret or ConfigMap that holds values, each key a YAML document.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ValuesSource {
    /// Its name.
    pub name: String,
    /// Which keys, in this order; without it all, sorted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub keys: Vec<String>,
    /// Whether it may be missing, and does not start an upgrade when it changes.
    #[serde(default)]
    pub ignore_updates: bool,
}

/// A single value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum SetValue {
    /// A number.
    Number(i64),
    /// A text. `true`, `false`, `null` and whole numbers are what they say, as with `helm --set`.
    Text(String),
}

/// What follows an install or an upgrade that failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, strum::IntoStaticStr)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum FailurePolicy {
    /// The release stays as it is, until the chart or its values change.
    #[default]
    Abort,
    /// It is tried again, with growing waits.
    Retry,
    /// The release is uninstalled, with all its objects, and installed anew.
    Reinstall,
}

/// Whether the API server merges.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, strum::IntoStaticStr)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum ServerSide {
    /// It does.
    True,
    /// helm does.
    False,
    /// As the last revision of the release did it.
    Auto,
}

/// Where helm keeps releases.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Driver {
    /// In Secrets.
    Secret,
    /// In ConfigMaps, where everybody who may read them sees the values: accepted, and refused with a reason.
    Configmap,
}

/// What becomes of a chart's own CRDs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum CrdPolicy {
    /// Those that are not there are made, at the install: what helm does.
    #[default]
    Create,
    /// They are made, and brought to what the chart says with each upgrade.
    CreateReplace,
    /// They are left to somebody else.
    Skip,
}

/// What is done about drift.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum DriftDetection {
    /// Nothing is looked at.
    Disabled,
    /// It is told.
    #[default]
    Warn,
    /// It is undone.
    Repair,
}

/// What the status of a HelmChart tells.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ChartStatus {
    /// The generation that the rest is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The revision of the release.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision: Option<u32>,
    /// The version of the chart that is deployed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chart_version: Option<String>,
    /// The version of what the chart deploys, by its own word.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub app_version: Option<String>,
    /// SHA-256 of the chart and the values that were applied last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub applied_hash: Option<String>,
    /// SHA-256 of those that failed last, and how many times in a row.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<Failed>,
    /// `Ready`: whether the release is what was asked for; its reason is the word for the state.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// An attempt that failed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Failed {
    /// What was to be applied.
    pub hash: String,
    /// How many times in a row.
    pub times: u32,
    /// When the last one ended.
    pub at: Option<Timestamp>,
}

/// A condition, as Kubernetes has them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// What it is about.
    #[serde(rename = "type")]
    pub kind: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// One word.
    pub reason: String,
    /// A sentence.
    pub message: String,
    /// When the status changed last.
    pub last_transition_time: Timestamp,
    /// The generation it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}

/// Any map, whose fields the API server keeps.
fn any_map(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
}

impl JsonSchema for SetValue {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "SetValue".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({"x-kubernetes-int-or-string": true})
    }
}
