//! How a machine that knows an endpoint, a token and a pin finds the cluster, and proves that it is the right one.
//!
//! `cluster-info` is read from whoever answers, believed by its signature and a pin, and read again from a server that a
//! pinned authority vouches for. Only then is the token sent, which also tells whether it works and what it admits. What may
//! pass by itself (a server that starts, a signature that is being renewed) is tried again for a while.

use std::collections::BTreeMap;
use std::time::Duration;

use http::{HeaderValue, Method, Request, StatusCode, header};
use jiff::{SignedDuration, Timestamp};
use kube::Client;
use serde::Deserialize;
use serde_json::json;
use zeroize::Zeroizing;

use super::wire::{Limits, Peer, Reply, Trust, WireError};
use crate::host::clock;
use crate::host::node_state::Endpoint;
use crate::pki::certificate::Certificate;
use crate::pki::pin::Pin;
use crate::reconcilers::bootstrap_token::{BootstrapToken, TokenId};
use crate::reconcilers::joining::cluster_info::{NAME, NAMESPACE};
use crate::reconcilers::joining::token::Kind;
use crate::reconcilers::joining::verify::{self, Believed, ClocksDiffer, Refusal, Server, ServerRefusal};

/// What a machine was told.
#[derive(Clone, Copy, Debug)]
pub struct Told<'a> {
    /// Where the API servers are.
    pub endpoint: &'a Endpoint,
    /// The token.
    pub token: &'a BootstrapToken,
    /// The authorities it has to find: at least one of them, in any order.
    pub pins: &'a [Pin],
    /// What it is to become.
    pub kind: Kind,
}

/// A cluster that was found and proved itself.
#[derive(Clone, Debug)]
pub struct Discovered {
    /// The URL that the cluster names for its API servers; not always the endpoint that was told.
    pub server: String,
    /// Every authority of the cluster, to be trusted from now on.
    pub bundle: Vec<Certificate>,
    /// How far the server's clock is ahead of this machine's; none when it did not tell.
    pub ahead: Option<SignedDuration>,
    /// For the requests that follow.
    peer: Peer,
}

/// Why there is no cluster to join. Nothing was changed, here or there.
#[derive(Debug, thiserror::Error)]
pub enum DiscoveryError {
    /// The server cannot be asked.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// Something else answers there.
    #[error(
        "{endpoint} is no Kubernetes API server (it answers with status {status}): check host and port, and whether a proxy answers in its place"
    )]
    NotKubernetes {
        /// `HOST:PORT`
        endpoint: String,
        /// The status of its answer.
        status: u16,
    },
    /// It answers, but not yet.
    #[error(
        "the API server at {endpoint} is not ready (status {status}): wait until 'stratum status' there says that it is, and join again"
    )]
    NotReady {
        /// `HOST:PORT`
        endpoint: String,
        /// The status of its answer.
        status: u16,
    },
    /// It tells strangers nothing.
    #[error(
        "the API server at {endpoint} does not show cluster-info to whoever joins (status {status}): 'stratum up' on a controller binds it again; anonymous requests have to be enabled for that one path"
    )]
    Hidden {
        /// `HOST:PORT`
        endpoint: String,
        /// The status of its answer.
        status: u16,
    },
    /// It has none.
    #[error(
        "the cluster at {endpoint} publishes no cluster-info: it is not ready yet, or was not made for joining; 'stratum up' on a controller publishes it"
    )]
    NoClusterInfo {
        /// `HOST:PORT`
        endpoint: String,
    },
    /// It is not believed.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The server is not taken for one of the cluster.
    #[error(transparent)]
    Server(#[from] ServerRefusal),
    /// The clocks differ.
    #[error(transparent)]
    Clocks(#[from] ClocksDiffer),
    /// It said one thing at first, and another when it had proved itself.
    #[error(
        "what {endpoint} says changes while it is asked, or several servers answer there that do not say the same: join again when no CA rotation is going on"
    )]
    Changing {
        /// `HOST:PORT`
        endpoint: String,
    },
    /// The token does not work.
    #[error(
        "the API server does not accept token {id}: it expired or was deleted; make another one with 'stratum token create' on a controller"
    )]
    TokenRefused {
        /// The token.
        id: TokenId,
    },
    /// The token admits something else.
    #[error("token {id} admits {}, and this machine is to become a {wanted}: make one with 'stratum token create{}' on a controller",
        admits.map_or_else(|| "nobody".to_owned(), |kind| format!("a {kind}")),
        match wanted { Kind::Controller => " --control-plane", Kind::Worker => "" })]
    OtherKind {
        /// The token.
        id: TokenId,
        /// What it admits; none for one that was made for something else.
        admits: Option<Kind>,
        /// What is wanted.
        wanted: Kind,
    },
    /// The answer about the token is none.
    #[error("the API server at {endpoint} does not say who the token is (status {status})")]
    NoReview {
        /// `HOST:PORT`
        endpoint: String,
        /// The status of its answer.
        status: u16,
    },
}

