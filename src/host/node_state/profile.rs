//! The profiles a node can follow.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::{EnumString, IntoEnumIterator, IntoStaticStr};

/// A profile. Which files and settings one brings is a matter of what is rendered; a profile that is saved and not listed
/// here was registered by another build of this program, and is refused before anything is written.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    Hash,
    Serialize,
    Deserialize,
    JsonSchema,
    strum::Display,
    EnumString,
    IntoStaticStr,
    strum::EnumIter,
)]
#[serde(try_from = "String", into = "&'static str")]
#[schemars(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum Profile {
    /// What most clusters run.
    #[default]
    Default,
    /// What the CIS Kubernetes Benchmark asks for.
    Cis,
}

/// A profile this binary does not register.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownProfile(pub String);

impl fmt::Display for UnknownProfile {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known: Vec<&'static str> = Profile::iter().map(Into::into).collect();
        write!(
            formatter,
            "this binary has no profile {:?} (it has: {}); run the one that installed the node",
            self.0,
            known.join(", ")
        )
    }
}

impl std::error::Error for UnknownProfile {}

impl TryFrom<String> for Profile {
    type Error = UnknownProfile;

    fn try_from(name: String) -> Result<Self, UnknownProfile> {
        name.parse().map_err(|_| UnknownProfile(name))
    }
}

impl Profile {
    /// Whether the kubelet asks for its serving certificate by a CSR on controllers too.
    #[must_use]
    pub fn serving_bootstrap(self) -> bool {
        match self {
            Self::Default => false,
            Self::Cis => true,
        }
    }
}
