//! What is to be done about a HelmChart, and why.
//!
//! A dead helm is told from a busy one by who asks: one run of a release is made at a time, by the leader, and its next step
//! is decided after it. A revision that is pending then is one that nobody works on.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::digest::Digest;
use super::refusal::Refusal;
use super::release::{ReleaseStatus, Revision};
use super::source::Accepted;
use super::spec::{ChartSpec, ConfigSpec, Failed, FailurePolicy};
use super::{ChartId, ReleaseId};

/// The first wait after a failure that is tried again; it doubles with each further one.
const FIRST_WAIT: Duration = Duration::from_secs(30);
/// The longest.
const LAST_WAIT: Duration = Duration::from_secs(30 * 60);

/// What one decision needs.
#[derive(Clone, Debug)]
pub struct Observed {
    /// Which HelmChart.
    pub id: ChartId,
    /// What it says.
    pub spec: ChartSpec,
    /// What a HelmChartConfig adds.
    pub config: Option<ConfigSpec>,
    /// What is wanted, or why it is not accepted.
    pub wish: Result<Wish, Refusal>,
    /// All revisions of its release.
    pub revisions: Vec<Revision>,
    /// Whether the HelmChart that the newest of them was made for, where it is another one, is there and wants it.
    pub is_owner_there: bool,
    /// An older HelmChart that wants the same release.
    pub rival: Option<ChartId>,
    /// What it depends on.
    pub dependencies: Vec<(ChartId, Dependency)>,
    /// Whether its release's namespace is being deleted.
    pub is_terminating: bool,
    /// The last attempts that failed.
    pub failure: Option<Failed>,
}

/// An accepted HelmChart with its values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wish {
    /// Where from and where to.
    pub accepted: Accepted,
    /// What tells it from another wish.
    pub digest: Digest,
}

/// How far a HelmChart is that another one depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dependency {
    /// There is none of that name.
    Missing,
    /// It is not deployed as it asks for.
    NotReady,
    /// It is.
    Ready,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Nothing.
    Rest(State),
    /// helm is run.
    Run(Action),
}

/// Why nothing is to be done. The word is the reason of the condition `Ready`, and a label of metrics.
#[derive(Clone, Debug, PartialEq, Eq, strum::IntoStaticStr)]
pub enum State {
    /// The release is what was asked for.
    Deployed,
    /// It is to be left alone.
    Suspended,
    /// It is not accepted.
    Refused(Refusal),
    /// An older HelmChart wants the same release.
    Claimed {
        /// Which.
        by: ChartId,
        /// The release.
        release: ReleaseId,
    },
    /// Another one has to be deployed before.
    Waiting {
        /// Which.
        on: ChartId,
        /// How far it is.
        is: Dependency,
    },
    /// Nothing can be made in the namespace.
    Terminating {
        /// Which.
        namespace: String,
    },
    /// The release is somebody else's.
    Foreign {
        /// The release.
        release: ReleaseId,
        /// The HelmChart that has it, if it is one.
        owner: Option<ChartId>,
    },
    /// It failed, and is not tried again before something changes.
    Failed,
    /// It failed, and is tried again.
    Retrying {
        /// Not before.
        at: Timestamp,
    },
}

impl State {
    /// One word.
    #[must_use]
    pub fn word(&self) -> &'static str {
        self.into()
    }
}