impl DiscoveryError {
    /// How long it is worth trying again, of a whole patience.
    fn worth(&self, patience: Duration) -> Duration {
        match self {
            Self::Wire(WireError::Connect { .. } | WireError::Exchange { .. } | WireError::Resolve { .. })
            | Self::NotReady { .. }
            | Self::Changing { .. } => patience,
            // Its two writers, a CA rotation, and an API server that hears of a new token, are done in a moment.
            Self::Refused(Refusal::Empty | Refusal::NotSigned { .. } | Refusal::OtherSignature { .. })
            | Self::NoClusterInfo { .. }
            | Self::TokenRefused { .. } => patience.min(SIGNING),
            Self::Wire(
                WireError::Name { .. }
                | WireError::TimedOut { .. }
                | WireError::NotTls { .. }
                | WireError::Untrusted { .. }
                | WireError::Handshake { .. }
                | WireError::Setup(_),
            )
            | Self::Refused(Refusal::Malformed(_) | Refusal::NotPinned { .. } | Refusal::AuthorityOutOfDate { .. })
            | Self::NotKubernetes { .. }
            | Self::Hidden { .. }
            | Self::Server(_)
            | Self::Clocks(_)
            | Self::OtherKind { .. }
            | Self::NoReview { .. } => Duration::ZERO,
        }
    }
}

/// How long the signature of a token may be on its way.
const SIGNING: Duration = Duration::from_secs(4);
/// Between two tries.
const PAUSE: Duration = Duration::from_millis(500);

/// Finds the cluster that a machine was told of. `now` is this machine's clock.
///
/// # Errors
/// Says what is wrong and what to do; at the latest after the patience and one more try.
pub async fn discover(told: &Told<'_>, limits: Limits, now: Timestamp) -> Result<Discovered, DiscoveryError> {
    let began = clock::monotonic();
    loop {
        // The clock that was given goes on.
        let at = now.saturating_add(began.elapsed()).unwrap_or(now);
        match attempt(told, limits, at).await {
            Ok(found) => return Ok(found),
            Err(error) if began.elapsed() + PAUSE > error.worth(limits.patience) => return Err(error),
            Err(_) => clock::sleep(PAUSE).await,
        }
    }
}

async fn attempt(told: &Told<'_>, limits: Limits, now: Timestamp) -> Result<Discovered, DiscoveryError> {
    let mut peer = Peer {
        endpoint: told.endpoint.clone(),
        trust: Trust::Nobody,
        limits,
        now,
    };
    let (data, clock) = cluster_info(&peer).await?;
    let believed = verify::verify(&data, told.token, told.pins, now)?;
    peer.trust = Trust::Only(believed.pinned.clone());
    let again = cluster_info(&peer).await;
    let (data, clock) = again.map_err(|error| explained(error, &believed, told, clock, now))?;
    if verify::verify(&data, told.token, told.pins, now)? != believed {
        return Err(DiscoveryError::Changing {
            endpoint: told.endpoint.to_string(),
        });
    }
    let ahead = clock.map(|theirs| verify::check_clocks(now, theirs)).transpose()?;
    let admits = review(&peer, told.token).await?;
    if admits != Some(told.kind) {
        return Err(DiscoveryError::OtherKind {
            id: told.token.id().clone(),
            admits,
            wanted: told.kind,
        });
    }
    let Believed { published, pinned: _ } = believed;
    Ok(Discovered {
        server: published.server,
        bundle: published.bundle,
        ahead,
        peer,
    })
}

impl Discovered {
    /// A client with the rights of the token, for the few requests of a join: each over a connection of its own, to the
    /// endpoint that was told, which has to prove itself by a pinned authority. Nothing is written to a file.
    #[must_use]
    pub fn client(&self, token: &BootstrapToken) -> Client {
        let (peer, token) = (self.peer.clone(), token.clone());
        let service = tower::service_fn(move |request: Request<kube::client::Body>| {
            let (peer, token) = (peer.clone(), token.clone());
            async move {
                let (parts, body) = request.into_parts();
                let body = body.collect_bytes().await?;
                let mut request = Request::from_parts(parts, body.to_vec());
                request.headers_mut().insert(header::AUTHORIZATION, bearer(&token));
                let reply = peer.send(request).await?;
                let mut response = http::Response::new(http_body_util::Full::new(reply.body));
                *response.status_mut() = reply.status;
                Ok::<_, tower::BoxError>(response)
            }
        });
        Client::new(service, "default")
    }
}

