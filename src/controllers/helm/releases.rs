//! Releases whose HelmChart is gone are uninstalled: driven by the ledger, so that no finalizer of ours can hold a namespace up.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::BoxStream;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use kube::runtime::watcher;

use super::error::HelmError;
use super::ledger::{Remembered, defined_at};
use super::object::HelmChart;
use super::{Shared, read};
use crate::controllers::cluster::CallError;
use crate::controllers::concern::{Concern, ConcernName, Wake};
use crate::controllers::metrics::Word;
use crate::controllers::metrics::helm::ByActionResult;
use crate::controllers::watching;
use crate::reconcilers::helm::ReleaseId;
use crate::reconcilers::helm::command;
use crate::reconcilers::helm::orphans::{Fate, Made, Wanting, fates};

/// How long each thing that helm waits for may take.
const TIMEOUT: Duration = Duration::from_secs(300);
/// What stays is looked at again.
const AGAIN: Duration = Duration::from_secs(60);

/// The concern.
pub struct HelmReleases {
    shared: Arc<Shared>,
    max_share: Option<f64>,
}

impl HelmReleases {
    /// Of one term; `max_share` is the brake of pruning.
    #[must_use]
    pub fn new(shared: Arc<Shared>, max_share: Option<f64>) -> Self {
        Self { shared, max_share }
    }
}

/// A release, and what is remembered of it.
type Known = (ReleaseId, Remembered);

/// What was read.
pub struct Seen {
    known: Vec<Known>,
    fates: Vec<(ReleaseId, Fate)>,
}

impl Concern for HelmReleases {
    const NAME: ConcernName = ConcernName::HelmReleases;
    const CONCURRENCY: u16 = 1;
    type Root = Namespace;
    type Observed = Seen;
    type Plan = Vec<(Known, Fate)>;
    type Error = HelmError;

    fn roots(&self) -> (Api<Namespace>, watcher::Config) {
        watching::the_namespace(&self.shared.deployer, &self.shared.system_namespace)
    }

    fn triggers(&self) -> BoxStream<'static, ()> {
        let charts = Api::<HelmChart>::all(self.shared.deployer.clone());
        watching::signals(charts, watcher::Config::default(), "HelmCharts").boxed()
    }

    async fn observe(&self, _root: Arc<Namespace>) -> Result<Seen, HelmError> {
        let look = |source: CallError| HelmError::Look {
            what: "the releases that are remembered",
            source,
        };
        // In this order: a release is remembered after its HelmChart was there, so one without a HelmChart in the later list
        // has lost it.
        let known = self.shared.ledger().read().await.map_err(look)?;
        let charts = self.shared.reader().charts().await?;
        let policy = &self.shared.settings.policy;
        let wanting = |chart: &HelmChart| Wanting {
            release: read::release_of(chart),
            is_accepted: read::accepted_release(chart, policy).is_some(),
        };
        let charts = charts
            .iter()
            .map(|chart| (read::id_of(chart), wanting(chart)))
            .collect();
        let made: Vec<Made> = known
            .iter()
            .map(|(release, what)| Made {
                release: release.clone(),
                owner: what.owner(),
                since: Some(what.since),
            })
            .collect();
        let fates = match defined_at(&self.shared.deployer).await.map_err(look)? {
            Some(defined) => fates(&made, &charts, defined, self.max_share),
            None => Vec::new(),
        };
        Ok(Seen {
            known: known.into_iter().collect(),
            fates,
        })
    }

    fn decide(&self, seen: &Seen, _now: Timestamp) -> Vec<(Known, Fate)> {
        let fate = |release: &ReleaseId| seen.fates.iter().find(|(of, _)| of == release);
        let known = seen.known.iter();
        let all = known.filter_map(|known| Some((known.clone(), fate(&known.0)?.1.clone())));
        all.filter(|(_, fate)| *fate != Fate::Owned).collect()
    }

    async fn act(&self, _seen: Seen, plan: Vec<(Known, Fate)>) -> Result<Wake, HelmError> {
        let mut wake = Wake::Resync;
        for ((release, what), fate) in plan {
            match fate {
                Fate::Owned | Fate::Adopted { .. } => {}
                Fate::Uninstalled => {
                    if !self.uninstall(&release, &what).await? {
                        wake = Wake::After(AGAIN);
                    }
                }
                Fate::DefinitionIsYounger => tracing::warn!(
                    release = %release, chart = %what.owner(),
                    "its HelmChart is gone, and stays installed: the definition of the kind was made anew, which deletes every HelmChart; create it again, or uninstall with helm and remove the entry from ConfigMap {}", super::ledger::NAME
                ),
                Fate::Braked { going, of } => tracing::warn!(
                    release = %release, chart = %what.owner(),
                    "its HelmChart is gone, and stays installed: {going} of {of} releases would go at once, which is more than prune.maxShare; delete fewer at a time"
                ),
            }
        }
        Ok(wake)
    }
}

impl HelmReleases {
    /// Uninstalls a release, and forgets it; whether it is gone.
    async fn uninstall(&self, release: &ReleaseId, what: &Remembered) -> Result<bool, HelmError> {
        let Some(_taken) = self.shared.take(release) else {
            return Ok(false);
        };
        let helm = self.shared.helm().await?;
        let workspace = helm.workspace()?;
        workspace.kubeconfig(&self.shared.machine.kubeconfig)?;
        let acts_as = what
            .service_account
            .as_deref()
            .map(|account| (what.namespace.as_str(), account));
        let invocation = command::uninstall(release, acts_as, TIMEOUT.as_secs());
        tracing::info!(release = %release, chart = %what.owner(), "its HelmChart is gone: uninstalling");
        let arguments = &invocation.arguments;
        let ran = helm
            .run(&workspace, arguments, None, TIMEOUT * 2, &self.shared.stop)
            .await?;
        let labels = ByActionResult {
            action: Word("uninstall"),
            result: Word(if ran.is_success() { "done" } else { "failed" }),
        };
        self.shared.metrics.runs.get_or_create(&labels).inc();
        if !ran.is_success() {
            let message = ran.complaint(&[]);
            tracing::warn!(release = %release, message, "it could not be uninstalled, and is tried again");
            return Ok(false);
        }
        let forgotten = self.shared.ledger().forget(release).await;
        forgotten.map_err(|source| HelmError::Write {
            what: "which release is gone",
            source,
        })?;
        tracing::info!(release = %release, "uninstalled");
        Ok(true)
    }
}
