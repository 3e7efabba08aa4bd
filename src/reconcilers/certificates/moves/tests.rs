//! Who moves, why, and what shows it.

use strum::IntoEnumIterator;

use super::*;

fn names(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

const ALL: [&str; 13] = [
    "apiserver",
    "apiserver-kubelet-client",
    "apiserver-etcd-client",
    "etcd/server",
    "etcd/peer",
    "etcd/healthcheck-client",
    "front-proxy-client",
    "admin",
    "operator",
    "deployer",
    "controller-manager",
    "scheduler",
    "kubelet",
];

fn everything() -> Situation {
    Situation {
        leaves: names(&ALL),
        here: Consumer::iter().collect(),
        ..Situation::default()
    }
}

fn told(situation: &Situation) -> Vec<String> {
    let line = |one: &Move| match one.restart {
        Some(reason) => format!("{}: {reason}", one.consumer),
        None => one.consumer.to_string(),
    };
    plan(situation).iter().map(line).collect()
}

#[test]
fn only_who_reads_at_its_start_is_restarted() {
    assert_eq!(
        told(&everything()),
        [
            "kubelet",
            "etcd",
            "kube-apiserver",
            "kube-controller-manager: it reads its certificate at its start only",
            "kube-scheduler: it reads its certificate at its start only",
            "kube-vip: it reads its certificate at its start only",
            "operator: it reads its certificate at its start only",
        ]
    );
    let proofs: Vec<String> = plan(&everything())
        .iter()
        .flat_map(|one| one.proofs.iter().map(|(leaf, proof)| format!("{leaf}: {proof}")))
        .collect();
    assert_eq!(
        proofs,
        [
            "kubelet: serves the new serial",
            "etcd/peer: serves the new serial",
            "etcd/server: serves the new serial",
            "apiserver: serves the new serial",
            "apiserver-etcd-client: reads it at each handshake",
            "apiserver-kubelet-client: re-reads it within 5 minutes",
            "front-proxy-client: reads it when it changes",
            "controller-manager: started after the write",
            "scheduler: started after the write",
            "admin: started after the write",
            "deployer: started after the write",
            "operator: started after the write",
        ]
    );
}

#[test]
fn nobody_moves_for_leaves_it_does_not_use() {
    let one = |leaf: &str| Situation {
        leaves: names(&[leaf]),
        ..everything()
    };
    assert_eq!(told(&one("apiserver")), ["kube-apiserver"]);
    assert_eq!(told(&one("scheduler.conf")).len(), 1);
    assert_eq!(told(&one("etcd-healthcheck-client")), [""; 0]);
    assert_eq!(
        told(&Situation {
            leaves: names(&[]),
            ..everything()
        }),
        [""; 0]
    );
    let elsewhere = Situation {
        here: [Consumer::KubeScheduler].into(),
        ..everything()
    };
    assert_eq!(told(&elsewhere).len(), 1);
}

#[test]
fn what_is_down_takes_along_whatever_comes_after_it() {
    let down = |consumer| Situation {
        down: [consumer].into(),
        ..everything()
    };
    let reasons =
        |situation: &Situation| -> Vec<Option<Reason>> { plan(situation).iter().map(|one| one.restart).collect() };
    use Reason::{AtStart, Down, Expired, Follows};
    let follow = [Some(Follows); 4];
    assert_eq!(reasons(&down(Consumer::Etcd))[..3], [None, Some(Down), Some(Follows)]);
    assert_eq!(reasons(&down(Consumer::Etcd))[3..], follow);
    assert_eq!(reasons(&down(Consumer::KubeApiserver))[..3], [None, None, Some(Down)]);
    assert_eq!(reasons(&down(Consumer::KubeApiserver))[3..], follow);
    // A kubelet that was down is no reason to restart pods.
    let kubelet = reasons(&down(Consumer::Kubelet));
    assert_eq!((kubelet[0], kubelet[1], kubelet[3]), (Some(Down), None, Some(AtStart)));
    let expired = Situation {
        expired: names(&ALL),
        ..everything()
    };
    assert_eq!(reasons(&expired), [Some(Expired); 7]);
    // Of one client alone, no server is.
    let client = Situation {
        leaves: names(&["deployer"]),
        expired: names(&["deployer"]),
        ..everything()
    };
    assert_eq!(told(&client), ["operator: a certificate of its own had expired"]);
    // A restart moves whatever else the consumer uses, and its listener is asked all the same.
    let server = plan(&expired).remove(2);
    assert_eq!(server.proofs["front-proxy-client"], Proof::StartedAfter);
    assert_eq!(server.proofs["apiserver"], Proof::Serves);
}

#[test]
fn whom_an_earlier_run_left_is_moved_also_without_a_new_leaf() {
    let left = Situation {
        leaves: names(&[]),
        waiting: Some([Consumer::KubeScheduler].into()),
        ..everything()
    };
    assert_eq!(
        told(&left),
        ["kube-scheduler: it reads its certificate at its start only"]
    );
    assert_eq!(consumers(&names(&["admin", "apiserver", "x"])).len(), 2);
}

/// Both layouts, and nobody that no leaf belongs to.
#[test]
fn every_consumer_uses_a_leaf_of_each_layout() {
    let kubeadm = names(&[
        "admin.conf",
        "apiserver",
        "controller-manager.conf",
        "etcd-server",
        "kubelet-client",
        "scheduler.conf",
    ]);
    let mut expected: BTreeSet<Consumer> = Consumer::iter().collect();
    assert_eq!(consumers(&names(&ALL)), expected);
    expected.remove(&Consumer::Operator);
    assert_eq!(consumers(&kubeadm), expected);
    for consumer in Consumer::iter() {
        assert_eq!(consumer.to_string().parse(), Ok(consumer));
    }
}
