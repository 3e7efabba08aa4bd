//! The concern that lets a join token claim a new name, and remembers until when each name's certificate lives.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::{self, BoxStream};
use jiff::Timestamp;
use kube::api::Api;
use kube::runtime::reflector::ObjectRef;
use kube::runtime::watcher;

use super::{Approver, CsrError, Root, Shared, objects};
use crate::controllers::cluster::{CallError, CallErrorKind};
use crate::controllers::concern::{Concern, ConcernName, Wake};
use crate::controllers::identities::{Identities, Stored};
use crate::controllers::nodes::Nodes;
use crate::pki::certificate::Certificate;
use crate::reconcilers::csr::bootstrap::{self, Claimant, World};
use crate::reconcilers::csr::identity::Identity;
use crate::reconcilers::csr::{Decision, NODE_USER, Reason, Request, Standing};

/// When a claim is judged anew after another instance, or another joiner, was faster.
const AFTER_A_RACE: Duration = Duration::from_millis(100);

/// The concern.
pub struct BootstrapApprover {
    approver: Shared,
    nodes: Nodes,
    identities: Identities,
}

/// Everything one decision needs.
pub struct Observed {
    root: Arc<Root>,
    request: Request,
    /// What the request says by itself.
    read: Result<Option<Claimant>, Reason>,
    registered: bool,
    known: Option<Arc<Stored>>,
    /// What a certificate that was issued says.
    issued: Option<Issued>,
}

/// A client certificate of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Issued {
    node: String,
    not_after: Timestamp,
}

/// What is done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Plan {
    /// Store this record of the claim, if it is not stored yet, and approve.
    Approve(Claimant, Option<Identity>),
    /// Leave it.
    Wait(Reason, Option<String>),
    /// Store this record of an issued certificate.
    Record(String, Identity),
    /// Free a name whose claim was refused by somebody else.
    Release(String),
    /// Nothing.
    Settled,
}

impl BootstrapApprover {
    /// The concern, on what this process knows of Nodes and their identities.
    #[must_use]
    pub fn new(approver: Shared, nodes: Nodes, identities: Identities) -> Self {
        Self {
            approver,
            nodes,
            identities,
        }
    }

    async fn store(&self, node: &str, known: Option<&Stored>, identity: Identity) -> Result<(), CsrError> {
        let stored = self.identities.store(node, known, identity).await;
        stored.map_err(|source| CsrError::Identity {
            node: node.to_owned(),
            source,
        })
    }
}

impl Concern for BootstrapApprover {
    const NAME: ConcernName = ConcernName::BootstrapCsrs;
    const CONCURRENCY: u16 = 0;
    type Root = Root;
    type Observed = Observed;
    type Plan = Plan;
    type Error = CsrError;

    fn roots(&self) -> (Api<Root>, watcher::Config) {
        self.approver.roots()
    }

