//! The concern that lets a join token claim a new name, and remembers until when each name's certificate lives.

use std::sync::Arc;
use std::time::Duration;

use futures::stream::BoxStream;
use jiff::Timestamp;
use kube::api::Api;
use kube::runtime::reflector::ObjectRef;
use kube::runtime::watcher;

use super::{Approver, CsrError, Root, objects};
use crate::controllers::cluster::{CallError, CallErrorKind};
use crate::controllers::concern::{Concern, ConcernName, Wake};
use crate::controllers::identities::Stored;
use crate::pki::certificate::Certificate;
use crate::reconcilers::csr::bootstrap::{self, Claimant, World};
use crate::reconcilers::csr::identity::Identity;
use crate::reconcilers::csr::{Decision, NODE_USER, Reason, Request, Standing};

/// When a claim is judged anew after another instance, or another joiner, was faster.
const AFTER_A_RACE: Duration = Duration::from_millis(100);

/// The concern.
pub struct BootstrapApprover {
    approver: Arc<Approver>,
}

/// Everything one decision needs.
pub struct Observed {
    root: Arc<Root>,
    request: Request,
    /// What the request says by itself.
    read: Result<Option<Claimant>, Reason>,
    /// The node it is about, if something can still come of it.
    node: Option<String>,
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
    /// Free a name whose claim, on record as this, was refused by somebody else.
    Release(String, Arc<Stored>),
    /// Nothing.
    Settled,
}

impl BootstrapApprover {
    /// The concern.
    #[must_use]
    pub fn new(approver: Approver) -> Self {
        Self {
            approver: Arc::new(approver),
        }
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

    fn wakes(&self) -> BoxStream<'static, ObjectRef<Root>> {
        self.approver.wakes()
    }

    fn gone(&self, name: &str) {
        self.approver.settled(name);
    }

    async fn observe(&self, root: Arc<Root>) -> Result<Observed, CsrError> {
        self.approver.ready().await;
        let request = objects::request(&root);
        let read = bootstrap::read(&request);
        let issued = objects::certificate(&root.0).and_then(issued);
        let node = match (&read, &issued) {
            (Ok(Some(claimant)), _) => Some(claimant.node.clone()),
            (_, Some(issued)) => Some(issued.node.clone()),
            (Ok(None), None) if request.standing == Standing::Refused => bootstrap::name_of(&request),
            (Ok(None) | Err(_), None) => None,
        };
        let known = node.as_deref().and_then(|node| self.approver.identities.get(node));
        let registered = node
            .as_deref()
            .is_some_and(|node| self.approver.nodes.get(node).is_some());
        Ok(Observed {
            root,
            request,
            read,
            node,
            registered,
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
        let identities = &self.approver.identities;
        match plan {
            Plan::Approve(claimant, record) => {
                if let Some(wait) = self.approver.hold_back(&request) {
                    return Ok(Wake::After(wait));
                }
                if let Some(identity) = record {
                    let stored = identities.store(&claimant.node, known.as_deref(), identity).await;
                    if raced(&claimant.node, stored)? {
                        return Ok(Wake::After(AFTER_A_RACE));
                    }
                }
                self.approver.approve(&root, &request, &claimant.node).await
            }
            Plan::Wait(reason, node) => Ok(self.approver.wait(&root, &request, node.as_deref(), &reason).await),
            Plan::Record(node, identity) => {
                let settled = self.approver.settled(&request.name);
                let stored = identities.store(&node, known.as_deref(), identity).await;
                Ok(if raced(&node, stored)? {
                    Wake::After(AFTER_A_RACE)
                } else {
                    settled
                })
            }
            Plan::Release(node, known) => {
                let settled = self.approver.settled(&request.name);
                let forgotten = identities.forget(&node, &known).await;
                Ok(if raced(&node, forgotten)? {
                    Wake::After(AFTER_A_RACE)
                } else {
                    settled
                })
            }
            Plan::Settled => Ok(self.approver.settled(&request.name)),
        }
    }
}

/// Whether somebody else wrote in the same moment: another instance, or another joiner's claim. What they wrote comes with
/// the watch.
fn raced(node: &str, written: Result<(), CallError>) -> Result<bool, CsrError> {
    match written {
        Ok(()) => Ok(false),
        Err(error) if error.kind() == CallErrorKind::Conflict => Ok(true),
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
    let Observed { request, issued, .. } = observed;
    let (Some(node), Some(known)) = (&observed.node, &observed.known) else {
        return Plan::Settled;
    };
    match (request.standing, issued) {
        (Standing::Issued, Some(issued)) => {
            let record = known.identity.after_certificate(issued.not_after);
            record.map_or(Plan::Settled, |record| Plan::Record(node.clone(), record))
        }
        // Refused by somebody else: nothing came of the claim.
        (Standing::Refused, None) if known.identity.is_unused_claim_of(&request.uid) => {
            Plan::Release(node.clone(), Arc::clone(known))
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
