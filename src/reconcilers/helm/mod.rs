//! Charts: what a HelmChart asks for, what its release is, and what is to be done about the difference.
//!
//! The names and the meaning of the fields are those of `helm.cattle.io/v1`, so that a user of k3s changes one line.
//! Nothing here runs `helm`.
//!
//! | module | what |
//! |---|---|
//! | `spec` | what was asked for, and what the status tells |
//! | `refusal` | why it is not accepted |
//! | `source` | where the chart comes from, and who may use which source |
//! | `values` | the documents that helm is given, in their order |
//! | `digest` | what tells one wish from another |
//! | `release` | what helm has stored of a release |
//! | `decide` | what is to be done, and why |
//! | `orphans` | releases whose HelmChart is gone |
//! | `command` | the arguments of helm |

pub mod command;
pub mod decide;
pub mod digest;
pub mod orphans;
pub mod refusal;
pub mod release;
pub mod source;
pub mod spec;
#[cfg(test)]
mod tests;
pub mod values;

use std::fmt;

/// The label of a release with the namespace of its HelmChart.
pub const NAMESPACE_LABEL: &str = "stratum.ciq.com/helmchart-namespace";
/// The label of a release with the name of its HelmChart.
pub const NAME_LABEL: &str = "stratum.ciq.com/helmchart-name";
/// The label of a release with the first 40 digits of the digest of what was applied.
pub const DIGEST_LABEL: &str = "stratum.ciq.com/helmchart-digest";

/// Which HelmChart.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChartId {
    /// Its namespace.
    pub namespace: String,
    /// Its name, which is the release's too.
    pub name: String,
}

impl ChartId {
    /// The HelmChart of this name.
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
        }
    }
}

impl fmt::Display for ChartId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.namespace, self.name)
    }
}

/// Which release: helm tells releases apart by namespace and name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReleaseId {
    /// The namespace it is installed in.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl fmt::Display for ReleaseId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} in namespace {}", self.name, self.namespace)
    }
}
