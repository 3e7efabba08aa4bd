//! The concern of HelmCharts: what each asks for is read, decided on in [`crate::reconcilers::helm`], and done by the real
//! `helm`, run as a child by [`crate::host::helm`].
//!
//! | module | what |
//! |---|---|
//! | `object` | the kinds HelmChart and HelmChartConfig |
//! | `read` | what a decision needs |
//! | `index` | what wakes a HelmChart |
//! | `act` | helm is run |
//! | `status` | what is told |
//! | `ledger` | which releases were made for which HelmChart |
//! | `releases` | releases whose HelmChart is gone are uninstalled |
//!
//! Everything is read and written as the deployer: a chart is a manifest by another name.

mod act;
mod error;
mod index;
mod ledger;
pub mod object;
mod read;
pub mod releases;
mod status;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use futures::stream::BoxStream;
use jiff::Timestamp;
use kube::runtime::reflector::ObjectRef;
use kube::runtime::watcher;
use kube::{Api, Client};
use secrecy::SecretString;
use tokio::sync::OnceCell;
use tokio_util::sync::CancellationToken;

use self::index::Index;
use self::ledger::Ledger;
use self::object::HelmChart;
use self::read::Reader;
use super::concern::{Concern, ConcernName, Wake};
use super::events::Events;
use super::metrics::helm::HelmMetrics;
use crate::host::helm::{self, Helm};
use crate::reconcilers::helm::ReleaseId;
use crate::reconcilers::helm::decide::{self, Decision, Observed, Wish};
use crate::reconcilers::helm::digest::digest;
use crate::reconcilers::helm::refusal::Refusal;
use crate::reconcilers::helm::source::{Policy, Source, accept};
use crate::reconcilers::helm::spec::ConfigSpec;
use crate::reconcilers::helm::values::{Document, documents};

pub use error::HelmError;

/// What the concerns of charts are told.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// Where helm may be, in this order.
    pub places: Vec<PathBuf>,
    /// Whose charts have the deployer's rights, and where others may come from.
    pub policy: Policy,
}

/// Where things are on this machine.
#[derive(Clone, Debug)]
pub struct Machine {
    /// The deployer's kubeconfig.
    pub kubeconfig: PathBuf,
    /// The manifests folder.
    pub manifests: PathBuf,
    /// What this node remembers.
    pub state: PathBuf,
    /// A `stratum` executable.
    pub trampoline: PathBuf,
}

/// What both concerns of charts share.
pub struct Shared {
    /// Identity `stratum:deployer`.
    pub deployer: Client,
    /// Where decisions are told.
    pub events: Events,
    /// What is counted.
    pub metrics: HelmMetrics,
    /// What they are told.
    pub settings: Settings,
    /// Where things are.
    pub machine: Machine,
    /// The namespace of the ledger.
    pub system_namespace: String,
    /// The end of the term, at which a running helm is ended.
    pub stop: CancellationToken,
    helm: OnceCell<Helm>,
    busy: Mutex<BTreeSet<ReleaseId>>,
}

impl Shared {
    /// Of one term.
    #[must_use]
    pub fn new(
        deployer: Client,
        events: Events,
        metrics: HelmMetrics,
        (settings, machine): (Settings, Machine),
        system_namespace: &str,
        stop: CancellationToken,
    ) -> Self {
        Self {
            deployer,
            events,
            metrics,
            settings,
            machine,
            system_namespace: system_namespace.to_owned(),
            stop,
            helm: OnceCell::new(),
            busy: Mutex::default(),
        }
    }

    /// helm, once it is there: it may come later than the operator.
    async fn helm(&self) -> Result<&Helm, helm::Error> {
        let Machine { trampoline, state, .. } = &self.machine;
        let find = || Helm::find(&self.settings.places, trampoline, state);
        self.helm.get_or_try_init(find).await
    }

    fn reader(&self) -> Reader {
        Reader {
            client: self.deployer.clone(),
        }
    }

    fn ledger(&self) -> Ledger {
        Ledger::new(self.deployer.clone(), &self.system_namespace)
    }

    /// One release is worked on by one at a time; `None` while somebody else does.
    fn take(&self, release: &ReleaseId) -> Option<Taken<'_>> {
        let mut busy = self.busy.lock().unwrap_or_else(PoisonError::into_inner);
        busy.insert(release.clone()).then(|| Taken {
            shared: self,
            release: release.clone(),
        })
    }
}

/// A release that is being worked on.
struct Taken<'a> {
    shared: &'a Shared,
    release: ReleaseId,
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        let mut busy = self.shared.busy.lock().unwrap_or_else(PoisonError::into_inner);
        busy.remove(&self.release);
    }
}

/// The concern.
pub struct HelmCharts {
    shared: Arc<Shared>,
    index: Arc<Index>,
}

impl HelmCharts {
    /// Of one term.
    #[must_use]
    pub fn new(shared: Arc<Shared>) -> Self {
        Self {
            shared,
            index: Arc::new(Index::new()),
        }
    }
}

/// What was read about one HelmChart.
pub struct Seen {
    chart: Arc<HelmChart>,
    observed: Observed,
    documents: Vec<Document>,
    /// The chart, where it is a file below the manifests folder.
    file: Option<Vec<u8>>,
    /// What no text may show.
    secrets: Vec<SecretString>,
}

