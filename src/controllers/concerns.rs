//! Every concern of the operator, by scope. Adding one is a line here.

use std::sync::Arc;

use strum::IntoEnumIterator;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::concern::{self, Concern, ConcernName};
use super::csr::bootstrap::BootstrapApprover;
use super::csr::serving::ServingApprover;
use super::csr::{Approver, Networks, self_check};
use super::departed::{self, DepartedNodes};
use super::grants::pruning::GrantPruning;
use super::identities::follow::FollowNodes;
use super::in_term::InTerm;
use super::inventory::sync::{InventorySync, Standing};
use super::manifests::{Manifests, Settings};
use super::metrics::{ByReason, ByResult, ByState, InventoryMetrics, ManifestMetrics, Word};
use super::operator::{Concerns, Context, LeaderContext};
use super::spread::Spread;
use crate::host::clock;
use crate::reconcilers::csr::Signer;
use crate::reconcilers::manifests::report::{Outcome, Report, SuspensionReason};
use crate::reconcilers::spread::memory::Pace;

/// The concerns of this version.
#[must_use]
pub fn all() -> Concerns {
    let mut concerns = Concerns::default();
    concerns.on_every_instance(ConcernName::InventorySync, inventory_sync);
    concerns.on_every_instance(ConcernName::ServingCsrs, serving_csrs);
    concerns.on_every_instance(ConcernName::BootstrapCsrs, bootstrap_csrs);
    concerns.on_the_leader(ConcernName::Manifests, manifests);
    concerns.on_the_leader(ConcernName::CorednsSpread, coredns_spread);
    concerns.on_the_leader(ConcernName::NodeIdentities, node_identities);
    concerns.on_the_leader(ConcernName::Grants, grants);
    concerns.on_the_leader(ConcernName::DepartedNodes, departed_nodes);
    concerns
}

async fn inventory_sync(context: Context, stop: CancellationToken) {
    let settings = &context.settings;
    let (sync, standing) = InventorySync::new(
        context.client.clone(),
        &settings.system_namespace,
        &settings.node,
        settings.manifests.clone(),
    );
    tokio::join!(
        concern::run(Arc::new(sync), context.observer.clone(), stop.clone()),
        stop.run_until_cancelled(count_inventory(context.metrics.inventory.clone(), standing.clone())),
        stop.run_until_cancelled(context.status.follow_sync(standing)),
    );
}

async fn serving_csrs(context: Context, stop: CancellationToken) {
    let networks = Networks::new(context.client.clone(), &context.settings.system_namespace);
    let concern = ServingApprover::new(Approver::new(&context, Signer::KubeletServing), networks);
    concern::run(Arc::new(concern), context.observer, stop).await;
}

async fn bootstrap_csrs(context: Context, stop: CancellationToken) {
    let concern = BootstrapApprover::new(Approver::new(&context, Signer::KubeletClient));
    let events = context.events();
    let check = self_check::run(context.client, events, context.metrics.csr, stop.clone());
    tokio::join!(concern::run(Arc::new(concern), context.observer, stop), check);
}

/// Runs a concern of the leader's in its term.
async fn in_term<C: Concern>(concern: C, leader: &LeaderContext, stop: CancellationToken) {
    let in_term = InTerm {
        concern,
        fence: leader.term.fence.clone(),
        metrics: leader.context.metrics.concerns.clone(),
    };
    concern::run(Arc::new(in_term), leader.context.observer.clone(), stop).await;
}

async fn node_identities(leader: LeaderContext, stop: CancellationToken) {
    let context = &leader.context;
    let follow = FollowNodes::new(
        context.client.clone(),
        &context.settings.system_namespace,
        context.nodes.clone(),
        context.identities.clone(),
    );
    in_term(follow, &leader, stop).await;
}

