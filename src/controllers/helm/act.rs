//! What was decided about a HelmChart is done, and told.

use std::time::Duration;

use jiff::Timestamp;

use super::error::HelmError;
use super::ledger::Remembered;
use super::status::{self, Ready};
use super::{HelmCharts, Seen};
use crate::controllers::concern::{Wake, chain};
use crate::controllers::events::EventKind;
use crate::controllers::metrics::Word;
use crate::controllers::metrics::helm::ByActionResult;
use crate::host::clock;
use crate::host::helm::{Ended, Helm, Ran, Workspace};
use crate::reconcilers::helm::command::{self, CHART, Invocation, Run};
use crate::reconcilers::helm::decide::{Action, Dependency, State, Wish};
use crate::reconcilers::helm::refusal::Refusal;
use crate::reconcilers::helm::release::content;
use crate::reconcilers::helm::source::Source;
use crate::reconcilers::helm::spec::{ChartStatus, Failed};

/// After a step the next one is decided on at once, on what is there by then.
const AT_ONCE: Duration = Duration::from_millis(50);
/// Until somebody else is done with the release.
const BUSY: Duration = Duration::from_secs(2);
/// What is missing may be made without anything that wakes us.
const PATIENCE: Duration = Duration::from_secs(60);
/// The timeout that helm is given is for each thing it waits for, of which there are several.
const SLACK: Duration = Duration::from_secs(60);

/// How an attempt went.
enum Attempt {
    /// helm did what it was told.
    Done,
    /// It did not.
    Failed(String),
    /// The chart could not be fetched.
    Unfetched(String),
    /// What it needs is not there.
    Refused(Refusal),
    /// We were told to stop.
    Stopped,
}

impl HelmCharts {
    /// Tells why nothing is done.
    pub(super) async fn rest(&self, seen: &Seen, state: &State) -> Result<Wake, HelmError> {
        let now = clock::now();
        let mut status = seen.chart.status.clone().unwrap_or_default();
        if *state == State::Deployed {
            status.failure = None;
            self.deployed(seen, &mut status).await?;
        }
        let mut message = state.to_string();
        if let (State::Failed | State::Retrying { .. }, Some(failure)) = (state, &status.failure)
            && !failure.message.is_empty()
        {
            message = format!("{message}: {}", failure.message);
        }
        let without_effect = command::without_effect(&seen.observed.spec);
        if !without_effect.is_empty() {
            message = format!("{message} (without effect here: {})", without_effect.join(", "));
        }
        let ready = match state {
            State::Deployed => Ready::Yes,
            State::Suspended | State::Waiting { .. } | State::Retrying { .. } => Ready::Unknown,
            State::Refused(_)
            | State::Claimed { .. }
            | State::Terminating { .. }
            | State::Foreign { .. }
            | State::Failed => Ready::No,
        };
        let reason = match state {
            State::Refused(refusal) => refusal.word(),
            other => other.word(),
        };
        if ready == Ready::No {
            let regarding = status::reference(&seen.chart);
            self.shared
                .events
                .publish(regarding, EventKind::Warning, reason_of(state), message.clone())
                .await;
        }
        self.tell(seen, status, ready, reason, message, now).await?;
        Ok(match state {
            State::Retrying { at } => Wake::After(until(*at, now)),
            State::Waiting { is, .. } if *is != Dependency::Ready => Wake::After(PATIENCE),
            State::Refused(_) | State::Claimed { .. } | State::Terminating { .. } | State::Foreign { .. } => {
                Wake::After(PATIENCE)
            }
            State::Waiting { .. } | State::Deployed | State::Suspended | State::Failed => Wake::Resync,
        })
    }

    /// What is deployed, where that is not known yet.
    async fn deployed(&self, seen: &Seen, status: &mut ChartStatus) -> Result<(), HelmError> {
        let newest = seen.observed.revisions.iter().max_by_key(|revision| revision.number);
        let Some(newest) = newest.filter(|newest| status.revision != Some(newest.number)) else {
            return Ok(());
        };
        let stored = self.shared.reader().stored(newest).await?;
        let content = stored.and_then(|data| content(&data).ok());
        status.revision = Some(newest.number);
        status.chart_version = content.as_ref().and_then(|content| content.chart_version.clone());
        status.app_version = content.and_then(|content| content.app_version);
        let wish = seen.observed.wish.as_ref().ok();
        status.applied_hash = wish.map(|wish| wish.digest.as_str().to_owned());
        Ok(())
    }

