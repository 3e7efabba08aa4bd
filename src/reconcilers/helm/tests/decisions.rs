//! What is done about which release.

use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;

use super::super::decide::{
    Action, Decision, Dependency, Observed, State, UninstallReason, UpgradeReason, Wish, cycle, decide,
};
use super::super::digest::Digest;
use super::super::orphans::{Fate, Made, Wanting, fates};
use super::super::spec::Failed;
use super::*;

fn id() -> ChartId {
    ChartId::new("kube-system", "web")
}

fn wanted() -> Digest {
    digest(&spec("chart: web.tgz"), None, &[], None)
}

fn now() -> Timestamp {
    "2026-12-01T00:00:00Z".parse().unwrap()
}

fn observed(text: &str) -> Observed {
    let spec = spec(text);
    Observed {
        wish: accept(&id(), &spec, &policy()).map(|accepted| Wish {
            accepted,
            digest: wanted(),
        }),
        id: id(),
        spec,
        config: None,
        revisions: Vec::new(),
        is_owner_there: false,
        rival: None,
        dependencies: Vec::new(),
        is_terminating: false,
        failure: None,
    }
}

fn revision(number: u32, status: ReleaseStatus, digest: &str) -> Revision {
    Revision {
        release: ReleaseId {
            namespace: "kube-system".into(),
            name: "web".into(),
        },
        number,
        status,
        owner: Some(id()),
        digest: Some(digest.to_owned()),
        created: None,
    }
}

fn with(revisions: &[(u32, ReleaseStatus, bool)]) -> Observed {
    let digest = wanted();
    let revisions = revisions.iter().map(|(number, status, is_wanted)| {
        revision(*number, *status, if *is_wanted { digest.label() } else { "other" })
    });
    Observed {
        revisions: revisions.collect(),
        ..observed("chart: web.tgz")
    }
}

fn act(observed: &Observed) -> Action {
    match decide(observed, now()) {
        Decision::Run(action) => action,
        Decision::Rest(state) => panic!("{state}"),
    }
}

fn rest(observed: &Observed) -> &'static str {
    match decide(observed, now()) {
        Decision::Run(action) => panic!("{action:?}"),
        Decision::Rest(state) => state.word(),
    }
}

use ReleaseStatus::{
    Deployed, Failed as FailedRelease, PendingInstall, PendingRollback, PendingUpgrade, Superseded, Uninstalled,
    Uninstalling, Unknown,
};

#[test]
fn each_state_of_a_release_has_its_step() {
    let upgrade = Action::Upgrade;
    for (revisions, wanted) in [
        (&[][..], Action::Install),
        (&[(1, Deployed, false)], upgrade(UpgradeReason::Changed)),
        (
            &[(2, FailedRelease, false), (1, Deployed, true)],
            upgrade(UpgradeReason::Changed),
        ),
        (
            &[(1, PendingInstall, true)],
            Action::Uninstall(UninstallReason::Interrupted),
        ),
        (
            &[(2, PendingUpgrade, true), (1, Deployed, false)],
            Action::Rollback { to: 1 },
        ),
        (
            &[(1, Superseded, false), (3, PendingUpgrade, true), (2, Deployed, false)],
            Action::Rollback { to: 2 },
        ),
        (
            &[(2, PendingRollback, true), (1, Superseded, false)],
            Action::Rollback { to: 1 },
        ),
        (
            &[(2, PendingUpgrade, true), (1, FailedRelease, true)],
            Action::Uninstall(UninstallReason::Interrupted),
        ),
        (
            &[(1, Uninstalling, true)],
            Action::Uninstall(UninstallReason::Interrupted),
        ),
        (
            &[(1, Uninstalled, true)],
            Action::Uninstall(UninstallReason::Interrupted),
        ),
        (&[(1, Superseded, true)], upgrade(UpgradeReason::Again)),
        (&[(1, Unknown, true)], upgrade(UpgradeReason::Again)),
    ] {
        assert_eq!(act(&with(revisions)), wanted, "{revisions:?}");
    }
    assert_eq!(rest(&with(&[(1, Superseded, false), (2, Deployed, true)])), "Deployed");
}

#[test]
fn a_release_of_somebody_else_is_left_alone() {
    let mut theirs = with(&[(1, Deployed, true)]);
    theirs.revisions[0].owner = None;
    assert_eq!(rest(&theirs), "Foreign");
    theirs.spec.take_ownership = true;
    assert_eq!(act(&theirs), Action::Upgrade(UpgradeReason::Adopted));
    // Another HelmChart's, even with the right to take over objects.
    theirs.revisions[0].owner = Some(ChartId::new("dev", "web"));
    theirs.is_owner_there = true;
    assert_eq!(rest(&theirs), "Foreign");
    theirs.is_owner_there = false;
    theirs.spec.take_ownership = false;
    assert_eq!(act(&theirs), Action::Upgrade(UpgradeReason::Adopted));
    // Not even a dead helm's traces are cleared away in it.
    theirs.revisions[0].status = PendingInstall;
    theirs.is_owner_there = true;
    assert_eq!(rest(&theirs), "Foreign");
}