impl fmt::Display for State {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Deployed => write!(formatter, "the release is what was asked for"),
            Self::Suspended => write!(formatter, "spec.suspend is set: it is left alone"),
            Self::Refused(refusal) => write!(formatter, "{refusal}"),
            Self::Claimed { by, release } => write!(
                formatter,
                "the release {release} is wanted by the older HelmChart {by} too: delete or rename one of them"
            ),
            Self::Waiting {
                on,
                is: Dependency::Missing,
            } => {
                write!(formatter, "it waits for the HelmChart {on}, which is not there")
            }
            Self::Waiting { on, .. } => write!(formatter, "it waits for the HelmChart {on}, which is not deployed yet"),
            Self::Terminating { namespace } => write!(
                formatter,
                "namespace {namespace} is being deleted, and nothing can be made in it"
            ),
            Self::Foreign {
                release,
                owner: Some(owner),
            } => write!(
                formatter,
                "the release {release} belongs to the HelmChart {owner}: delete that one, and this one takes it over"
            ),
            Self::Foreign { release, owner: None } => write!(
                formatter,
                "the release {release} is there and was not made for a HelmChart: set spec.takeOwnership to have it taken over"
            ),
            Self::Failed => write!(
                formatter,
                "it failed, and failurePolicy is abort: it is not tried again before the HelmChart or its values change"
            ),
            Self::Retrying { at } => write!(formatter, "it failed, and is tried again at {at:.0}"),
        }
    }
}

/// What helm is run for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// There is no release.
    Install,
    /// The release is another one than is wanted.
    Upgrade(UpgradeReason),
    /// A dead helm left the release half-way, and this revision was deployed before.
    Rollback {
        /// Its number.
        to: u32,
    },
    /// What is there is removed, and the next step installs anew.
    Uninstall(UninstallReason),
}

impl Action {
    /// A label of metrics.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Install => "install",
            Self::Upgrade(_) => "upgrade",
            Self::Rollback { .. } => "rollback",
            Self::Uninstall(_) => "uninstall",
        }
    }
}

/// Why a release is upgraded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr)]
pub enum UpgradeReason {
    /// The HelmChart, its config or its values are others.
    Changed,
    /// It belonged to nobody, or to a HelmChart that is gone.
    Adopted,
    /// Its last revision failed, or helm left it in a state it does not leave by itself.
    Again,
}

/// Why a release is uninstalled to be installed anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr)]
pub enum UninstallReason {
    /// A dead helm left it half-way, and nothing of it was ever deployed.
    Interrupted,
    /// It failed, and failurePolicy is reinstall.
    Reinstall,
}

/// What is to be done about a HelmChart.
#[must_use]
pub fn decide(observed: &Observed, now: Timestamp) -> Decision {
    if observed.spec.suspend {
        return Decision::Rest(State::Suspended);
    }
    let wish = match &observed.wish {
        Ok(wish) => wish,
        Err(refusal) => return Decision::Rest(State::Refused(refusal.clone())),
    };
    let release = &wish.accepted.release;
    if let Some(by) = observed.rival.clone() {
        let release = release.clone();
        return Decision::Rest(State::Claimed { by, release });
    }
    let action = match wanted(observed, wish) {
        Ok(action) => action,
        Err(state) => return Decision::Rest(state),
    };
    if observed.is_terminating {
        let namespace = release.namespace.clone();
        return Decision::Rest(State::Terminating { namespace });
    }
    if is_recovery(action) {
        return Decision::Run(action);
    }
    let unmet = observed.dependencies.iter().find(|(_, is)| *is != Dependency::Ready);
    if let Some((on, is)) = unmet {
        return Decision::Rest(State::Waiting {
            on: on.clone(),
            is: *is,
        });
    }
    after_failures(observed, wish, action, now)
}

