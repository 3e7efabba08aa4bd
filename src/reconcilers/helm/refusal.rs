//! Why a HelmChart is not accepted.

use super::ChartId;

/// Why a HelmChart is not accepted. Nothing of it is carried out, and what is deployed stays as it is.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, strum::IntoStaticStr)]
pub enum Refusal {
    /// Nothing says which chart.
    #[error("it names no chart: set spec.chart or spec.chartContent")]
    NoChart,
    /// Two say it.
    #[error("it has both spec.chart and spec.chartContent: remove one of them")]
    TwoCharts,
    /// It would be taken for a flag of helm's.
    #[error("spec.{field} is {value:?}, which begins with '-' and would be taken for a flag of helm's: correct it")]
    LikeAFlag {
        /// The field.
        field: &'static str,
        /// What it says.
        value: String,
    },
    /// A name that no object of its kind can have.
    #[error("spec.{field} is {value:?}, which is no name of a {kind}: correct it")]
    NotAName {
        /// The field.
        field: &'static str,
        /// What it says.
        value: String,
        /// Of what it should be the name.
        kind: &'static str,
    },
    /// The release would have its name.
    #[error("its name has {length} characters, and the name of a release at most 53: give it a shorter one")]
    LongName {
        /// How many it has.
        length: usize,
    },
    /// A version of helm that is not run.
    #[error("spec.helmVersion is {0:?}: leave it out, helm 4 is run")]
    HelmVersion(String),
    /// It is no duration.
    #[error("spec.timeout is {0:?}: write a duration of at least a second and at most a day, such as 90s, 5m or 1h30m")]
    Timeout(String),
    /// It is no map.
    #[error("the values of {0} are not a map of names to values: correct them")]
    NotAMap(String),
    /// It is not YAML.
    #[error("the values of {place} are not YAML: {reason}")]
    NotYaml {
        /// Where they are.
        place: String,
        /// What is wrong.
        reason: String,
    },
    /// An object that is named is not there.
    #[error(
        "{kind} {name} in namespace {namespace} is not there: create it, or set ignoreUpdates if it may be missing"
    )]
    Missing {
        /// `Secret` or `ConfigMap`.
        kind: &'static str,
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
    },
    /// A key that is named is not in it.
    #[error("{kind} {name} has no key {key}")]
    MissingKey {
        /// `Secret` or `ConfigMap`.
        kind: &'static str,
        /// Its name.
        name: String,
        /// The key.
        key: String,
    },
    /// It is no chart.
    #[error("spec.chartContent is no .tgz in base64")]
    Content,
    /// Values would be read by everybody who may read ConfigMaps.
    #[error("spec.driver is configmap: leave it out, releases are kept in Secrets")]
    Driver,
    /// The file is not there.
    #[error(
        "{path} is not below the manifests folder of this controller ({reason}): put it there, on every controller"
    )]
    NoFile {
        /// The file.
        path: String,
        /// What the system said.
        reason: String,
    },
    /// A path that leads somewhere else.
    #[error("spec.chart is {0:?}: name a .tgz file below the manifests folder, without '..'")]
    Path(String),
    /// An address that helm does not know.
    #[error("spec.{field} is {value:?}: write an address that begins with {schemes}")]
    Address {
        /// The field.
        field: &'static str,
        /// What it says.
        value: String,
        /// What it may begin with.
        schemes: &'static str,
    },
    /// Charts of this namespace do not get the deployer's rights.
    #[error(
        "charts in namespace {namespace} do not have the operator's rights: name a ServiceAccount of that namespace in spec.serviceAccountName"
    )]
    NoServiceAccount {
        /// The HelmChart's namespace.
        namespace: String,
    },
    /// It would install elsewhere.
    #[error(
        "charts in namespace {namespace} install there only: leave out spec.targetNamespace and spec.createNamespace"
    )]
    OtherNamespace {
        /// The HelmChart's namespace.
        namespace: String,
    },
    /// It would make this host ask somebody, or read its files.
    #[error(
        "charts in namespace {namespace} come from spec.chartContent or from hosts that the operator allows (--helm-repository-hosts), and this one from {from}"
    )]
    NotAllowed {
        /// The HelmChart's namespace.
        namespace: String,
        /// Where it comes from.
        from: String,
    },
    /// helm would have it as an argument, which everybody on the machine sees.
    #[error(
        "a chart that is named by the address of its archive cannot be fetched with a password: name its repository in spec.repo"
    )]
    PasswordForAddress,
    /// A dependency that names nothing.
    #[error("spec.dependsOn names {0:?}: write the name of a HelmChart, or its namespace, '/' and its name")]
    Dependency(String),
    /// It waits for itself.
    #[error("it depends on itself: {}", path.iter().map(ToString::to_string).collect::<Vec<_>>().join(" -> "))]
    Cycle {
        /// Around.
        path: Vec<ChartId>,
    },
}

impl Refusal {
    /// One word.
    #[must_use]
    pub fn word(&self) -> &'static str {
        self.into()
    }
}