    async fn tell(
        &self,
        seen: &Seen,
        status: ChartStatus,
        ready: Ready,
        reason: &str,
        message: String,
        now: Timestamp,
    ) -> Result<(), HelmError> {
        let was_ready = |status: &ChartStatus| status.conditions.iter().any(|one| one.status == "True");
        let before = seen.chart.status.as_ref().is_some_and(was_ready);
        let status = status::with_condition(&seen.chart, status, ready, reason, message, now);
        status::write(&self.shared.deployer, &seen.chart, &status).await?;
        if before != (ready == Ready::Yes) {
            self.index.turned(&seen.observed.id);
        }
        Ok(())
    }

    /// Runs helm, and tells how it went.
    pub(super) async fn run(&self, seen: &Seen, action: Action) -> Result<Wake, HelmError> {
        let Ok(wish) = &seen.observed.wish else {
            return Ok(Wake::Resync);
        };
        let Some(_taken) = self.shared.take(&wish.accepted.release) else {
            return Ok(Wake::After(BUSY));
        };
        let helm = match self.shared.helm().await {
            Ok(helm) => helm,
            Err(error) => {
                let status = seen.chart.status.clone().unwrap_or_default();
                self.tell(seen, status, Ready::No, "NoHelm", chain(&error), clock::now())
                    .await?;
                return Err(error.into());
            }
        };
        tracing::info!(chart = %seen.observed.id, action = action.word(), "running helm");
        let began = clock::monotonic();
        let attempt = self.attempt(seen, wish, helm, action).await?;
        self.count(action, &attempt, began.elapsed());
        self.conclude(seen, wish, action, attempt).await
    }

    fn count(&self, action: Action, attempt: &Attempt, took: Duration) {
        let result = match attempt {
            Attempt::Done => "done",
            Attempt::Failed(_) => "failed",
            Attempt::Unfetched(_) => "unfetched",
            Attempt::Refused(_) => "refused",
            Attempt::Stopped => "stopped",
        };
        let labels = ByActionResult {
            action: Word(action.word()),
            result: Word(result),
        };
        self.shared.metrics.runs.get_or_create(&labels).inc();
        self.shared.metrics.duration.observe(took.as_secs_f64());
    }

    async fn conclude(&self, seen: &Seen, wish: &Wish, action: Action, attempt: Attempt) -> Result<Wake, HelmError> {
        let id = &seen.observed.id;
        let regarding = status::reference(&seen.chart);
        let (message, is_of_the_source) = match attempt {
            Attempt::Done => {
                tracing::info!(chart = %id, action = action.word(), "helm is done");
                let note = format!("{} of {}: done", action.word(), wish.accepted.release);
                self.shared
                    .events
                    .publish(regarding, EventKind::Normal, "HelmDone", note)
                    .await;
                return Ok(Wake::After(AT_ONCE));
            }
            // The next leader finds what is left, and goes on from there.
            Attempt::Stopped => return Ok(Wake::Resync),
            Attempt::Refused(refusal) => {
                return self.rest(seen, &State::Refused(refusal)).await;
            }
            Attempt::Failed(message) => (message, false),
            Attempt::Unfetched(message) => (message, true),
        };
        tracing::warn!(chart = %id, action = action.word(), message, "helm failed");
        let note = format!("{} of {} failed: {message}", action.word(), wish.accepted.release);
        self.shared
            .events
            .publish(regarding, EventKind::Warning, "HelmFailed", note.clone())
            .await;
        let now = clock::now();
        let mut status = seen.chart.status.clone().unwrap_or_default();
        let before = status
            .failure
            .take()
            .filter(|failure| failure.hash == wish.digest.as_str());
        status.failure = Some(Failed {
            hash: wish.digest.as_str().to_owned(),
            times: before.map_or(0, |failure| failure.times).saturating_add(1),
            at: Some(now),
            message,
            is_of_the_source,
        });
        self.tell(seen, status, Ready::No, "HelmFailed", note, now).await?;
        Ok(Wake::After(AT_ONCE))
    }

