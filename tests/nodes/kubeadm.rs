//! A cluster of the real kubeadm on the rig: later work is judged on it, so it has to be a real one.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use serde_json::Value;
use stratum::host::child::{Exit, Program};

use crate::certificates::checked;
use crate::rig::Node;
use crate::started::rig;
use crate::support::{kubectl, wait_for};
use crate::traffic::{serial_in_file, serial_served, tell};

const SOON: Duration = Duration::from_secs(120);

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

const CONFIGURATION: &str = "/etc/kubernetes/kubeadm.yaml";
const ADMIN: &str = "/etc/kubernetes/admin.conf";

/// Names and ends of certificates, as kubeadm tells them.
async fn told_by_kubeadm(controller: &Node) -> BTreeMap<String, String> {
    let words = ["certs", "check-expiration", "--config", CONFIGURATION, "-o", "json"];
    let told: Value = serde_json::from_str(&controller.run("kubeadm", &words).await.unwrap()).unwrap();
    let rows = ["certificates", "certificateAuthorities"].map(|part| told[part].as_array().unwrap().clone());
    let there = rows.iter().flatten().filter(|row| row["missing"] != true);
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    there
        .map(|row| (text(&row["name"]), text(&row["expirationDate"])))
        .collect()
}

/// The same by us, and how the command ended.
async fn told_by_us(controller: &Node) -> (Exit, BTreeMap<String, String>) {
    let (exit, told) = checked(controller).await;
    let rows = told["certificates"].as_array().unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    (
        exit,
        rows.iter()
            .map(|row| (text(&row["name"]), text(&row["notAfter"])))
            .collect(),
    )
}

/// kubeadm is asked about the same files before and after, and goes on with them.
#[tokio::test(flavor = "multi_thread")]
async fn the_certificates_of_kubeadm_are_checked_and_rotated_and_kubeadm_goes_on() {
    let mut rig = rig().await;
    let cluster = rig.kubeadm(0).await.unwrap();
    let controller = &cluster.members[0].node;
    let agree = || async {
        let (judge, (exit, ours)) = (told_by_kubeadm(controller).await, told_by_us(controller).await);
        for (name, end) in &judge {
            assert_eq!(ours.get(name), Some(end), "{name}: {ours:?}");
        }
        let more: Vec<&String> = ours.keys().filter(|name| !judge.contains_key(*name)).collect();
        assert!(more.iter().all(|name| name.starts_with("kubelet-")), "{more:?}");
        assert_eq!(exit, Exit::Status(0), "{ours:?}");
        judge
    };
    let before = agree().await;
    assert!(
        before.contains_key("admin.conf") && before.contains_key("etcd-ca"),
        "{before:?}"
    );
    let listeners = [("apiserver", 6443), ("etcd/server", 2379), ("etcd/peer", 2380)];
    let listeners = listeners.map(|(name, port)| (name, SocketAddr::from((controller.address(), port))));
    let mut old = Vec::new();
    for (_, address) in listeners {
        old.push(serial_served(address).await.unwrap());
    }

    let told = controller.stratum(&["certs", "rotate"], false).await.unwrap();
    tell(&told);
    for ((name, address), old) in listeners.iter().zip(&old) {
        let file = serial_in_file(&controller.path("/etc/kubernetes/pki").join(format!("{name}.crt"))).await;
        let served = wait_for(name, SOON, || serial_served(*address)).await;
        assert!(served == file && served != *old, "{name}: {served}, {file}, {old}");
    }
    let after = agree().await;
    for (name, end) in &before {
        let is_authority = ["ca", "etcd-ca", "front-proxy-ca"].contains(&name.as_str());
        assert_eq!(&after[name] == end, is_authority, "{name}: {end}, {}", after[name]);
    }
    for user in ["admin", "super-admin", "controller-manager", "scheduler"] {
        let kubeconfig = format!("/etc/kubernetes/{user}.conf");
        controller
            .run("kubectl", &["--kubeconfig", &kubeconfig, "auth", "whoami"])
            .await
            .unwrap();
    }

    // What kubeadm has made it can still renew, and a machine joins by its own words.
    controller
        .run(
            "kubeadm",
            &["certs", "renew", "scheduler.conf", "--config", CONFIGURATION],
        )
        .await
        .unwrap();
    let create = ["token", "create", "--print-join-command", "--kubeconfig", ADMIN];
    let words = controller.run("kubeadm", &create).await.unwrap();
    let words: Vec<&str> = words.split_whitespace().skip(1).collect();
    let worker = rig.node("worker-1").await.unwrap().kubeadm_join(&words).await.unwrap();
    let ready = "jsonpath={.status.conditions[?(@.type=='Ready')].status}";
    let is_ready = || async {
        let words = ["--kubeconfig", ADMIN, "get", "node", "worker-1", "--output", ready];
        controller
            .run("kubectl", &words)
            .await
            .is_ok_and(|told| told == "True")
            .then_some(())
    };
    wait_for("the worker of `kubeadm join` to be Ready", SOON, is_ready).await;
    drop(worker);
}
