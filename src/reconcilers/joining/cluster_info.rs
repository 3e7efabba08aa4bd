//! ConfigMap `kube-public/cluster-info`: where the API servers are and which authorities are theirs, for everybody to read,
//! with a signature for each token beside it.
//!
//! A machine that joins knows a token and a pin; the signature proves that whoever published this knows the token. Signatures
//! are those of kube-controller-manager's `bootstrapsigner`, byte for byte. They are written here too, for three
//! reasons: a token works in the moment it is printed; content and signatures change in one write, so that no joiner meets
//! a stale signature, which it has to take for an attack; and a cluster without that controller works.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde::Deserialize;

use super::token::Found;
use crate::pki::certificate::{self, Certificate};
use crate::pki::jws;
use crate::reconcilers::bootstrap_token::TokenId;
use crate::text::yaml_fault;

/// Its namespace.
pub const NAMESPACE: &str = "kube-public";
/// Its name.
pub const NAME: &str = "cluster-info";
/// The key of what is signed.
pub const KUBECONFIG: &str = "kubeconfig";

const SIGNATURE_PREFIX: &str = "jws-kubeconfig-";

/// The key of a token's signature.
#[must_use]
pub fn signature_key(id: &TokenId) -> String {
    format!("{SIGNATURE_PREFIX}{id}")
}

/// The kubeconfig that is published: a server and its authorities, and no user.
#[must_use]
pub fn render(server: &str, bundle: &[Certificate]) -> String {
    let pem: String = bundle.iter().map(Certificate::to_pem).collect();
    // A string of JSON is one of YAML, whatever stands in it.
    let server = serde_json::Value::from(server);
    format!(
        "apiVersion: v1\nkind: Config\nclusters:\n- name: \"\"\n  cluster:\n    server: {server}\n    certificate-authority-data: {}\ncontexts: []\ncurrent-context: \"\"\npreferences: {{}}\nusers: []\n",
        STANDARD.encode(pem)
    )
}

/// What is published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Published {
    /// The URL of the API servers, `https://HOST:PORT`.
    pub server: String,
    /// Their authorities; more than one while one takes over from another.
    pub bundle: Vec<Certificate>,
}

/// A published kubeconfig that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Malformed {
    /// It is no kubeconfig.
    #[error("it is no kubeconfig: {0}")]
    Yaml(String),
    /// It names no cluster, or several of which none is the current one.
    #[error("it names {0} clusters, and not which one is meant")]
    Clusters(usize),
    /// A field of its cluster is missing or empty.
    #[error("its cluster has no {0}")]
    Field(&'static str),
    /// The authorities are not base64.
    #[error("its certificate-authority-data is not base64")]
    Base64(#[source] base64::DecodeError),
    /// The authorities are no certificates.
    #[error("its certificate-authority-data cannot be used")]
    Bundle(#[source] certificate::Error),
}

/// Reads a published kubeconfig: ours, or kubeadm's.
///
/// # Errors
/// Says what is missing or broken.
pub fn parse(text: &str) -> Result<Published, Malformed> {
    let file: File = serde_saphyr::from_str(text).map_err(|error| Malformed::Yaml(yaml_fault(&error)))?;
    let File {
        clusters,
        contexts,
        current,
    } = file;
    let mut clusters = clusters.unwrap_or_default();
    let named = contexts
        .unwrap_or_default()
        .into_iter()
        .find(|context| context.name == current);
    let wanted = named.and_then(|named| named.context.cluster);
    let cluster = match (wanted, clusters.len()) {
        (Some(wanted), count) => {
            let found = clusters.into_iter().find(|cluster| cluster.name == wanted);
            found.ok_or(Malformed::Clusters(count))?
        }
        (None, 1) => clusters.remove(0),
        (None, count) => return Err(Malformed::Clusters(count)),
    };
    let filled = |field: Option<String>, name| field.filter(|text| !text.is_empty()).ok_or(Malformed::Field(name));
    let server = filled(cluster.cluster.server, "server")?;
    let authorities = filled(cluster.cluster.authorities, "certificate-authority-data")?;
    let pem = STANDARD.decode(authorities.trim()).map_err(Malformed::Base64)?;
    let bundle = Certificate::bundle_from_pem(&pem).map_err(Malformed::Bundle)?;
    Ok(Published { server, bundle })
}

/// What has to change in the ConfigMap's data so that it says `kubeconfig` (none: what it says already) and holds exactly
/// the signatures of the tokens that sign it now. A key without a value goes. Empty when everything is as it should be, or
/// when there is nothing that could be signed.
#[must_use]
pub fn changes(
    data: &BTreeMap<String, String>,
    kubeconfig: Option<&str>,
    tokens: &[Found],
    now: Timestamp,
) -> BTreeMap<String, Option<String>> {
    let Some(content) = kubeconfig.or(data.get(KUBECONFIG).map(String::as_str)) else {
        return BTreeMap::new();
    };
    let signatures = tokens.iter().filter_map(|token| {
        let secret = token.signing_secret(now)?;
        let signature = jws::detached(secret, token.id.as_str(), content.as_bytes());
        Some((signature_key(&token.id), signature))
    });
    let mut wanted: BTreeMap<String, String> = signatures.collect();
    wanted.insert(KUBECONFIG.to_owned(), content.to_owned());
    let gone = data
        .keys()
        .filter(|key| key.starts_with(SIGNATURE_PREFIX) && !wanted.contains_key(*key))
        .map(|key| (key.clone(), None));
    let mut changes: BTreeMap<String, Option<String>> = gone.collect();
    changes.extend(
        wanted
            .into_iter()
            .filter(|(key, value)| data.get(key) != Some(value))
            .map(|(key, value)| (key, Some(value))),
    );
    changes
}

#[derive(Deserialize)]
struct File {
    clusters: Option<Vec<Cluster>>,
    contexts: Option<Vec<Context>>,
    #[serde(rename = "current-context", default)]
    current: String,
}

#[derive(Deserialize)]
struct Cluster {
    #[serde(default)]
    name: String,
    cluster: ClusterFields,
}

#[derive(Deserialize)]
struct ClusterFields {
    server: Option<String>,
    #[serde(rename = "certificate-authority-data")]
    authorities: Option<String>,
}

#[derive(Deserialize)]
struct Context {
    #[serde(default)]
    name: String,
    context: ContextFields,
}

#[derive(Deserialize)]
struct ContextFields {
    cluster: Option<String>,
}

#[cfg(test)]
mod tests;
