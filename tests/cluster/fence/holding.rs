//! Holding the fence: two at once, own steps, losing it and giving it back.

use stratum::controllers::cluster_fence::{FenceError, Inherited, Lost};
use stratum::controllers::concern::chain;
use stratum::host::clock;
use stratum::reconcilers::election::LossReason;
use stratum::reconcilers::election::fence::NotInherited;

use super::{Bed, SHORT, SOON, operation};
use crate::support::{Cluster, wait_for};

#[tokio::test]
async fn the_second_operation_is_told_of_the_first_and_changes_nothing() {
    let bed = Bed::new(Cluster::shared().await, "fence-two").await;
    let first = operation("alpha");
    let fence = bed.acquire(&first).await;
    let began = clock::monotonic();
    let refused = async || match bed.try_acquire(&operation("beta")).await {
        (Err(FenceError::Busy(busy)), told) => {
            assert_eq!(told, "");
            busy
        }
        (other, _) => panic!("{other:?}"),
    };
    let busy = refused().await;
    assert_eq!(busy.holder.run.as_ref(), Some(&first.run));
    let message = FenceError::Busy(busy.clone()).to_string();
    for part in [
        format!("stratum join on alpha (run {})", first.run),
        format!("since {:.0}", busy.since.unwrap()),
        format!("until {:.0}", busy.until),
        "wait for it, then try again".to_owned(),
        "kubectl -n kube-system delete lease stratum-maintenance".to_owned(),
    ] {
        assert!(message.contains(&part), "{part}: {message}");
    }
    let left = busy.until.duration_since(clock::now());
    assert!(left.unsigned_abs() <= SHORT.duration, "{left}");

    // It lasts for as long as it is renewed, and nobody else ever wrote.
    while began.elapsed() < SHORT.duration * 2 {
        bed.renewals(3).await;
        refused().await;
        fence.check().unwrap();
    }
    let lease = bed.lease().await;
    assert_eq!(lease["spec"]["holderIdentity"], first.identity().to_string());
    assert_eq!(lease["spec"]["leaseTransitions"], 0);
    assert_eq!(lease["spec"]["leaseDurationSeconds"], 6);

    fence.release().await;
    assert!(bed.is_free().await);
    let next = bed.acquire(&operation("beta")).await;
    assert_eq!(bed.lease().await["spec"]["leaseTransitions"], 1);
    next.release().await;
}

/// Of many that begin in one moment one begins.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_many_at_once_one_gets_it() {
    let bed = Bed::new(Cluster::shared().await, "fence-many").await;
    let all: Vec<_> = (0..8).map(|number| operation(&format!("node-{number}"))).collect();
    let tries = all.iter().map(|operation| bed.try_acquire(operation));
    let mut winners = Vec::new();
    for (acquired, _) in futures::future::join_all(tries).await {
        match acquired {
            Ok(fence) => winners.push(fence),
            Err(FenceError::Busy(_)) => {}
            Err(other) => panic!("{}", chain(&other)),
        }
    }
    assert_eq!(winners.len(), 1);
    let holder = bed.lease().await["spec"]["holderIdentity"].clone();
    assert!(
        holder.as_str().unwrap().contains(&winners[0].run().to_string()),
        "{holder}"
    );
    for fence in winners {
        fence.release().await;
    }
}

#[tokio::test]
async fn a_step_of_its_run_inherits_the_fence_and_a_step_of_another_does_not() {
    let bed = Bed::new(Cluster::shared().await, "fence-steps").await;
    let inherit = async |run| Inherited::of(bed.cluster.client().await, &bed.settings, run).await;
    let fence = bed.acquire(&operation("alpha")).await;
    let before = bed.lease().await["spec"]["holderIdentity"].clone();
    let run = fence.run().clone();
    let mut step = inherit(&run).await.map_err(|error| chain(&error)).unwrap();
    for _ in 0..3 {
        bed.renewals(1).await;
        step.check().await.map_err(|error| chain(&error)).unwrap();
    }
    assert_eq!(bed.lease().await["spec"]["holderIdentity"], before, "it takes nothing");
    let other = operation("alpha");
    let refused = inherit(&other.run).await.err().unwrap();
    let FenceError::NotInherited(NotInherited::Other(holder)) = &refused else {
        panic!("{}", chain(&refused))
    };
    assert_eq!(holder.run.as_ref(), Some(&run));
    // Clocks that are far apart: it waits for a renewal, and believes that.
    let far = async {
        bed.patch(r#"{"spec":{"renewTime":"2000-01-01T00:00:00.000000Z"}}"#)
            .await;
        inherit(&run).await.map(drop)
    };
    far.await.map_err(|error| chain(&error)).unwrap();

    fence.release().await;
    let ended = step.check().await.unwrap_err();
    assert!(matches!(ended, FenceError::NotInherited(NotInherited::Free)), "{ended}");
    let next = bed.acquire(&other).await;
    let ended = inherit(&run).await.err().unwrap();
    assert!(
        matches!(ended, FenceError::NotInherited(NotInherited::Other(_))),
        "{ended}"
    );
    next.release().await;
}

#[tokio::test]
async fn a_fence_that_somebody_took_is_lost_and_theirs_is_left_alone() {
    let bed = Bed::new(Cluster::shared().await, "fence-lost").await;
    let lost = async |fence: &stratum::controllers::cluster_fence::ClusterFence| {
        wait_for("the fence to be lost", SOON, || async { fence.check().err() }).await
    };
    let fence = bed.acquire(&operation("alpha")).await;
    fence.check().unwrap();
    bed.patch(r#"{"spec":{"holderIdentity":"somebody"}}"#).await;
    let reason = LossReason::Taken;
    let error = lost(&fence).await;
    assert_eq!(error, Lost { reason });
    assert!(
        error
            .to_string()
            .contains("another holds it; stopped between two steps, run it again"),
        "{error}"
    );
    fence.release().await;
    assert_eq!(bed.lease().await["spec"]["holderIdentity"], "somebody");

    bed.delete().await;
    let fence = bed.acquire(&operation("alpha")).await;
    bed.delete().await;
    assert_eq!(lost(&fence).await.reason, LossReason::Deleted);
    assert!(fence.check().is_err(), "for good");
    fence.release().await;

    let fence = bed.acquire(&operation("alpha")).await;
    bed.patch(r#"{"spec":{"holderIdentity":""}}"#).await;
    assert_eq!(lost(&fence).await.reason, LossReason::Erased);
    fence.release().await;
}

/// As an operation does that fails in the middle and never comes to its last line.
#[tokio::test]
async fn an_operation_that_fails_gives_the_fence_back() {
    let bed = Bed::new(Cluster::shared().await, "fence-fails").await;
    let fails = async {
        let fence = bed.acquire(&operation("alpha")).await;
        fence.check().map_err(|error| error.to_string())?;
        Err::<(), _>("the disk is full".to_owned())
    };
    assert_eq!(fails.await.unwrap_err(), "the disk is full");
    let free = || async { bed.is_free().await.then_some(()) };
    // Sooner than it could run out: nobody looks at it here but the one who gives it back.
    wait_for("the fence to be given back", SOON, free).await;
    bed.acquire(&operation("beta")).await.release().await;
}
