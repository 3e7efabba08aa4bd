//! The kinds HelmChart and HelmChartConfig. `deploy/bootstrap/helmcharts.yaml` is made from them.
//!
//! They are made with the bindings and not as a stack: a stack can be pruned, and with the definition all HelmCharts go.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{CustomResource, CustomResourceExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::reconcilers::helm::spec::{ChartSpec, ChartStatus, ConfigSpec};

/// The group of both kinds.
pub const GROUP: &str = "helm.stratum.ciq.com";
/// The resource's name in paths and rights.
pub const CHARTS: &str = "helmcharts";

/// A chart that is to be installed, and kept as it is described. The fields are those of helm.cattle.io/v1.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "helm.stratum.ciq.com",
    version = "v1",
    kind = "HelmChart",
    plural = "helmcharts",
    singular = "helmchart",
    namespaced,
    status = "ChartStatus",
    derive = "PartialEq",
    printcolumn = r#"{"name":"Ready","type":"string","jsonPath":".status.conditions[?(@.type=='Ready')].status"}"#,
    printcolumn = r#"{"name":"Reason","type":"string","jsonPath":".status.conditions[?(@.type=='Ready')].reason"}"#,
    printcolumn = r#"{"name":"Revision","type":"integer","jsonPath":".status.revision"}"#,
    printcolumn = r#"{"name":"Version","type":"string","jsonPath":".status.chartVersion"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
pub struct HelmChartSpec {
    /// What is asked for.
    #[serde(flatten)]
    pub chart: ChartSpec,
}

/// What is added to the HelmChart of the same namespace and name: a cluster's own values for a chart that came with it.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "helm.stratum.ciq.com",
    version = "v1",
    kind = "HelmChartConfig",
    plural = "helmchartconfigs",
    singular = "helmchartconfig",
    namespaced,
    derive = "PartialEq"
)]
pub struct HelmChartConfigSpec {
    /// What is added.
    #[serde(flatten)]
    pub config: ConfigSpec,
}

/// The definitions of both kinds, with the rules that the API server keeps itself: what breaks one is refused at once, and
/// never seen here.
#[must_use]
pub fn definitions() -> [CustomResourceDefinition; 2] {
    let mut charts = HelmChart::crd();
    for version in &mut charts.spec.versions {
        let schema = version
            .schema
            .as_mut()
            .and_then(|schema| schema.open_api_v3_schema.as_mut());
        let Some(schema) = schema else { continue };
        schema.x_kubernetes_validations = rules(&[(
            "self.metadata.name.size() <= 53",
            "the name is the release's, which has at most 53 characters",
        )]);
        let spec = schema
            .properties
            .as_mut()
            .and_then(|properties| properties.get_mut("spec"));
        if let Some(spec) = spec {
            spec.x_kubernetes_validations = rules(&[
                (
                    "!(has(self.chart) && has(self.chartContent))",
                    "chart and chartContent exclude one another",
                ),
                (
                    "[has(self.chart) ? self.chart : '', has(self.repo) ? self.repo : '', has(self.version) ? self.version : ''].all(text, !text.startsWith('-'))",
                    "chart, repo and version do not begin with '-'",
                ),
                (
                    "(has(self.targetNamespace) ? self.targetNamespace : '') == (has(oldSelf.targetNamespace) ? oldSelf.targetNamespace : '')",
                    "targetNamespace cannot be changed: make another HelmChart",
                ),
            ]);
        }
    }
    [charts, HelmChartConfig::crd()]
}

fn rules(
    rules: &[(&str, &str)],
) -> Option<Vec<k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::ValidationRule>> {
    let rules = rules
        .iter()
        .map(|(rule, message)| json!({"rule": rule, "message": message}));
    serde_json::from_value(rules.collect()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `STRATUM_UPDATE_DEPLOY=1 cargo test helmcharts_yaml` writes the file.
    #[test]
    fn helmcharts_yaml_is_made_from_the_types() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/bootstrap/helmcharts.yaml");
        let definitions = definitions().map(|definition| serde_saphyr::to_string(&definition).unwrap());
        let text = format!(
            "# The kinds HelmChart and HelmChartConfig, made from their types in src/controllers/helm/object.rs.\n{}",
            definitions.join("---\n")
        );
        if std::env::var_os("STRATUM_UPDATE_DEPLOY").is_some() {
            crate::host::atomic_file::write(path.as_ref(), text.as_bytes(), crate::host::atomic_file::Access::Public)
                .unwrap();
        }
        assert_eq!(std::fs::read_to_string(path).unwrap_or_default(), text);
        assert!(text.contains("self.metadata.name.size()") && text.contains("oldSelf"));
    }
}