impl Concern for HelmCharts {
    const NAME: ConcernName = ConcernName::HelmCharts;
    const CONCURRENCY: u16 = 4;
    type Root = HelmChart;
    type Observed = Option<Seen>;
    type Plan = Option<Decision>;
    type Error = HelmError;

    fn roots(&self) -> (Api<HelmChart>, watcher::Config) {
        (Api::all(self.shared.deployer.clone()), watcher::Config::default())
    }

    fn wakes(&self) -> BoxStream<'static, ObjectRef<HelmChart>> {
        index::wakes(&self.shared.deployer, &self.index)
    }

    fn gone(&self, name: &str) {
        self.index.remove(name);
    }

    async fn observe(&self, root: Arc<HelmChart>) -> Result<Option<Seen>, HelmError> {
        let reader = self.shared.reader();
        let id = read::id_of(&root);
        let charts = reader.charts().await?;
        // The root is what the watch has seen, and what was written a moment ago it may not have.
        let Some(chart) = charts
            .iter()
            .find(|chart| read::id_of(chart) == id)
            .cloned()
            .map(Arc::new)
        else {
            return Ok(None);
        };
        let spec = chart.spec.chart.clone();
        let config = reader.config(&id).await?;
        let sources = reader.sources(&id.namespace, &spec, config.as_ref()).await?;
        let secrets = sources.secrets.values().flat_map(|data| data.values());
        let secrets = secrets
            .map(|bytes| String::from_utf8_lossy(bytes).into_owned().into())
            .collect();
        let prepared = self.prepare(&chart, config.as_ref(), &sources, &charts);
        let release = read::release_of(&chart);
        let revisions = reader.revisions(&release).await?;
        let newest = revisions.iter().max_by_key(|revision| revision.number);
        let owner = newest
            .and_then(|newest| newest.owner.clone())
            .filter(|owner| *owner != id);
        let is_owner_there = owner.is_some_and(|owner| {
            let mut owners = charts.iter().filter(|chart| read::id_of(chart) == owner);
            owners.any(|chart| read::release_of(chart) == release)
        });
        let depends_on = prepared
            .as_ref()
            .map(|prepared| prepared.wish.accepted.depends_on.clone());
        let depends_on = depends_on.unwrap_or_default();
        self.index
            .set(&id, read::names(&id, &spec, config.as_ref(), &depends_on));
        let (wish, documents, file) = match prepared {
            Ok(prepared) => (Ok(prepared.wish), prepared.documents, prepared.file),
            Err(refusal) => (Err(refusal), Vec::new(), None),
        };
        let observed = Observed {
            wish,
            is_owner_there,
            rival: read::rival(&charts, &chart, &self.shared.settings.policy),
            dependencies: depends_on
                .into_iter()
                .map(|on| (on.clone(), read::dependency(&charts, &on)))
                .collect(),
            is_terminating: reader.is_terminating(&release.namespace).await?,
            failure: chart.status.as_ref().and_then(|status| status.failure.clone()),
            revisions,
            config,
            spec,
            id,
        };
        Ok(Some(Seen {
            chart,
            observed,
            documents,
            file,
            secrets,
        }))
    }

    fn decide(&self, seen: &Option<Seen>, now: Timestamp) -> Option<Decision> {
        seen.as_ref().map(|seen| decide::decide(&seen.observed, now))
    }

    async fn act(&self, seen: Option<Seen>, decision: Option<Decision>) -> Result<Wake, HelmError> {
        match (seen, decision) {
            (Some(seen), Some(Decision::Rest(state))) => self.rest(&seen, &state).await,
            (Some(seen), Some(Decision::Run(action))) => self.run(&seen, action).await,
            (None, _) | (_, None) => Ok(Wake::Resync),
        }
    }
}

/// An accepted HelmChart with its values.
struct Prepared {
    wish: Wish,
    documents: Vec<Document>,
    file: Option<Vec<u8>>,
}

impl HelmCharts {
    fn prepare(
        &self,
        chart: &HelmChart,
        config: Option<&ConfigSpec>,
        sources: &crate::reconcilers::helm::values::Sources,
        charts: &[HelmChart],
    ) -> Result<Prepared, Refusal> {
        let (id, spec) = (read::id_of(chart), &chart.spec.chart);
        let accepted = accept(&id, spec, &self.shared.settings.policy)?;
        if let Some(path) = decide::cycle(&id, &read::graph(charts)) {
            return Err(Refusal::Cycle { path });
        }
        let documents = documents(&id.namespace, spec, config, sources)?;
        let file = match &accepted.source {
            Source::File(name) => Some(read::file(&self.shared.machine.manifests, name)?),
            Source::Content(_) | Source::Address(_) | Source::Repository { .. } => None,
        };
        let digest = digest(
            spec,
            config,
            &documents,
            file.as_ref().map(|(_, digest)| digest.as_str()),
        );
        Ok(Prepared {
            wish: Wish { accepted, digest },
            documents,
            file: file.map(|(bytes, _)| bytes),
        })
    }
}
