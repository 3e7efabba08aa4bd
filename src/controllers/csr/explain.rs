//! Why requests wait, for a person who asks: the same decisions, on what the API server says now.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use kube::Client;
use strum::IntoEnumIterator;

use super::{Networks, Root, objects};
use crate::controllers::cluster::{self, CallError, pages};
use crate::controllers::identities::{Identities, NodeIdentity, view};
use crate::controllers::nodes::Node;
use crate::reconcilers::csr::identity::{Holders, Identity, NodeView};
use crate::reconcilers::csr::{Decision, Reason, Request, Signer, Standing, bootstrap, serving};

/// A request that nobody has decided, as the operator would decide it now.
#[derive(Clone, Debug)]
pub struct Explained {
    /// Its name.
    pub name: String,
    /// Whose business it is.
    pub signer: Signer,
    /// Who asks.
    pub requester: String,
    /// How long it has been waiting.
    pub age: Duration,
    /// Why it waits; none when it is approved in the next moment, or left to another controller.
    pub reason: Option<Reason>,
}

/// Everything the decisions need.
struct World {
    nodes: BTreeMap<String, NodeView>,
    identities: BTreeMap<String, Identity>,
    holders: Holders,
    network: super::Answer,
}

/// The requests of both signers that wait, oldest first. The cluster's domain is in the inventory of `namespace`.
///
/// # Errors
/// When the API server refuses or does not answer.
pub async fn explain(client: &Client, namespace: &str, now: Timestamp) -> Result<Vec<Explained>, CallError> {
    let world = observe(client, namespace).await?;
    let path = cluster::collection_path("certificates.k8s.io", "v1", "certificatesigningrequests", None);
    let mut explained = Vec::new();
    for signer in Signer::iter() {
        let own = pages::selector("fieldSelector", &format!("spec.signerName={}", signer.name()));
        let roots: Vec<Root> = pages::all(client, &path, &own, "application/json").await?;
        for root in roots {
            let request = objects::request(&root);
            if request.standing == Standing::Pending {
                explained.push(Explained {
                    age: objects::age(&root, now),
                    reason: world.reason(signer, &request, now),
                    name: request.name,
                    signer,
                    requester: request.requester,
                });
            }
        }
    }
    explained.sort_by(|one, other| (other.age, &one.name).cmp(&(one.age, &other.name)));
    Ok(explained)
}

async fn observe(client: &Client, namespace: &str) -> Result<World, CallError> {
    let nodes = cluster::collection_path("", "v1", "nodes", None);
    let nodes: Vec<Node> = pages::all(client, &nodes, "", "application/json").await?;
    let records: Vec<NodeIdentity> = pages::all(client, &Identities::path(), "", "application/json").await?;
    let mut world = World {
        nodes: nodes
            .iter()
            .map(|node| (node.facts.name.to_string(), view(&node.facts)))
            .collect(),
        identities: BTreeMap::new(),
        holders: Holders::default(),
        network: Networks::new(client.clone(), namespace).get().await,
    };
    for record in records {
        let name = record.metadata.name.unwrap_or_default();
        world.holders.insert(&name, &record.spec.identity);
        world.identities.insert(name, record.spec.identity);
    }
    Ok(world)
}

impl World {
    fn reason(&self, signer: Signer, request: &Request, now: Timestamp) -> Option<Reason> {
        let decision = match signer {
            Signer::KubeletServing => {
                let world = serving::World {
                    node: serving::node_of(request).and_then(|name| self.nodes.get(name)),
                    holders: &self.holders,
                    network: self.network.as_deref().map_err(|problem| &**problem),
                };
                serving::decide(request, world)
            }
            Signer::KubeletClient => match bootstrap::read(request) {
                Err(reason) => Decision::Wait(reason),
                Ok(None) => Decision::Settled,
                Ok(Some(claimant)) => {
                    let world = bootstrap::World {
                        registered: self.nodes.contains_key(&claimant.node),
                        identity: self.identities.get(&claimant.node),
                    };
                    bootstrap::decide(request, &claimant, world, now)
                }
            },
        };
        match decision {
            Decision::Wait(reason) => Some(reason),
            Decision::Approve | Decision::Settled => None,
        }
    }
}
