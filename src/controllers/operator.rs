//! The operator process from its settings to its end: the admin server first, then the API server, then what every
//! instance does, and the leader's work while this instance leads.
//!
//! Concerns are handed in as [`Concerns`]; this file knows none of them.

mod background;
#[cfg(test)]
mod tests;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use kube::Client;
use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;

use self::background::{background, client, count_leadership, reach, watch_for_all};
use super::admin::{Admin, AdminError, AdminSettings, Shown};
use super::concern::{ConcernName, Observer};
use super::connection::{self, ClientSettings, ConnectionError};
use super::health::{Health, Watched};
use super::identities::Identities;
use super::leader::{self, CampaignError, CampaignSettings, Leadership, Outcome, Term};
use super::metrics::Metrics;
use super::nodes::Nodes;
use super::status::Board;
use super::telemetry::LogControl;

/// The namespace of the Lease, the inventory and the status. A field of [`Settings`], so that tests can share a cluster.
pub const SYSTEM_NAMESPACE: &str = "kube-system";
/// Applied objects are compared with the cluster once in this time, if nothing else is said.
pub const RESYNC: Duration = Duration::from_secs(300);
/// The part of the drain limit that is kept for releasing the Lease and ending the rest.
const KEPT_FOR_THE_END: Duration = Duration::from_secs(4);
/// The longest pause between two tries to reach the API server.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// Everything the operator is told, resolved from flags, environment, file and defaults.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Identity `stratum:operator`: the operator's own concerns.
    pub kubeconfig: PathBuf,
    /// Identity `stratum:deployer`: what manifests need.
    pub deployer_kubeconfig: PathBuf,
    /// This node's name.
    pub node: String,
    /// The manifests folder.
    pub manifests: PathBuf,
    /// What this node remembers.
    pub state: PathBuf,
    /// Where this machine's certificates are, for metrics.
    pub machine: crate::host::layout::Layout,
    /// Where the admin server listens.
    pub admin: AdminSettings,
    /// Applied objects are compared with the cluster once in this time.
    pub resync: Duration,
    /// The largest share of a stack one pass may delete unconfirmed, of 0 to 1; none: no brake.
    pub prune_max_share: Option<f64>,
    /// How long a stop may take.
    pub drain: Duration,
    /// [`SYSTEM_NAMESPACE`].
    pub system_namespace: String,
}

/// What every runner is given.
#[derive(Clone)]
pub struct Context {
    /// The operator's settings.
    pub settings: Arc<Settings>,
    /// Identity `stratum:operator`. In a leader's runner it is fenced by the term, elsewhere not.
    pub client: Client,
    /// What to count.
    pub metrics: Metrics,
    /// For [`super::concern::run`].
    pub observer: Arc<dyn Observer>,
    /// The Nodes, watched once for all.
    pub nodes: Nodes,
    /// What is remembered of their names, watched once for all.
    pub identities: Identities,
    /// Who leads, to be followed.
    pub leadership: watch::Receiver<Leadership>,
    /// What this instance tells in the status ConfigMap.
    pub status: Board,
}

/// What a leader's runner is given besides.
#[derive(Clone)]
pub struct LeaderContext {
    /// As every instance's.
    pub context: Context,
    /// Identity `stratum:deployer`, fenced by the term.
    pub deployer: Client,
    /// The term it works in.
    pub term: Term,
}

/// A concern ready to run: it runs until its token is cancelled, and ends soon after.
pub type Runner<C> = Box<dyn FnOnce(C, CancellationToken) -> BoxFuture<'static, ()> + Send>;

/// What the operator does. The names are for readiness and for messages.
#[derive(Default)]
pub struct Concerns {
    /// On every instance, from the start.
    pub instance: Vec<(ConcernName, Runner<Context>)>,
    /// Only on the leader, for its term.
    pub leader: Vec<(ConcernName, Runner<LeaderContext>)>,
}

impl Concerns {
    /// Adds a concern of every instance.
    pub fn on_every_instance<F, R>(&mut self, name: ConcernName, run: F)
    where
        F: FnOnce(Context, CancellationToken) -> R + Send + 'static,
        R: Future<Output = ()> + Send + 'static,
    {
        self.instance
            .push((name, Box::new(move |context, stop| Box::pin(run(context, stop)))));
    }

