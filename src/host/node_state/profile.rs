//! The profiles a node can follow.

use std::fmt;
use std::path::{Path, PathBuf};

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

/// That an operation is not begun on a node whose profile this binary does not register.
#[derive(Debug, thiserror::Error)]
#[error("'{operation}' is not begun on this node: {} names its profile, and {profile}", path.display())]
pub struct ForeignProfile {
    operation: String,
    path: PathBuf,
    profile: UnknownProfile,
}

/// Refuses an operation on a node whose saved profile this binary does not register, before it changes anything: what it
/// renders later would stop on the same profile, in the middle (seed `RequireNodeProfile`). A machine without a node state
/// runs no profile, and what else is wrong with the file is for its reader to say. `operation` is spelled as its command.
///
/// # Errors
/// Names the profile and those there are.
pub fn require_node_profile(node_state: &Path, operation: &str) -> Result<(), ForeignProfile> {
    #[derive(Deserialize)]
    struct Saved {
        profile: Option<String>,
    }
    let Ok(text) = std::fs::read_to_string(node_state) else {
        return Ok(());
    };
    let saved: Option<Saved> = serde_saphyr::from_str(&text).ok();
    match saved.and_then(|saved| saved.profile).map(Profile::try_from) {
        Some(Err(profile)) => Err(ForeignProfile {
            operation: operation.to_owned(),
            path: node_state.to_owned(),
            profile,
        }),
        Some(Ok(_)) | None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::atomic_file::{self, Access};
    use super::*;

    #[test]
    fn only_a_saved_profile_that_is_not_registered_is_in_the_way() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("node.yaml");
        require_node_profile(&path, "stratum certs rotate").unwrap();
        for fine in ["version: 1\nprofile: cis\n...\n", "version: 1\n", ":"] {
            atomic_file::write(&path, fine.as_bytes(), Access::Secret).unwrap();
            require_node_profile(&path, "stratum certs rotate").unwrap();
        }
        atomic_file::write(&path, b"version: 1\nprofile: pro\n...\n", Access::Secret).unwrap();
        let error = require_node_profile(&path, "stratum certs rotate")
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("'stratum certs rotate'") && error.contains("\"pro\""),
            "{error}"
        );
        assert!(error.contains("default, cis"), "{error}");
    }
}
