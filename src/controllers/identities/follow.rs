//! The concern that keeps each NodeIdentity in step with its Node: Nodes that were there before are adopted, and the
//! addresses a Node tells are recorded with when they were first seen.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use futures::StreamExt;
use futures::stream::{self, BoxStream};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Namespace;
use kube::runtime::watcher;
use kube::{Api, Client};

use super::{Identities, Stored};
use crate::controllers::cluster::{CallError, CallErrorKind};
use crate::controllers::concern::{Concern, ConcernName, Failure, Wake};
use crate::controllers::mirror::Change;
use crate::controllers::nodes::Nodes;
use crate::controllers::watching;
use crate::reconcilers::csr::identity::{Identity, NodeView, follow};
use crate::reconcilers::host_name::Host;
use crate::reconcilers::node::{AddressKind, NodeFacts};

/// Records written at one time.
const AT_ONE_TIME: usize = 8;

/// A Node as its identity follows it.
#[must_use]
pub fn view(facts: &NodeFacts) -> NodeView {
    // Kubelets ask for a name that is an address as for an address (`Hostname` may be one), and other kinds by their kind.
    let host = |kind: AddressKind, text: &str| {
        let host = Host::compared(text).ok()?;
        match (kind, &host) {
            (AddressKind::Hostname, _)
            | (AddressKind::InternalIp | AddressKind::ExternalIp, Host::Address(_))
            | (AddressKind::InternalDns | AddressKind::ExternalDns, Host::Name(_)) => Some(host),
            (AddressKind::InternalIp | AddressKind::ExternalIp, Host::Name(_))
            | (AddressKind::InternalDns | AddressKind::ExternalDns, Host::Address(_))
            | (AddressKind::Other, _) => None,
        }
    };
    NodeView {
        uid: facts.uid.clone(),
        name: facts.name.to_string(),
        controller: facts.control_plane,
        addresses: facts
            .addresses
            .iter()
            .filter_map(|address| host(address.kind, &address.address))
            .collect(),
    }
}

/// What can go wrong.
#[derive(Debug, thiserror::Error)]
pub enum FollowError {
    /// A record could not be written.
    #[error("writing the NodeIdentity of {node}")]
    Write {
        /// Whose.
        node: Arc<str>,
        /// Why.
        #[source]
        source: CallError,
    },
}

impl Failure for FollowError {
    fn category(&self) -> &'static str {
        match self {
            Self::Write { .. } => "write",
        }
    }
}

/// The concern.
pub struct FollowNodes {
    client: Client,
    namespace: String,
    nodes: Nodes,
    identities: Identities,
    /// The names to look at in the next pass; none: all.
    due: Arc<Mutex<Option<BTreeSet<Arc<str>>>>>,
}

/// What a pass saw.
pub struct Seen {
    /// Nodes, each with what is remembered of its name.
    nodes: Vec<(Arc<str>, NodeView, Option<Arc<Stored>>)>,
    /// Names without a Node.
    vacant: Vec<(Arc<str>, Arc<Stored>)>,
}

/// What is written.
#[derive(Default)]
pub struct Plan {
    /// Records, new or in the place of one.
    write: Vec<(Arc<str>, Option<Arc<Stored>>, Identity)>,
    /// Names under which nothing lives any more.
    forget: Vec<(Arc<str>, Arc<Stored>)>,
}

impl FollowNodes {
    /// The concern. `client` is fenced by the term, as the one `identities` writes with.
    #[must_use]
    pub fn new(client: Client, namespace: &str, nodes: Nodes, identities: Identities) -> Self {
        Self {
            client,
            namespace: namespace.to_owned(),
            nodes,
            identities,
            due: Arc::default(),
        }
    }
}

impl Concern for FollowNodes {
    const NAME: ConcernName = ConcernName::NodeIdentities;
    const CONCURRENCY: u16 = 1;
    type Root = Namespace;
    type Observed = Seen;
    type Plan = Plan;
    type Error = FollowError;

    fn roots(&self) -> (Api<Namespace>, watcher::Config) {
        watching::the_namespace(&self.client, &self.namespace)
    }

    fn triggers(&self) -> BoxStream<'static, ()> {
        let due = Arc::clone(&self.due);
        stream::select(self.nodes.changes(), self.identities.changes())
            .map(move |change| {
                let mut due = due.lock().unwrap_or_else(PoisonError::into_inner);
                match (change, &mut *due) {
                    (Change::Of(name), Some(names)) => {
                        names.insert(name);
                    }
                    (Change::OfAny, _) => *due = None,
                    (Change::Of(_), None) => {}
                }
            })
            .boxed()
    }

    async fn observe(&self, _root: Arc<Namespace>) -> Result<Seen, FollowError> {
        self.nodes.ready().await;
        self.identities.ready().await;
        let due = {
            let mut due = self.due.lock().unwrap_or_else(PoisonError::into_inner);
            // A pass that nothing woke is the resync, which looks at all.
            due.replace(BTreeSet::new()).filter(|names| !names.is_empty())
        };
        let mut seen = Seen {
            nodes: Vec::new(),
            vacant: Vec::new(),
        };
        let names = due.unwrap_or_else(|| {
            let nodes = self.nodes.all().into_iter().map(|(name, _)| name);
            nodes.chain(self.identities.names()).collect()
        });
        for name in names {
            match (self.nodes.get(&name), self.identities.get(&name)) {
                (Some(facts), known) => seen.nodes.push((name, view(&facts), known)),
                (None, Some(known)) => seen.vacant.push((name, known)),
                (None, None) => {}
            }
        }
        Ok(seen)
    }

    fn decide(&self, observed: &Seen, now: Timestamp) -> Plan {
        let mut plan = Plan::default();
        for (name, node, known) in &observed.nodes {
            let identity = known.as_ref().map(|known| &known.identity);
            if let Some(record) = follow(identity, node, now) {
                plan.write.push((Arc::clone(name), known.clone(), record));
            }
        }
        let over = observed.vacant.iter().filter(|(_, known)| known.identity.is_over(now));
        plan.forget.extend(over.cloned());
        plan
    }

    async fn act(&self, _observed: Seen, plan: Plan) -> Result<Wake, FollowError> {
        let write = |(name, known, record): (Arc<str>, Option<Arc<Stored>>, Identity)| async move {
            let stored = self.identities.store(&name, known.as_deref(), record).await;
            unless_raced(name, stored)
        };
        let forget = |(name, known): (Arc<str>, Arc<Stored>)| async move {
            let forgotten = self.identities.forget(&name, &known).await;
            unless_raced(name, forgotten)
        };
        let written: Vec<_> = stream::iter(plan.write.into_iter().map(write))
            .buffer_unordered(AT_ONE_TIME)
            .collect()
            .await;
        let forgotten: Vec<_> = stream::iter(plan.forget.into_iter().map(forget))
            .buffer_unordered(AT_ONE_TIME)
            .collect()
            .await;
        if let Some(error) = written.into_iter().chain(forgotten).find_map(Result::err) {
            *self.due.lock().unwrap_or_else(PoisonError::into_inner) = None;
            return Err(error);
        }
        Ok(Wake::Resync)
    }
}

/// An approver may write in the same moment; the watch then wakes this concern with what it wrote.
fn unless_raced(node: Arc<str>, written: Result<(), CallError>) -> Result<(), FollowError> {
    match written {
        Err(source) if source.kind() != CallErrorKind::Conflict => Err(FollowError::Write { node, source }),
        Ok(()) | Err(_) => Ok(()),
    }
}