/// Why a server that was read from before is not one of the cluster after all.
fn explained(
    error: DiscoveryError,
    believed: &Believed,
    told: &Told<'_>,
    clock: Option<Timestamp>,
    now: Timestamp,
) -> DiscoveryError {
    match &error {
        DiscoveryError::Wire(WireError::Untrusted {
            endpoint,
            certificate: Some(certificate),
            ..
        }) => {
            let server = Server {
                endpoint,
                certificate,
                clock,
            };
            verify::explain(server, &believed.published.bundle, told.pins, now).into()
        }
        _ => error,
    }
}

type Data = BTreeMap<String, String>;

#[derive(Deserialize)]
struct ConfigMap {
    kind: String,
    // Go leaves an empty map out.
    #[serde(default)]
    data: Data,
}

#[derive(Deserialize)]
struct Status {
    kind: String,
}

async fn cluster_info(peer: &Peer) -> Result<(Data, Option<Timestamp>), DiscoveryError> {
    let path = format!("/api/v1/namespaces/{NAMESPACE}/configmaps/{NAME}");
    let reply = peer.send(request(Method::GET, &path, Vec::new())).await?;
    let endpoint = peer.endpoint.to_string();
    let status = reply.status.as_u16();
    let is_status = serde_json::from_slice::<Status>(&reply.body).is_ok_and(|answer| answer.kind == "Status");
    match reply.status {
        StatusCode::OK => match serde_json::from_slice::<ConfigMap>(&reply.body) {
            Ok(found) if found.kind == "ConfigMap" => Ok((found.data, reply.clock)),
            Ok(_) | Err(_) => Err(DiscoveryError::NotKubernetes { endpoint, status }),
        },
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN if is_status => {
            Err(DiscoveryError::Hidden { endpoint, status })
        }
        StatusCode::NOT_FOUND if is_status => Err(DiscoveryError::NoClusterInfo { endpoint }),
        StatusCode::TOO_MANY_REQUESTS => Err(DiscoveryError::NotReady { endpoint, status }),
        other if other.is_server_error() => Err(DiscoveryError::NotReady { endpoint, status }),
        _ => Err(DiscoveryError::NotKubernetes { endpoint, status }),
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Review {
    status: ReviewStatus,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ReviewStatus {
    user_info: UserInfo,
}

#[derive(Deserialize)]
struct UserInfo {
    #[serde(default)]
    groups: Vec<String>,
}

/// What the API server says the token admits; every user may ask who it is.
async fn review(peer: &Peer, token: &BootstrapToken) -> Result<Option<Kind>, DiscoveryError> {
    let (version, kind) = ("authentication.k8s.io/v1", "SelfSubjectReview");
    let body = json!({"apiVersion": version, "kind": kind}).to_string().into_bytes();
    let mut request = request(Method::POST, &format!("/apis/{version}/selfsubjectreviews"), body);
    request.headers_mut().insert(header::AUTHORIZATION, bearer(token));
    let Reply { status, body, .. } = peer.send(request).await?;
    if status == StatusCode::UNAUTHORIZED {
        return Err(DiscoveryError::TokenRefused { id: token.id().clone() });
    }
    match serde_json::from_slice::<Review>(&body) {
        Ok(review) if status.is_success() => Ok(Kind::of_groups(&review.status.user_info.groups)),
        Ok(_) | Err(_) => Err(DiscoveryError::NoReview {
            endpoint: peer.endpoint.to_string(),
            status: status.as_u16(),
        }),
    }
}

fn request(method: Method, path: &str, body: Vec<u8>) -> Request<Vec<u8>> {
    crate::controllers::cluster::request(method, path, "application/json", Some(("application/json", body)))
}

fn bearer(token: &BootstrapToken) -> HeaderValue {
    let text = Zeroizing::new(format!("Bearer {}", *token.expose()));
    // Letters, digits and a dot always make a header.
    let mut value = HeaderValue::from_str(&text).unwrap_or(HeaderValue::from_static(""));
    value.set_sensitive(true);
    value
}
