//! Holders that are killed or asked to end: processes of their own, which do nothing but hold the fence.

use rustix::process::{Pid, Signal, kill_process};
use stratum::controllers::cluster_fence::{
    ClusterFence, FenceError, Inherited, Interrupted, Settings, unless_interrupted,
};
use stratum::controllers::concern::chain;
use stratum::controllers::connection::{self, ClientSettings};
use stratum::host::child::{Child, Exit, Output, Program};
use stratum::host::layout::Identity;
use stratum::reconcilers::election::fence::{Holder, NotInherited};

use super::{Bed, SHORT, SOON, operation};
use crate::support::{Cluster, stratum, wait_for};

const NAMESPACE: &str = "STRATUM_TEST_FENCE_NAMESPACE";
const KUBECONFIG: &str = "STRATUM_TEST_FENCE_KUBECONFIG";
const LOCK: &str = "STRATUM_TEST_FENCE_LOCK";

/// Not a test: the process that the tests of this file start.
#[tokio::test]
#[ignore = "run by other tests, as a process of its own"]
async fn holding_process() {
    let [Ok(namespace), Ok(kubeconfig)] = [NAMESPACE, KUBECONFIG].map(std::env::var) else {
        return;
    };
    let settings = Settings {
        namespace,
        timing: SHORT,
        lock: std::env::var_os(LOCK).map(Into::into),
    };
    let client = connection::client(&ClientSettings::new(kubeconfig, "fence"), None)
        .await
        .unwrap();
    let held = ClusterFence::acquire(client, &settings, &operation("doomed"), &mut std::io::sink()).await;
    let fence = held.unwrap_or_else(|error| panic!("{}", chain(&error)));
    let work = std::future::pending::<()>();
    let signal = "SIGTERM";
    assert_eq!(unless_interrupted(work).await, Err(Interrupted { signal }));
    fence.release().await;
}

impl Bed<'_> {
    /// Starts a process that holds the fence.
    async fn holding_process(&self) -> (Child, Holder) {
        let child = Program::new(std::env::current_exe().unwrap())
            .arguments(["--exact", "fence::dying::holding_process", "--ignored", "--nocapture"])
            .variable(NAMESPACE, &self.settings.namespace)
            .variable(KUBECONFIG, self.cluster.kubeconfig(Identity::Admin));
        let child = match &self.settings.lock {
            Some(lock) => child.variable(LOCK, lock),
            None => child,
        };
        let child = child.dies_with_us(stratum()).start(&Output::Discard).unwrap();
        let arguments = [
            "get",
            "lease",
            "--ignore-not-found",
            "-o",
            "jsonpath={.items[*].spec.holderIdentity}",
        ];
        let holder = || async {
            let text = self.cluster.kubectl_in(&self.settings.namespace, &arguments).await;
            text.contains("doomed").then(|| Holder::parse(&text))
        };
        (child, wait_for("the process to hold the fence", SOON, holder).await)
    }
}

async fn end(mut child: Child, signal: Signal) -> Exit {
    let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    kill_process(pid, signal).unwrap();
    let ended = tokio::time::timeout(SOON, child.wait()).await;
    ended.expect("it ends").unwrap()
}

async fn kill(child: Child) {
    end(child, Signal::KILL).await;
}

#[tokio::test]
async fn a_holder_that_is_asked_to_end_gives_the_fence_back() {
    let bed = Bed::new(Cluster::shared().await, "fence-asked").await;
    let (child, _) = bed.holding_process().await;
    assert_eq!(end(child, Signal::TERM).await, Exit::Status(0));
    assert!(bed.is_free().await);
}

#[tokio::test]
async fn a_holder_that_was_killed_is_named_watched_and_followed() {
    let bed = Bed::new(Cluster::shared().await, "fence-killed").await;
    let (child, holder) = bed.holding_process().await;
    bed.renewals(1).await;
    let mut step = Inherited::of(bed.cluster.client().await, &bed.settings, holder.run.as_ref().unwrap())
        .await
        .map_err(|error| chain(&error))
        .unwrap();
    kill(child).await;
    // By its dates it may be alive: whoever comes now is sent away.
    let (refused, _) = bed.try_acquire(&operation("beta")).await;
    match refused {
        Err(FenceError::Busy(busy)) => assert_eq!(busy.holder, holder),
        other => panic!("{other:?}"),
    }
    let ended = || async {
        let (acquired, told) = bed.try_acquire(&operation("beta")).await;
        acquired.ok().map(|fence| (fence, told))
    };
    let (fence, told) = wait_for("the fence to be free", SOON * 2, ended).await;
    // Later its dates are over, and our own clock decides.
    assert!(
        told.starts_with(&format!("{holder} has not renewed Lease stratum-maintenance")) && told.lines().count() == 1,
        "{told}"
    );
    assert_eq!(bed.lease().await["spec"]["leaseTransitions"], 1);
    let refused = step.check().await.unwrap_err();
    assert!(
        matches!(refused, FenceError::NotInherited(NotInherited::Other(_))),
        "{}",
        chain(&refused)
    );
    fence.release().await;
}

/// Somebody at the machine does it again, and need not wait until the Lease has run out.
#[tokio::test]
async fn what_was_killed_on_this_machine_is_followed_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let mut bed = Bed::new(Cluster::shared().await, "fence-here").await;
    bed.settings.lock = Some(folder.path().join("run/fence.lock"));
    let (child, _) = bed.holding_process().await;
    let (refused, _) = bed.try_acquire(&operation("alpha")).await;
    assert!(matches!(refused, Err(FenceError::Here(_))), "while it lives");
    kill(child).await;
    // Anywhere else it may still be alive.
    let lock = bed.settings.lock.take();
    let (refused, _) = bed.try_acquire(&operation("alpha")).await;
    assert!(matches!(refused, Err(FenceError::Busy(_))), "without the lock");
    bed.settings.lock = lock;
    bed.acquire(&operation("alpha")).await.release().await;
    assert!(bed.is_free().await);
}

#[tokio::test]
async fn a_step_of_a_run_that_was_killed_ends() {
    let bed = Bed::new(Cluster::shared().await, "fence-orphan").await;
    let (child, holder) = bed.holding_process().await;
    let run = holder.run.unwrap();
    let client = bed.cluster.client().await;
    let mut step = Inherited::of(client.clone(), &bed.settings, &run)
        .await
        .map_err(|error| chain(&error))
        .unwrap();
    kill(child).await;
    // It learns it from the Lease alone, which still names its run.
    let mut expired = None;
    let began = stratum::host::clock::monotonic();
    while expired.is_none() && began.elapsed() < SOON {
        expired = step.check().await.err();
        stratum::host::clock::sleep(SHORT.retry_period).await;
    }
    let expired = expired.unwrap();
    assert!(
        matches!(expired, FenceError::NotInherited(NotInherited::Expired)),
        "{}",
        chain(&expired)
    );
    let another = Inherited::of(client, &bed.settings, &run).await.err().unwrap();
    assert!(
        matches!(another, FenceError::NotInherited(NotInherited::Expired)),
        "{}",
        chain(&another)
    );
}