/// What would be done if nothing had failed before; `Err` says why nothing.
fn wanted(observed: &Observed, wish: &Wish) -> Result<Action, State> {
    let Some(newest) = observed.revisions.iter().max_by_key(|revision| revision.number) else {
        return Ok(Action::Install);
    };
    let is_ours = newest.owner.as_ref() == Some(&observed.id);
    let may_take = match newest.owner {
        Some(_) => is_ours || !observed.is_owner_there,
        None => observed.spec.take_ownership,
    };
    if !may_take {
        return Err(State::Foreign {
            release: newest.release.clone(),
            owner: newest.owner.clone(),
        });
    }
    let deployed = observed
        .revisions
        .iter()
        .filter(|revision| matches!(revision.status, ReleaseStatus::Deployed | ReleaseStatus::Superseded));
    let last_deployed = deployed.map(|revision| revision.number).max();
    let is_wanted = newest.digest.as_deref() == Some(wish.digest.label());
    match newest.status {
        ReleaseStatus::Deployed if is_ours && is_wanted => Err(State::Deployed),
        ReleaseStatus::Deployed if is_ours => Ok(Action::Upgrade(UpgradeReason::Changed)),
        ReleaseStatus::Deployed => Ok(Action::Upgrade(UpgradeReason::Adopted)),
        ReleaseStatus::PendingInstall | ReleaseStatus::PendingUpgrade | ReleaseStatus::PendingRollback => {
            match last_deployed {
                Some(to) => Ok(Action::Rollback { to }),
                None => Ok(Action::Uninstall(UninstallReason::Interrupted)),
            }
        }
        // What is left of it may be of use to nobody: helm itself was told to remove it.
        ReleaseStatus::Uninstalling | ReleaseStatus::Uninstalled => Ok(Action::Uninstall(UninstallReason::Interrupted)),
        ReleaseStatus::Failed if is_wanted => Ok(Action::Upgrade(UpgradeReason::Again)),
        ReleaseStatus::Failed => Ok(Action::Upgrade(UpgradeReason::Changed)),
        ReleaseStatus::Superseded | ReleaseStatus::Unknown => Ok(Action::Upgrade(UpgradeReason::Again)),
    }
}

/// Whether it ends what a dead helm began, which waits for nobody.
const fn is_recovery(action: Action) -> bool {
    matches!(
        action,
        Action::Rollback { .. } | Action::Uninstall(UninstallReason::Interrupted)
    )
}

fn after_failures(observed: &Observed, wish: &Wish, action: Action, now: Timestamp) -> Decision {
    let recorded = observed
        .failure
        .as_ref()
        .filter(|failure| failure.hash == wish.digest.as_str());
    let is_failed = action == Action::Upgrade(UpgradeReason::Again)
        && observed
            .revisions
            .iter()
            .max_by_key(|revision| revision.number)
            .map(|newest| newest.status)
            == Some(ReleaseStatus::Failed);
    let (times, at) = match recorded {
        Some(failure) => (failure.times, failure.at),
        // Nobody wrote it down.
        None if is_failed => (1, None),
        None => return Decision::Run(action),
    };
    let policy = policy(&observed.spec, observed.config.as_ref());
    if policy == FailurePolicy::Abort && !recorded.is_some_and(|failure| failure.is_of_the_source) {
        return Decision::Rest(State::Failed);
    }
    let next = at.and_then(|at| at.checked_add(SignedDuration::try_from(wait(times)).ok()?).ok());
    match next {
        Some(at) if now < at => Decision::Rest(State::Retrying { at }),
        _ if policy == FailurePolicy::Reinstall && is_failed => {
            Decision::Run(Action::Uninstall(UninstallReason::Reinstall))
        }
        _ => Decision::Run(action),
    }
}

/// What follows a failure: the config's word counts before the chart's.
#[must_use]
pub fn policy(spec: &ChartSpec, config: Option<&ConfigSpec>) -> FailurePolicy {
    let config = config.and_then(|config| config.failure_policy);
    config.or(spec.failure_policy).unwrap_or_default()
}

/// How long is waited after so many failures in a row.
fn wait(times: u32) -> Duration {
    let factor = 1 << times.saturating_sub(1).min(16);
    FIRST_WAIT.saturating_mul(factor).min(LAST_WAIT)
}

/// The way around, if a HelmChart depends on itself: it begins and ends with it.
#[must_use]
pub fn cycle(id: &ChartId, depends_on: &BTreeMap<ChartId, Vec<ChartId>>) -> Option<Vec<ChartId>> {
    let mut seen = BTreeSet::new();
    let mut paths = vec![vec![id.clone()]];
    while let Some(path) = paths.pop() {
        let last = path.last()?;
        for next in depends_on.get(last).into_iter().flatten() {
            let mut longer = path.clone();
            longer.push(next.clone());
            if next == id {
                return Some(longer);
            }
            if seen.insert(next.clone()) {
                paths.push(longer);
            }
        }
    }
    None
}