async fn departed_nodes(leader: LeaderContext, stop: CancellationToken) {
    let context = &leader.context;
    let settings = departed::Settings {
        system_namespace: context.settings.system_namespace.clone(),
        now: clock::now,
    };
    let shared = departed::Shared {
        nodes: context.nodes.clone(),
        identities: context.identities.clone(),
        events: context.events(),
        metrics: context.metrics.departed.clone(),
    };
    let departed = DepartedNodes::new(context.client.clone(), shared, settings);
    in_term(departed, &leader, stop).await;
}

async fn manifests(leader: LeaderContext, stop: CancellationToken) {
    let LeaderContext {
        context,
        deployer,
        term,
    } = &leader;
    let settings = &context.settings;
    let pass = Settings {
        node: settings.node.clone(),
        folder: settings.manifests.clone(),
        state: settings.state.clone(),
        system_namespace: settings.system_namespace.clone(),
        resync: settings.resync,
        max_share: settings.prune_max_share,
        term: Some(term.number),
    };
    let (manifests, reports) = Manifests::new(pass, deployer.clone(), context.client.clone());
    tokio::join!(
        in_term(manifests, &leader, stop.clone()),
        stop.run_until_cancelled(context.status.follow_manifests(term.number, reports.clone())),
        stop.run_until_cancelled(count_manifests(context.metrics.manifests.clone(), reports)),
    );
}

async fn grants(leader: LeaderContext, stop: CancellationToken) {
    let context = &leader.context;
    let namespace = &context.settings.system_namespace;
    let pruning = GrantPruning::new(context.client.clone(), namespace, context.metrics.grants.clone());
    in_term(pruning, &leader, stop).await;
}

async fn coredns_spread(leader: LeaderContext, stop: CancellationToken) {
    let context = &leader.context;
    let spread = Spread::new(
        context.client.clone(),
        context.nodes.clone(),
        &context.settings.system_namespace,
        context.events(),
        context.metrics.spread.clone(),
        Pace::default(),
    );
    in_term(spread, &leader, stop).await;
}

async fn count_inventory(metrics: InventoryMetrics, mut standing: watch::Receiver<Standing>) {
    loop {
        {
            let now = standing.borrow_and_update();
            metrics.size.set(i64::try_from(now.bytes).unwrap_or(i64::MAX));
            metrics
                .nodes_missing
                .set(i64::try_from(now.missing.len()).unwrap_or(i64::MAX));
        }
        if standing.changed().await.is_err() {
            return;
        }
    }
}

async fn count_manifests(metrics: ManifestMetrics, mut reports: watch::Receiver<Option<Report>>) {
    while reports.changed().await.is_ok() {
        if let Some(report) = reports.borrow_and_update().as_ref() {
            count_report(&metrics, report);
        }
    }
}

fn count_report(metrics: &ManifestMetrics, report: &Report) {
    let total = report.total();
    for outcome in Outcome::iter() {
        let count = match outcome {
            Outcome::Created => total.created,
            Outcome::Configured => total.configured,
            Outcome::Unchanged => total.unchanged,
            Outcome::Pruned => total.pruned,
            Outcome::Refused => total.refused,
        };
        let word = Word(outcome.into());
        metrics
            .objects
            .get_or_create(&ByState { state: word })
            .set(i64::try_from(count).unwrap_or(i64::MAX));
        let count = u64::try_from(count).unwrap_or(u64::MAX);
        match outcome {
            Outcome::Created | Outcome::Configured | Outcome::Refused => {
                metrics.applies.get_or_create(&ByResult { result: word }).inc_by(count);
            }
            Outcome::Pruned => {
                metrics.prunes.get_or_create(&ByResult { result: word }).inc_by(count);
            }
            Outcome::Unchanged => {}
        }
    }
    let suspended = report.suspended.as_ref().map(SuspensionReason::from);
    for reason in SuspensionReason::iter() {
        let held = i64::from(suspended == Some(reason));
        metrics
            .prune_suspended
            .get_or_create(&ByReason {
                reason: Word(reason.into()),
            })
            .set(held);
    }
    if report.is_complete() {
        #[expect(clippy::cast_precision_loss, reason = "seconds since 1970 are far below 2^52")]
        metrics.last_success.set(report.at.as_second() as f64);
    }
}