    async fn attempt(&self, seen: &Seen, wish: &Wish, helm: &Helm, action: Action) -> Result<Attempt, HelmError> {
        let workspace = helm.workspace()?;
        workspace.kubeconfig(&self.shared.machine.kubeconfig)?;
        let is_brought = matches!(action, Action::Install | Action::Upgrade(_));
        let chart = if is_brought {
            match self.fetch(seen, wish, helm, &workspace).await? {
                Ok(chart) => chart,
                Err(attempt) => return Ok(attempt),
            }
        } else {
            CHART.to_owned()
        };
        if is_brought {
            self.remember(seen, wish).await?;
        }
        let observed = &seen.observed;
        let run = Run {
            id: &observed.id,
            spec: &observed.spec,
            config: observed.config.as_ref(),
            accepted: &wish.accepted,
            documents: &seen.documents,
            digest: &wish.digest,
            chart: &chart,
        };
        let limit = wish.accepted.timeout * 2 + SLACK;
        let ran = self.step(helm, &workspace, &run.invocation(action), limit).await?;
        Ok(match ran.ended {
            Ended::Stopped => Attempt::Stopped,
            _ if ran.is_success() => Attempt::Done,
            _ => Attempt::Failed(ran.complaint(&seen.secrets)),
        })
    }

    /// Brings the chart into the workspace; its name there.
    async fn fetch(
        &self,
        seen: &Seen,
        wish: &Wish,
        helm: &Helm,
        workspace: &Workspace,
    ) -> Result<Result<String, Attempt>, HelmError> {
        let source = &wish.accepted.source;
        match (source, &seen.file) {
            (Source::Content(bytes), _) | (Source::File(_), Some(bytes)) => {
                workspace.put(CHART, bytes)?;
                return Ok(Ok(CHART.to_owned()));
            }
            (Source::File(_) | Source::Address(_) | Source::Repository { .. }, _) => {}
        }
        let spec = &seen.observed.spec;
        let namespace = &seen.observed.id.namespace;
        let credentials = match self.shared.reader().credentials(namespace, spec, source).await? {
            Ok(credentials) => credentials,
            Err(refusal) => return Ok(Err(Attempt::Refused(refusal))),
        };
        let mut secrets = seen.secrets.clone();
        secrets.extend(credentials.password.iter().map(|(_, password)| password.clone()));
        for invocation in command::fetch(source, spec, &credentials) {
            let ran = self.step(helm, workspace, &invocation, wish.accepted.timeout).await?;
            if ran.ended == Ended::Stopped {
                return Ok(Err(Attempt::Stopped));
            }
            if !ran.is_success() {
                return Ok(Err(Attempt::Unfetched(ran.complaint(&secrets))));
            }
        }
        let fetched = workspace.fetched();
        Ok(fetched.ok_or_else(|| Attempt::Unfetched("helm pulled no chart".to_owned())))
    }

    async fn step(
        &self,
        helm: &Helm,
        workspace: &Workspace,
        invocation: &Invocation,
        limit: Duration,
    ) -> Result<Ran, HelmError> {
        for (name, text) in &invocation.files {
            workspace.put_secret(name, text)?;
        }
        let input = invocation.input.as_ref();
        Ok(helm
            .run(workspace, &invocation.arguments, input, limit, &self.shared.stop)
            .await?)
    }

    /// Written before helm makes anything, so that no release is left that nobody remembers.
    async fn remember(&self, seen: &Seen, wish: &Wish) -> Result<(), HelmError> {
        let ledger = self.shared.ledger();
        let release = &wish.accepted.release;
        let known = ledger.read().await.map_err(|source| HelmError::Look {
            what: "the releases that are remembered",
            source,
        })?;
        let before = known.get(release);
        let remembered = Remembered {
            namespace: seen.observed.id.namespace.clone(),
            name: seen.observed.id.name.clone(),
            service_account: wish.accepted.service_account.clone(),
            since: before.map_or_else(clock::now, |before| before.since),
        };
        if before == Some(&remembered) {
            return Ok(());
        }
        ledger
            .remember(release, &remembered)
            .await
            .map_err(|source| HelmError::Write {
                what: "which release is made",
                source,
            })
    }
}

fn until(at: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(at.duration_since(now))
        .unwrap_or_default()
        .max(AT_ONCE)
}

/// The reason of an Event.
fn reason_of(state: &State) -> &'static str {
    match state {
        State::Refused(refusal) => refusal.word(),
        other => other.word(),
    }
}
