//! What tells one wish from another: SHA-256 over everything that makes another revision.

use secrecy::ExposeSecret;
use sha2::{Digest as _, Sha256};

use super::spec::{ChartSpec, ConfigSpec};
use super::values::Document;
use crate::pki::hexadecimal;

/// How many digits a label holds.
const IN_LABEL: usize = 40;

/// The digest of a wish.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Digest(String);

impl Digest {
    /// All 64 digits.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// As many of them as stand in a release's label.
    #[must_use]
    pub fn label(&self) -> &str {
        self.0.get(..IN_LABEL).unwrap_or(&self.0)
    }
}

/// The digest of what a HelmChart and its config ask for. `file` is the SHA-256 of the chart where it is a file.
///
/// What only says how or when is left out: how long helm may take, what follows a failure, credentials of the repository.
#[must_use]
pub fn digest(spec: &ChartSpec, config: Option<&ConfigSpec>, documents: &[Document], file: Option<&str>) -> Digest {
    let server_side = config.and_then(|config| config.server_side).or(spec.server_side);
    let force = config
        .and_then(|config| config.force_conflicts)
        .unwrap_or(spec.force_conflicts);
    let shape = serde_json::json!({
        "chart": spec.chart, "version": spec.version, "repo": spec.repo, "content": spec.chart_content, "file": file,
        "namespace": spec.target_namespace, "set": spec.set, "crds": spec.crds, "takeOwnership": spec.take_ownership,
        "serverSide": server_side, "forceConflicts": force, "serviceAccount": spec.service_account_name,
    });
    let mut digest = Sha256::new();
    let mut part = |bytes: &[u8]| {
        // The length keeps two documents apart from one of both texts.
        digest.update(u64::try_from(bytes.len()).unwrap_or(u64::MAX).to_be_bytes());
        digest.update(bytes);
    };
    part(shape.to_string().as_bytes());
    for document in documents.iter().filter(|document| document.counts) {
        part(document.text.expose_secret().as_bytes());
    }
    Digest(hexadecimal(&digest.finalize()))
}
