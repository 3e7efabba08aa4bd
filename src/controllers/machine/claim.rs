//! How a machine that joins gets its kubelet's first client certificate: it asks itself, with its token, so that a name
//! that is taken and a request that nobody approves are told to whoever runs `stratum join`, and no token stays on disk.

use std::io::Write;
use std::time::Duration;

use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use kube::Client;
use serde::Deserialize;
use serde_json::json;

use crate::controllers::cluster::{self, CallError, CallErrorKind};
use crate::controllers::identities;
use crate::controllers::progress::tell;
use crate::controllers::{hands, nodes};
use crate::host::clock;
use crate::pki::certificate::Certificate;
use crate::pki::hexadecimal;
use crate::pki::key::Key;
use crate::pki::name::Subject;
use crate::pki::signing_request::{self, MakeError};
use crate::reconcilers::object::{GroupResource, ObjectId};

const SIGNER: &str = "kubernetes.io/kube-apiserver-client-kubelet";
/// How often the request is looked at.
const PACE: Duration = Duration::from_millis(500);
/// How often it is told again that it still waits.
const TELL: Duration = Duration::from_secs(10);

/// Why there is no certificate. Nothing was changed on this machine.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A Node has the name.
    #[error(
        "a Node {0} is registered already: choose another name with --node-name, or delete that Node if its machine is gone (kubectl delete node {0})"
    )]
    Registered(String),
    /// A machine that is not registered has, or had, the name.
    #[error(
        "the name {node} belongs to {holder} until {until}: choose another with --node-name; if that machine is gone, run 'stratum node forget {node}' on a controller"
    )]
    Held {
        /// The name.
        node: String,
        /// Who has it.
        holder: String,
        /// The end of its certificate.
        until: String,
    },
    /// The request cannot be made.
    #[error(transparent)]
    Make(#[from] MakeError),
    /// The API server refuses or does not answer.
    #[error("cannot ask for the node's certificate")]
    Call(#[source] CallError),
    /// Somebody said no, or the signer could not.
    #[error("certificate request {request} was refused: {reason}")]
    Refused {
        /// Its name.
        request: String,
        /// Why.
        reason: String,
        /// Somebody has denied it: the name was not given to this machine's key.
        denied: bool,
    },
    /// Nobody approved it.
    #[error("certificate request {request} was not approved within {} s: on a controller 'stratum operator csrs' tells why it waits", limit.as_secs())]
    NotApproved {
        /// Its name.
        request: String,
        /// How long it was waited for.
        limit: Duration,
    },
    /// It was approved, and nobody signed it.
    #[error("certificate request {request} is approved, but was not signed within {} s: is kube-controller-manager well?", limit.as_secs())]
    NotSigned {
        /// Its name.
        request: String,
        /// How long it was waited for.
        limit: Duration,
    },
    /// What came is not a certificate of this key.
    #[error("what was issued for certificate request {request} is no certificate of this node's key")]
    Foreign {
        /// Its name.
        request: String,
    },
}

/// What a record of a name says, as far as a joiner is told.
#[derive(Deserialize)]
struct Held {
    spec: HeldSpec,
}

#[derive(Deserialize)]
struct HeldSpec {
    #[serde(default)]
    claim: Option<HeldBy>,
    #[serde(default)]
    certificate: Option<HeldUntil>,
}

#[derive(Deserialize)]
struct HeldBy {
    key: String,
}

#[derive(Deserialize)]
struct HeldUntil {
    #[serde(rename = "notAfter")]
    not_after: jiff::Timestamp,
}

/// Refuses a name that a Node has. A cluster that does not let joiners ask is taken at its word later.
///
/// # Errors
/// [`Error::Registered`], or no answer.
pub async fn check_name(client: &Client, node: &str) -> Result<(), Error> {
    match nodes::look(client, node).await {
        Ok(Some(_)) => Err(Error::Registered(node.to_owned())),
        Ok(None) => Ok(()),
        Err(error) if error.kind() == CallErrorKind::Forbidden => Ok(()),
        Err(error) => Err(Error::Call(error)),
    }
}

/// Refuses a name that somebody has claimed, and who is not this machine: `own` is the key it claimed a name with before.
/// Only who claims a name is refused, for which a controller has no need.
///
/// # Errors
/// [`Error::Held`], or no answer.
pub async fn check_claim(client: &Client, node: &str, own: Option<&Key>) -> Result<(), Error> {
    let id = ObjectId {
        resource: GroupResource::new(identities::GROUP, identities::RESOURCE),
        namespace: None,
        name: node.to_owned(),
    };
    let path = cluster::object_path(&id, "v1");
    let held = match cluster::fetch::<Held>(client, &path, "application/json").await {
        Ok(held) => held,
        Err(error) if matches!(error.kind(), CallErrorKind::NotFound | CallErrorKind::Forbidden) => return Ok(()),
        Err(error) => return Err(Error::Call(error)),
    };
    let is_own = |claim: &HeldBy| own.is_some_and(|own| claim.key == digest(own));
    if held.spec.claim.as_ref().is_some_and(is_own) {
        return Ok(());
    }
    match held.spec.certificate {
        Some(end) if end.not_after > clock::now() => Err(Error::Held {
            node: node.to_owned(),
            holder: "another machine".to_owned(),
            until: end.not_after.to_string(),
        }),
        Some(_) | None => Ok(()),
    }
}

/// What a request waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Waits {
    ForApproval,
    ForSignature,
}

