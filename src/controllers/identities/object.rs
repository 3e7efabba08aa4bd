//! The kind NodeIdentity. `deploy/bootstrap/nodeidentities.yaml` is made from it.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::reconcilers::csr::identity::Identity;

/// What the cluster remembers of a node's name: which Node has it, who claimed it, until when its certificate lives, and
/// the addresses it was the first to have. Written by the operator alone; `stratum node forget NAME` deletes it.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "stratum.ciq.com",
    version = "v1",
    kind = "NodeIdentity",
    plural = "nodeidentities",
    singular = "nodeidentity",
    derive = "PartialEq",
    printcolumn = r#"{"name":"Claimed by","type":"string","jsonPath":".spec.claim.requester"}"#,
    printcolumn = r#"{"name":"Certificate until","type":"string","jsonPath":".spec.certificate.notAfter"}"#,
    printcolumn = r#"{"name":"Addresses","type":"string","jsonPath":".spec.addresses[*].address"}"#
)]
pub struct NodeIdentitySpec {
    /// The record.
    #[serde(flatten)]
    pub identity: Identity,
}

#[cfg(test)]
mod tests {
    use kube::CustomResourceExt;

    use super::*;

    /// `STRATUM_UPDATE_DEPLOY=1 cargo test nodeidentities_yaml` writes the file.
    #[test]
    fn nodeidentities_yaml_is_made_from_the_type() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/bootstrap/nodeidentities.yaml");
        let definition = serde_saphyr::to_string(&NodeIdentity::crd()).unwrap();
        let text = format!(
            "# The kind NodeIdentity, made from its type in src/controllers/identities/object.rs.\n{definition}"
        );
        if std::env::var_os("STRATUM_UPDATE_DEPLOY").is_some() {
            crate::host::atomic_file::write(path.as_ref(), text.as_bytes(), crate::host::atomic_file::Access::Public)
                .unwrap();
        }
        assert_eq!(std::fs::read_to_string(path).unwrap_or_default(), text);
    }
}