#[test]
fn what_holds_it_up_is_told() {
    let due = || with(&[(1, Deployed, false)]);
    let suspended = Observed {
        spec: spec("{chart: web.tgz, suspend: true}"),
        ..due()
    };
    assert_eq!(rest(&suspended), "Suspended");
    assert_eq!(rest(&observed("{}")), "Refused");
    let claimed = Observed {
        rival: Some(ChartId::new("a", "web")),
        ..due()
    };
    assert_eq!(rest(&claimed), "Claimed");
    let terminating = Observed {
        is_terminating: true,
        ..due()
    };
    assert_eq!(rest(&terminating), "Terminating");
    for (is, holds) in [
        (Dependency::Missing, true),
        (Dependency::NotReady, true),
        (Dependency::Ready, false),
    ] {
        let mut waiting = due();
        waiting.dependencies = vec![(ChartId::new("kube-system", "db"), is)];
        assert_eq!(
            decide(&waiting, now()) == Decision::Run(Action::Upgrade(UpgradeReason::Changed)),
            !holds
        );
        // What is deployed is deployed.
        waiting.revisions = with(&[(1, Deployed, true)]).revisions;
        assert_eq!(rest(&waiting), "Deployed");
        // And what a dead helm left is not left longer.
        waiting.revisions = with(&[(1, PendingInstall, true)]).revisions;
        assert_eq!(act(&waiting), Action::Uninstall(UninstallReason::Interrupted));
    }
}

fn failed(policy: &str, times: u32, seconds_ago: i64) -> Observed {
    Observed {
        failure: Some(Failed {
            hash: wanted().as_str().to_owned(),
            times,
            at: Some(now() - SignedDuration::from_secs(seconds_ago)),
            message: String::new(),
            is_of_the_source: false,
        }),
        revisions: with(&[(1, Deployed, false), (2, FailedRelease, true)]).revisions,
        ..observed(&format!("{{chart: web.tgz, failurePolicy: {policy}}}"))
    }
}

#[test]
fn what_failed_follows_its_policy() {
    assert_eq!(rest(&failed("abort", 1, 1_000_000)), "Failed");
    for (times, wait) in [(1, 30), (2, 60), (3, 120), (7, 1800), (60, 1800)] {
        assert_eq!(rest(&failed("retry", times, wait - 1)), "Retrying", "{times}");
        assert_eq!(
            act(&failed("retry", times, wait)),
            Action::Upgrade(UpgradeReason::Again),
            "{times}"
        );
        assert_eq!(rest(&failed("reinstall", times, wait - 1)), "Retrying", "{times}");
        let again = Action::Uninstall(UninstallReason::Reinstall);
        assert_eq!(act(&failed("reinstall", times, wait)), again, "{times}");
    }
    // Another wish than the one that failed.
    let mut another = failed("abort", 3, 1);
    another.failure.as_mut().unwrap().hash = "other".into();
    another.revisions[1].digest = Some("other".into());
    assert_eq!(act(&another), Action::Upgrade(UpgradeReason::Changed));
    // Nobody wrote it down, and the release says it.
    let mut unrecorded = failed("abort", 1, 1);
    unrecorded.failure = None;
    assert_eq!(rest(&unrecorded), "Failed");
    // A config's word counts.
    let config = ConfigSpec {
        failure_policy: Some(super::super::spec::FailurePolicy::Retry),
        ..ConfigSpec::default()
    };
    let overruled = Observed {
        config: Some(config),
        ..failed("abort", 1, 30)
    };
    assert_eq!(act(&overruled), Action::Upgrade(UpgradeReason::Again));
}

/// Nothing was begun, so nothing has to stay as it is; and a registry that is away comes back.
#[test]
fn a_chart_that_could_not_be_fetched_is_tried_again() {
    let mut away = failed("abort", 1, 29);
    away.revisions.clear();
    away.failure.as_mut().unwrap().is_of_the_source = true;
    assert_eq!(rest(&away), "Retrying");
    away.failure.as_mut().unwrap().at = Some(now() - SignedDuration::from_secs(30));
    assert_eq!(act(&away), Action::Install);
    // Without a release there is none to uninstall.
    let mut first = failed("reinstall", 1, 30);
    first.revisions.clear();
    assert_eq!(act(&first), Action::Install);
}

#[test]
fn a_dead_helm_is_cleared_up_after_whatever_failed() {
    let mut dead = failed("abort", 1, 1);
    dead.revisions[1].status = PendingUpgrade;
    assert_eq!(act(&dead), Action::Rollback { to: 1 });
}