/// When it is told what a request waits for: at once, when that changes, and every [`TELL`].
#[derive(Default)]
struct Told(Option<(Waits, Duration)>);

impl Told {
    fn tell(&mut self, writer: &mut dyn Write, request: &str, waits: Waits, waited: Duration) {
        let line = match self.0 {
            Some((before, at)) if before == waits => {
                if waited < at + TELL {
                    return;
                }
                let what = match waits {
                    Waits::ForApproval => "approved",
                    Waits::ForSignature => "signed",
                };
                format!("still waiting for it to be {what}, {} s by now", waited.as_secs())
            }
            Some(_) | None => match waits {
                Waits::ForApproval => format!("certificate request {request} is made, and waits to be approved"),
                Waits::ForSignature => format!("certificate request {request} is approved, and waits to be signed"),
            },
        };
        self.0 = Some((waits, waited));
        tell(writer, line);
    }
}

/// Asks for the client certificate of a node's kubelet, and waits until it is issued; the chain as PEM. The same key asks
/// under the same name again. `writer` is told what is waited for, while it is.
///
/// # Errors
/// When the request is refused, or not approved and signed within `limit`.
pub async fn certificate(
    client: &Client,
    node: &str,
    key: &Key,
    limit: Duration,
    writer: &mut dyn Write,
) -> Result<Vec<u8>, Error> {
    let subject = Subject::user(format!("system:node:{node}")).in_group("system:nodes");
    let pem = signing_request::make(key, &subject)?;
    let request = format!("stratum-join-{node}-{:.10}", digest(key));
    let body = json!({
        "apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": {"name": request},
        "spec": {"signerName": SIGNER, "usages": ["digital signature", "client auth"],
            "request": ByteString(pem.into_bytes())},
    });
    let collection = cluster::collection_path("certificates.k8s.io", "v1", "certificatesigningrequests", None);
    match hands::store(client, &collection, &request, false, &body).await {
        Ok(_) => {}
        Err(error) if error.kind() == CallErrorKind::Conflict => {}
        Err(error) => return Err(Error::Call(error)),
    }
    let began = clock::monotonic();
    let mut told = Told::default();
    let path = format!("{collection}/{request}");
    loop {
        let status = match cluster::fetch::<CertificateSigningRequest>(client, &path, "application/json").await {
            Ok(found) => found.status.unwrap_or_default(),
            // An API server that restarts is no refusal.
            Err(error) if error.kind() == CallErrorKind::Unanswered && began.elapsed() <= limit => {
                clock::sleep(PACE).await;
                continue;
            }
            Err(error) => return Err(Error::Call(error)),
        };
        if let Some(ByteString(issued)) = status.certificate {
            let issued = own(&issued, key, request)?;
            tell(writer, format_args!("the certificate of node {node} is issued"));
            return Ok(issued);
        }
        let conditions = status.conditions.unwrap_or_default();
        let refusal = conditions.iter().find(|condition| condition.type_ != "Approved");
        if let Some(refusal) = refusal {
            let reason = refusal
                .message
                .clone()
                .or_else(|| refusal.reason.clone())
                .unwrap_or_default();
            let denied = refusal.type_ == "Denied";
            return Err(Error::Refused {
                request,
                reason,
                denied,
            });
        }
        let waits = if conditions.is_empty() {
            Waits::ForApproval
        } else {
            Waits::ForSignature
        };
        if began.elapsed() > limit {
            return Err(match waits {
                Waits::ForApproval => Error::NotApproved { request, limit },
                Waits::ForSignature => Error::NotSigned { request, limit },
            });
        }
        told.tell(writer, &request, waits, began.elapsed());
        clock::sleep(PACE).await;
    }
}

/// How a claim names its key.
fn digest(key: &Key) -> String {
    hexadecimal(&<sha2::Sha256 as sha2::Digest>::digest(key.public_key_der()))
}

fn own(issued: &[u8], key: &Key, request: String) -> Result<Vec<u8>, Error> {
    let chain = Certificate::bundle_from_pem(issued).unwrap_or_default();
    match chain.first() {
        Some(leaf) if leaf.public_key_der() == key.public_key_der() => Ok(issued.to_vec()),
        Some(_) | None => Err(Error::Foreign { request }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_waited_for_is_told_at_once_when_it_changes_and_now_and_then() {
        let mut told = Told::default();
        let mut at = |waits, seconds| {
            let mut line = Vec::new();
            told.tell(&mut line, "r", waits, Duration::from_secs(seconds));
            String::from_utf8(line).unwrap()
        };
        assert_eq!(
            at(Waits::ForApproval, 0),
            "certificate request r is made, and waits to be approved\n"
        );
        assert_eq!(at(Waits::ForApproval, 9), "");
        assert_eq!(
            at(Waits::ForApproval, 10),
            "still waiting for it to be approved, 10 s by now\n"
        );
        assert_eq!(at(Waits::ForApproval, 19), "");
        assert_eq!(
            at(Waits::ForSignature, 19),
            "certificate request r is approved, and waits to be signed\n"
        );
        assert_eq!(
            at(Waits::ForSignature, 31),
            "still waiting for it to be signed, 31 s by now\n"
        );
    }
}
