//! A cluster of the real kubeadm on the rig: later work is judged on it, so it has to be a real one.

use std::time::Duration;

use stratum::host::child::Program;

use crate::started::rig;
use crate::support::{kubectl, wait_for};

#[tokio::test(flavor = "multi_thread")]
async fn kubeadm_makes_a_cluster_of_a_controller_and_a_worker() {
    let mut rig = rig().await;
    let cluster = rig.kubeadm(1).await.unwrap();
    let controller = &cluster.members[0].node;
    // From this machine, as a person does it.
    let program =
        Program::new(kubectl().await).arguments(["--kubeconfig".into(), cluster.kubeconfig.clone().into_os_string()]);
    let kubectl = async |arguments: &[&str]| {
        let finished = program
            .clone()
            .arguments(arguments.iter().copied())
            .run(Vec::new())
            .await
            .unwrap();
        assert!(
            finished.exit.is_success(),
            "{}",
            String::from_utf8_lossy(&finished.stderr)
        );
        String::from_utf8(finished.stdout).unwrap()
    };
    let names = kubectl(&["get", "nodes", "-o", "name"]).await;
    assert_eq!(names, "node/controller-1\nnode/worker-1\n");
    let running = "--field-selector=status.phase=Running";
    // The kubelet tells of its static pods when it gets to it.
    let all_run = || async {
        let pods = kubectl(&["-n", "kube-system", "get", "pods", running, "-o", "name"]).await;
        let runs = |component: &str| pods.contains(&format!("pod/{component}-controller-1"));
        let components = ["etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"];
        components.into_iter().all(runs).then_some(())
    };
    wait_for("the static pods to be told of", Duration::from_secs(120), all_run).await;
    // The judge itself has to find nothing to complain of.
    let certificates = ["certs", "check-expiration", "--config", "/etc/kubernetes/kubeadm.yaml"];
    let table = controller.run("kubeadm", &certificates).await.unwrap();
    assert!(
        table.contains("apiserver-kubelet-client") && !table.contains("MISSING"),
        "{table}"
    );
}
