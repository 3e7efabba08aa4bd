//! The members of etcd: who they are, and how one comes and goes.
//!
//! Asked over the JSON gateway that every etcd serves beside gRPC (etcd documentation, "gRPC gateway"), with the client
//! certificate for health checks. What may be done is decided in [`members`].

pub mod members;

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use http::Method;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::clock;
use super::https::{self, Client};
use super::layout::Layout;
use members::{Member, MemberId, Members};

/// The port of clients.
pub const CLIENT_PORT: u16 = 2379;
/// The port of other members.
pub const PEER_PORT: u16 = 2380;
/// A change of members waits for a quorum, which an election can hold up.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long etcd may take until it is connected to a member that came back: some election timeouts, and 5 s.
const SETTLED_WITHIN: Duration = Duration::from_secs(20);
/// How often it is asked again.
const PACE: Duration = Duration::from_millis(500);

/// Where the member of a node listens to clients.
#[must_use]
pub fn client_address(node: IpAddr) -> SocketAddr {
    SocketAddr::from((node, CLIENT_PORT))
}

/// The URL under which clients reach the member at an address.
#[must_use]
pub fn client_url(address: IpAddr) -> String {
    format!("https://{}", client_address(address))
}

/// Why etcd did not do it.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// None of the members answered; what the last one said.
    #[error("none of the members of etcd answers ({})", servers.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "))]
    NoneAnswers {
        /// Which were asked.
        servers: Vec<SocketAddr>,
        /// What became of the last question; none when nobody was there to ask.
        #[source]
        source: Option<https::Error>,
    },
    /// It refused.
    #[error("etcd at {server} refused {path}: {message}")]
    Refused {
        /// The member that answered.
        server: SocketAddr,
        /// What was asked for.
        path: &'static str,
        /// Its reason.
        message: String,
    },
    /// The answer is none.
    #[error("the answer of etcd at {server} to {path} is not understood")]
    Answer {
        /// The member that answered.
        server: SocketAddr,
        /// What was asked for.
        path: &'static str,
        /// What is wrong with it.
        #[source]
        source: serde_json::Error,
    },
}

impl Error {
    /// Whether etcd changes no members for the moment: it does not until it has been connected to each of them for 5 s
    /// (`HealthInterval`, with `--strict-reconfig-check`), so for one that came back just now it says the same as for one
    /// that is gone.
    fn is_unsettled(&self) -> bool {
        matches!(self, Self::Refused { message, .. } if message == "etcdserver: unhealthy cluster")
    }
}

/// A client of etcd's members.
#[derive(Clone, Debug)]
pub struct Etcd {
    client: Client,
    servers: Vec<SocketAddr>,
}

#[derive(Deserialize)]
struct Listed {
    #[serde(default)]
    members: Vec<Row>,
}

#[derive(Deserialize)]
struct Added {
    member: Row,
}

#[derive(Deserialize)]
struct Refusal {
    #[serde(default)]
    message: String,
}

/// A member as the gateway spells it; what is zero or empty is left out, and ids are decimal text.
#[derive(Deserialize, Serialize)]
struct Row {
    #[serde(rename = "ID")]
    id: String,
    #[serde(default)]
    name: String,
    #[serde(default, rename = "peerURLs")]
    peer_urls: Vec<String>,
    #[serde(default, rename = "isLearner")]
    is_learner: bool,
}

impl From<Row> for Member {
    fn from(row: Row) -> Self {
        Self {
            id: MemberId(row.id),
            name: row.name,
            peer_urls: row.peer_urls,
            is_learner: row.is_learner,
        }
    }
}

impl Etcd {
    /// A client of the members at `servers`, tried in this order, with the certificate for health checks below `layout`.
    ///
    /// # Errors
    /// Names the file that cannot be used.
    pub fn new(layout: &Layout, servers: Vec<SocketAddr>) -> Result<Self, https::Error> {
        let pki = layout.pki().join("etcd");
        let [authorities, certificate, key] =
            ["ca-bundle.crt", "healthcheck-client.crt", "healthcheck-client.key"].map(|name| pki.join(name));
        Ok(Self {
            client: Client::new(&authorities, &certificate, &key)?,
            servers,
        })
    }

    /// All members, as a quorum of them agrees.
    ///
    /// # Errors
    /// When there is no quorum, or nobody answers.
    pub async fn members(&self) -> Result<Members, Error> {
        let listed: Listed = self
            .call("/v3/cluster/member/list", &json!({"linearizable": true}))
            .await?;
        Ok(Members(listed.members.into_iter().map(Member::from).collect()))
    }

    /// Adds a member that has no vote until it is promoted, so that its slow start costs the others nothing.
    ///
    /// # Errors
    /// When etcd refuses, as it does while another learner is there.
    pub async fn add_learner(&self, peer_url: &str) -> Result<Member, Error> {
        let body = json!({"peerURLs": [peer_url], "isLearner": true});
        let added: Added = self.change("/v3/cluster/member/add", &body).await?;
        Ok(added.member.into())
    }

    /// Gives a learner its vote.
    ///
    /// # Errors
    /// When etcd refuses, as it does until the learner has caught up.
    pub async fn promote(&self, member: &MemberId) -> Result<(), Error> {
        let body = json!({"ID": member.0});
        self.call::<Value>("/v3/cluster/member/promote", &body)
            .await
            .map(|_| ())
    }

    /// Removes a member.
    ///
    /// # Errors
    /// When etcd refuses, as it does when too few of the others would be well.
    pub async fn remove(&self, member: &MemberId) -> Result<(), Error> {
        let body = json!({"ID": member.0});
        self.change::<Value>("/v3/cluster/member/remove", &body)
            .await
            .map(|_| ())
    }

    /// Asks for other members, again while etcd waits for its own: see [`Error::is_unsettled`].
    async fn change<T: serde::de::DeserializeOwned>(&self, path: &'static str, body: &Value) -> Result<T, Error> {
        let began = clock::monotonic();
        loop {
            match self.call(path, body).await {
                Err(error) if error.is_unsettled() && began.elapsed() < SETTLED_WITHIN => clock::sleep(PACE).await,
                done => return done,
            }
        }
    }

    /// Asks one member after another. One that answers, with whatever, is the last one asked.
    async fn call<T: serde::de::DeserializeOwned>(&self, path: &'static str, body: &Value) -> Result<T, Error> {
        let mut last = None;
        for server in &self.servers {
            let server = *server;
            match self
                .client
                .ask(server, Method::POST, path, body.to_string(), PATIENCE)
                .await
            {
                Ok(answer) => return understand(server, path, &answer),
                Err(error) => last = Some(error),
            }
        }
        Err(Error::NoneAnswers {
            servers: self.servers.clone(),
            source: last,
        })
    }
}

fn understand<T: serde::de::DeserializeOwned>(
    server: SocketAddr,
    path: &'static str,
    answer: &https::Answer,
) -> Result<T, Error> {
    if answer.status == 200 {
        return serde_json::from_slice(&answer.body).map_err(|source| Error::Answer { server, path, source });
    }
    let said = serde_json::from_slice(&answer.body).unwrap_or(Refusal { message: String::new() });
    let message = if said.message.is_empty() {
        format!("status {}", answer.status)
    } else {
        said.message
    };
    Err(Error::Refused { server, path, message })
}