#[test]
fn a_way_around_is_found() {
    let chart = |name: &str| ChartId::new("kube-system", name);
    let graph = |edges: &[(&str, &[&str])]| -> BTreeMap<ChartId, Vec<ChartId>> {
        edges
            .iter()
            .map(|(from, to)| (chart(from), to.iter().map(|name| chart(name)).collect()))
            .collect()
    };
    let around = graph(&[("a", &["b", "d"]), ("b", &["c"]), ("c", &["a"]), ("d", &["b"])]);
    let path = cycle(&chart("a"), &around).unwrap();
    assert_eq!((path.first(), path.last()), (Some(&chart("a")), Some(&chart("a"))));
    assert!(path.windows(2).all(|step| around[&step[0]].contains(&step[1])));
    // It waits for a circle, and is none itself.
    assert_eq!(
        cycle(&chart("d"), &graph(&[("d", &["b"]), ("b", &["c"]), ("c", &["b"])])),
        None
    );
    assert_eq!(cycle(&chart("a"), &graph(&[("a", &["a"])])).unwrap().len(), 2);
}

#[test]
fn a_release_goes_only_when_its_chart_surely_has() {
    let defined = now();
    let later = defined + SignedDuration::from_secs(1);
    let made = |name: &str, owner: &str, since: Timestamp| Made {
        release: ReleaseId {
            namespace: "apps".into(),
            name: name.into(),
        },
        owner: ChartId::new("kube-system", owner),
        since: Some(since),
    };
    let wanting = |namespace: &str, name: &str, is_accepted| Wanting {
        release: ReleaseId {
            namespace: namespace.into(),
            name: name.into(),
        },
        is_accepted,
    };
    let charts: BTreeMap<ChartId, Wanting> = [
        // Not accepted since its last change, which is no reason to lose anything.
        (ChartId::new("kube-system", "kept"), wanting("apps", "kept", false)),
        (ChartId::new("other", "moved"), wanting("apps", "moved", true)),
        // It is there, and wants another release by now.
        (
            ChartId::new("kube-system", "turned"),
            wanting("elsewhere", "turned", true),
        ),
        // Whoever may not have it does not keep it from going.
        (ChartId::new("dev", "gone"), wanting("apps", "gone", false)),
    ]
    .into();
    let all = [
        made("kept", "kept", later),
        made("moved", "moved", later),
        made("turned", "turned", later),
        made("gone", "gone", later),
        made("old", "old", defined - SignedDuration::from_secs(1)),
    ];
    let words = |limit| -> Vec<&'static str> {
        fates(&all, &charts, defined, limit)
            .iter()
            .map(|(_, fate)| fate.into())
            .collect()
    };
    assert_eq!(
        words(None),
        ["Owned", "Adopted", "Uninstalled", "Uninstalled", "DefinitionIsYounger"]
    );
    assert_eq!(words(Some(0.4)), words(None));
    assert_eq!(
        words(Some(0.39)),
        ["Owned", "Adopted", "Braked", "Braked", "DefinitionIsYounger"]
    );
    let unknown = Made {
        since: None,
        ..made("gone", "gone", later)
    };
    assert_eq!(
        fates(&[unknown], &charts, defined, None)[0].1,
        Fate::DefinitionIsYounger
    );
    // One alone is what somebody just deleted.
    let alone = [made("gone", "gone", later)];
    assert_eq!(fates(&alone, &charts, defined, Some(0.0))[0].1, Fate::Uninstalled);
    assert!(fates(&[], &charts, defined, Some(0.0)).is_empty());
}

proptest! {
    /// Whatever helm has left: a step is taken only for what is wanted, and never a removal where something was deployed and
    /// nobody asked for a reinstall.
    #[test]
    fn what_was_deployed_is_not_removed(statuses in proptest::collection::vec(0_usize..9, 0..6), is_wanted: bool, times in 0_u32..4) {
        let all = [Deployed, Superseded, FailedRelease, PendingInstall, PendingUpgrade, PendingRollback, Uninstalling, Uninstalled, Unknown];
        let revisions: Vec<_> = statuses.iter().zip(1..).map(|(status, number)| (number, all[*status], is_wanted)).collect();
        let mut observed = with(&revisions);
        if times > 0 {
            observed.failure = failed("abort", times, 0).failure;
        }
        let was_deployed = revisions.iter().any(|(_, status, _)| matches!(status, Deployed | Superseded));
        let newest = revisions.last().map(|(_, status, _)| *status);
        if let Decision::Run(Action::Uninstall(_)) = decide(&observed, now()) {
            prop_assert!(!was_deployed || matches!(newest, Some(Uninstalling | Uninstalled)));
        }
        if newest == Some(Deployed) && is_wanted {
            prop_assert_eq!(decide(&observed, now()), Decision::Rest(State::Deployed));
        }
    }
}
