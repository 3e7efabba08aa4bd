//! The concern that approves serving certificates.

use std::sync::Arc;

use futures::stream::BoxStream;
use jiff::Timestamp;
use kube::api::Api;
use kube::runtime::reflector::ObjectRef;
use kube::runtime::watcher;

use super::network::{Answer, Networks};
use super::{Approver, CsrError, Root, objects};
use crate::controllers::concern::{Concern, ConcernName, Wake};
use crate::controllers::identities::view;
use crate::reconcilers::csr::identity::{Holders, NodeView};
use crate::reconcilers::csr::{Decision, Request, serving};

/// The concern.
pub struct ServingApprover {
    approver: Arc<Approver>,
    networks: Networks,
}

/// Everything one decision needs.
pub struct Observed {
    root: Arc<Root>,
    request: Request,
    node: Option<NodeView>,
    holders: Holders,
    network: Answer,
}

impl ServingApprover {
    /// The concern.
    #[must_use]
    pub fn new(approver: Approver, networks: Networks) -> Self {
        Self {
            approver: Arc::new(approver),
            networks,
        }
    }
}

impl Concern for ServingApprover {
    const NAME: ConcernName = ConcernName::ServingCsrs;
    // As many as there are: whose turn it is to be approved is decided by who asks, not by who came first.
    const CONCURRENCY: u16 = 0;
    type Root = Root;
    type Observed = Observed;
    type Plan = Decision;
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
        let facts = serving::node_of(&request).and_then(|name| self.approver.nodes.get(name));
        let node = facts.map(|facts| view(&facts));
        let hosts = node.as_ref().map(|node| node.addresses.as_slice()).unwrap_or_default();
        Ok(Observed {
            holders: self.approver.identities.holders_of(hosts),
            network: self.networks.get().await,
            root,
            request,
            node,
        })
    }

    fn decide(&self, observed: &Observed, _now: Timestamp) -> Decision {
        let world = serving::World {
            node: observed.node.as_ref(),
            holders: &observed.holders,
            network: observed.network.as_deref().map_err(|problem| &**problem),
        };
        serving::decide(&observed.request, world)
    }

    async fn act(&self, observed: Observed, decision: Decision) -> Result<Wake, CsrError> {
        let Observed { root, request, .. } = observed;
        let node = serving::node_of(&request);
        match decision {
            Decision::Approve => match self.approver.hold_back(&request) {
                Some(wait) => Ok(Wake::After(wait)),
                None => self.approver.approve(&root, &request, node.unwrap_or_default()).await,
            },
            Decision::Wait(reason) => Ok(self.approver.wait(&root, &request, node, &reason).await),
            Decision::Settled => Ok(self.approver.settled(&request.name)),
        }
    }
}