    fn triggers(&self) -> BoxStream<'static, ()> {
        stream::pending().boxed()
    }

    fn wakes(&self) -> BoxStream<'static, ObjectRef<Root>> {
        Approver::wakes(
            &self.approver,
            stream::select(self.nodes.changes(), self.identities.changes()),
        )
    }

    fn gone(&self, name: &str) {
        self.approver.settled(name);
    }

    async fn observe(&self, root: Arc<Root>) -> Result<Observed, CsrError> {
        self.nodes.ready().await;
        self.identities.ready().await;
        let request = objects::request(&root);
        let read = bootstrap::read(&request);
        let issued = objects::certificate(&root.0).and_then(issued);
        let node = match (&read, &issued) {
            (Ok(Some(claimant)), _) => Some(claimant.node.clone()),
            (_, Some(issued)) => Some(issued.node.clone()),
            (Ok(None) | Err(_), None) => bootstrap::name_of(&request),
        };
        let known = node.as_deref().and_then(|node| self.identities.get(node));
        Ok(Observed {
            registered: node.is_some_and(|node| self.nodes.get(&node).is_some()),
            root,
            request,
            read,
            known,
            issued,
        })
    }

    fn decide(&self, observed: &Observed, now: Timestamp) -> Plan {
        plan(observed, now)
    }

    async fn act(&self, observed: Observed, plan: Plan) -> Result<Wake, CsrError> {
        let Observed {
            root, request, known, ..
        } = observed;
        match plan {
            Plan::Approve(claimant, record) => {
                if let Some(wait) = self.approver.hold_back(&request) {
                    return Ok(Wake::After(wait));
                }
                if let Some(identity) = record {
                    match self.store(&claimant.node, known.as_deref(), identity).await {
                        // Somebody else claimed the name in this moment; their record comes with the watch.
                        Err(CsrError::Identity { source, .. }) if source.kind() == CallErrorKind::Conflict => {
                            return Ok(Wake::After(AFTER_A_RACE));
                        }
                        stored => stored?,
                    }
                }
                self.approver.approve(&root, &request, &claimant.node).await
            }
            Plan::Wait(reason, node) => Ok(self.approver.wait(&root, &request, node.as_deref(), &reason).await),
            Plan::Record(node, identity) => {
                self.approver.settled(&request.name);
                settle(&node, self.identities.store(&node, known.as_deref(), identity).await)
            }
            Plan::Release(node) => {
                self.approver.settled(&request.name);
                match known {
                    Some(known) => settle(&node, self.identities.forget(&node, &known).await),
                    None => Ok(Wake::Resync),
                }
            }
            Plan::Settled => {
                self.approver.settled(&request.name);
                Ok(Wake::Resync)
            }
        }
    }
}

/// The end of a write that every instance tries: one of them is the first.
fn settle(node: &str, written: Result<(), CallError>) -> Result<Wake, CsrError> {
    match written {
        Ok(()) => Ok(Wake::Resync),
        Err(error) if error.kind() == CallErrorKind::Conflict => Ok(Wake::After(AFTER_A_RACE)),
        Err(source) => Err(CsrError::Identity {
            node: node.to_owned(),
            source,
        }),
    }
}

fn plan(observed: &Observed, now: Timestamp) -> Plan {
    let Observed { request, known, .. } = observed;
    let identity = known.as_ref().map(|known| &known.identity);
    match &observed.read {
        Err(reason) => Plan::Wait(reason.clone(), None),
        Ok(Some(claimant)) => {
            let world = World {
                registered: observed.registered,
                identity,
            };
            match bootstrap::decide(request, claimant, world, now) {
                Decision::Approve => {
                    let claimed = identity.and_then(|identity| identity.claim.as_ref());
                    let stored = claimed.is_some_and(|claim| claim.request_uid == request.uid);
                    let record = || Identity::claimed_by(identity, request, claimant.key.clone(), now);
                    Plan::Approve(claimant.clone(), (!stored).then(record))
                }
                Decision::Wait(reason) => Plan::Wait(reason, Some(claimant.node.clone())),
                Decision::Settled => Plan::Settled,
            }
        }
        Ok(None) => settled(observed),
    }
}

/// What is left to do about a request that is decided.
fn settled(observed: &Observed) -> Plan {
    let Observed {
        request, known, issued, ..
    } = observed;
    let identity = known.as_ref().map(|known| &known.identity);
    match (request.standing, issued, identity) {
        (Standing::Issued, Some(issued), Some(identity)) => identity
            .after_certificate(issued.not_after)
            .map_or(Plan::Settled, |record| Plan::Record(issued.node.clone(), record)),
        // Refused by somebody else: nothing came of the claim.
        (Standing::Refused, None, Some(identity)) if identity.is_unused_claim_of(&request.uid) => {
            bootstrap::name_of(request).map_or(Plan::Settled, Plan::Release)
        }
        _ => Plan::Settled,
    }
}

/// The node and the end of a certificate as the signer issued it.
fn issued(pem: &[u8]) -> Option<Issued> {
    let chain = Certificate::bundle_from_pem(pem).ok()?;
    let details = chain.first()?.details();
    let name = details.common_name.as_deref()?.strip_prefix(NODE_USER)?;
    Some(Issued {
        node: name.to_owned(),
        not_after: details.not_after,
    })
}