    /// Adds a concern of the leader.
    pub fn on_the_leader<F, R>(&mut self, name: ConcernName, run: F)
    where
        F: FnOnce(LeaderContext, CancellationToken) -> R + Send + 'static,
        R: Future<Output = ()> + Send + 'static,
    {
        self.leader
            .push((name, Box::new(move |context, stop| Box::pin(run(context, stop)))));
    }
}

/// Why the operator ended without being asked to.
#[derive(Debug, thiserror::Error)]
pub enum OperatorError {
    /// The admin server cannot listen.
    #[error("starting the admin server")]
    Admin(#[source] AdminError),
    /// A kubeconfig cannot be used.
    #[error("making a client")]
    Client(#[source] ConnectionError),
    /// The Lease was lost (exit code 4), or the leader's work broke off.
    #[error(transparent)]
    Campaign(#[from] CampaignError),
    /// A concern ended although nobody stopped it: a bug.
    #[error("{} ended unasked", concern.as_str())]
    Ended {
        /// Which.
        concern: ConcernName,
    },
    /// A concern panicked: a bug.
    #[error("a concern broke off")]
    Broken(#[source] JoinError),
}

impl OperatorError {
    /// Whether the Lease was lost, which is exit code 4.
    #[must_use]
    pub fn is_leadership_lost(&self) -> bool {
        matches!(self, Self::Campaign(CampaignError::LeadershipLost { .. }))
    }
}

/// An operator that listens and does nothing else yet.
pub struct Operator {
    settings: Arc<Settings>,
    admin: Admin,
    metrics: Metrics,
    log: Option<LogControl>,
}

impl Operator {
    /// Takes the admin server's address before anything else is tried, so that the process can be observed from its start.
    ///
    /// # Errors
    /// When the address is refused or taken.
    pub async fn bind(settings: Settings, log: Option<LogControl>) -> Result<Self, OperatorError> {
        let admin = Admin::bind(&settings.admin).await.map_err(OperatorError::Admin)?;
        Ok(Self {
            metrics: Metrics::new().with_machine(super::certificates::metrics::registry(settings.machine.clone())),
            settings: Arc::new(settings),
            admin,
            log,
        })
    }

    /// Where the admin server listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.admin.address
    }

    /// What this operator counts.
    #[must_use]
    pub fn metrics(&self) -> Metrics {
        self.metrics.clone()
    }

    /// Runs until `stop` or a failure.
    ///
    /// # Errors
    /// [`OperatorError`]; after each of them the process should end and be started anew.
    pub async fn run(self, concerns: Concerns, stop: CancellationToken) -> Result<(), OperatorError> {
        let Self {
            settings,
            admin,
            metrics,
            log,
        } = self;
        let (status, leadership) = watch::channel(Leadership::Standing { holder: None });
        let health = Health::new(leadership.clone());
        tracing::info!(address = %admin.address, node = %settings.node, "listening");
        let shown = Shown {
            metrics: metrics.clone(),
            health: health.clone(),
            log,
        };
        let _background = [
            background(admin.serve(shown, CancellationToken::new())),
            background(health.clone().keep_beating()),
            background(count_leadership(metrics.leader.clone(), leadership.clone())),
        ];
        let made = client(&settings.kubeconfig, "operator", &metrics).await?;
        // Tells of a kubeconfig that cannot be used now, not when this instance comes to lead.
        drop(client(&settings.deployer_kubeconfig, "deployer", &metrics).await?);
        if stop.run_until_cancelled(reach(&made)).await.is_none() {
            return Ok(());
        }
        health.reached();
        let observer = Arc::new(Watched::new(&metrics, &health));
        let (nodes, identities, _watching) = watch_for_all(&made, &health, observer.clone());
        let context = Context {
            settings,
            client: made,
            observer,
            nodes,
            identities,
            metrics,
            leadership,
            status: Board::default(),
        };
        work(context, health, concerns, status, stop).await
    }
}

/// [`Operator::bind`] and [`Operator::run`].
///
/// # Errors
/// As those.
pub async fn run(
    settings: Settings,
    concerns: Concerns,
    log: Option<LogControl>,
    stop: CancellationToken,
) -> Result<(), OperatorError> {
    Operator::bind(settings, log).await?.run(concerns, stop).await
}

/// Both scopes at once; the end of one is the end of the other.
async fn work(
    context: Context,
    health: Health,
    concerns: Concerns,
    status: watch::Sender<Leadership>,
    stop: CancellationToken,
) -> Result<(), OperatorError> {
    let Concerns { instance, leader } = concerns;
    // Not below `stop`: a concern of every instance may go on while the leader's work drains.
    let instance_stop = CancellationToken::new();
    let mut running = JoinSet::new();
    for (name, runner) in instance {
        health.expect(name);
        let ending = runner(context.clone(), instance_stop.clone());
        running.spawn(async move {
            ending.await;
            name
        });
    }
    let _telling = background(context.status.clone().publish(
        context.client.clone(),
        context.settings.system_namespace.clone(),
        context.settings.node.clone(),
        instance_stop.clone(),
    ));
    let drain = context
        .settings
        .drain
        .saturating_sub(KEPT_FOR_THE_END)
        .max(Duration::from_secs(1));
    let settings = CampaignSettings {
        namespace: context.settings.system_namespace.clone(),
        node: context.settings.node.clone(),
        drain,
    };
    // A fault of this instance ends the leader's work as a stop does: cleanly, with the Lease released.
    let campaign_stop = stop.child_token();
    let campaign = {
        let context = context.clone();
        leader::campaign(
            &settings,
            context.client.clone(),
            &status,
            campaign_stop.clone(),
            move |term| lead(context, health, leader, term),
        )
    };
    tokio::pin!(campaign);
    let result = tokio::select! {
        outcome = &mut campaign => finished(outcome, &stop),
        Some(ended) = running.join_next() => {
            campaign_stop.cancel();
            let campaign = campaign.await;
            tracing::debug!(?campaign, "the campaign ended with its instance");
            Err(match ended {
                Ok(concern) => OperatorError::Ended { concern },
                Err(error) => OperatorError::Broken(error),
            })
        }
    };
    instance_stop.cancel();
    let ending = async { while running.join_next().await.is_some() {} };
    if tokio::time::timeout(KEPT_FOR_THE_END / 2, ending).await.is_err() {
        tracing::warn!("some concerns did not end in time; dropped");
    }
    result
}

fn finished(
    outcome: Result<Outcome<Result<(), OperatorError>>, CampaignError>,
    stop: &CancellationToken,
) -> Result<(), OperatorError> {
    match outcome? {
        Outcome::NeverLed | Outcome::Dropped => Ok(()),
        Outcome::Finished(result) => {
            if stop.is_cancelled() {
                Ok(())
            } else {
                result
            }
        }
    }
}

/// The leader's scope, for one term.
async fn lead(
    context: Context,
    health: Health,
    concerns: Vec<(ConcernName, Runner<LeaderContext>)>,
    term: Term,
) -> Result<(), OperatorError> {
    let settings = &context.settings;
    let fenced = |kubeconfig, role| {
        let settings = ClientSettings {
            requests: context.metrics.requests.clone(),
            ..ClientSettings::new(kubeconfig, role)
        };
        let fence = term.fence.clone();
        async move {
            connection::client(&settings, Some(fence))
                .await
                .map_err(OperatorError::Client)
        }
    };
    let client = fenced(&settings.kubeconfig, "operator").await?;
    let context = LeaderContext {
        context: Context {
            identities: context.identities.written_by(client.clone()),
            client,
            ..context.clone()
        },
        deployer: fenced(&settings.deployer_kubeconfig, "deployer").await?,
        term: term.clone(),
    };
    let mut running = JoinSet::new();
    for (name, runner) in concerns {
        health.expect(name);
        let ending = runner(context.clone(), term.stop.clone());
        running.spawn(async move {
            ending.await;
            name
        });
    }
    let mut result = Ok(());
    loop {
        let next = tokio::select! {
            // With no concern at all there is still a term to hold.
            Some(ended) = running.join_next() => ended,
            () = term.stop.cancelled(), if running.is_empty() => return result,
        };
        if !term.stop.is_cancelled() && result.is_ok() {
            result = Err(match next {
                Ok(concern) => OperatorError::Ended { concern },
                Err(error) => OperatorError::Broken(error),
            });
            term.stop.cancel();
        }
    }
}
