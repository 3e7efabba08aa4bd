//! What people and accidents do to a node, through the commands: each is told in words that say what to do, changes nothing
//! that it should not, and is no obstacle to the right command afterwards.

use std::time::Duration;

use stratum::host::child::Exit;
use stratum::pki::authority::Authority;

use crate::commands::{REFUSED, STATE, files, refused, started};
use crate::interrupted::uninstalled_in_pieces;
use crate::rig::{Node, OurCluster, Ours, Rig};
use crate::started::{is_ready, rig};
use crate::support::{impostor, wait_for};

const BOOT: Duration = Duration::from_secs(240);
/// Until a command that was started has come to where it waits.
const SOON: Duration = Duration::from_secs(60);
const CLAIM: &str = "/var/lib/stratum/claim.key";
const LEFT: &str = "/var/lib/stratum/left-cluster";
const SCHEDULER: &str = "/var/lib/stratum/static-pods/kube-scheduler.yaml";

/// One cluster for all of it, since each takes a minute: a machine that fails to join in every way, is interrupted, joins,
/// loses its state, gets it back and leaves, and a controller whose manifests were tampered with.
#[tokio::test(flavor = "multi_thread")]
async fn what_goes_wrong_with_a_node_is_told_and_mended() {
    let mut rig = rig().await;
    let mut cluster = rig.stratum(1, 0).await.unwrap();
    let machine = rig.prepared("joiner").await.unwrap();

    never_installed(&machine).await;
    joins_in_vain(&cluster, &machine).await;
    of_another_time(&rig, &cluster, &machine).await;
    one_at_a_time(&machine).await;
    let words = tampered_manifests_and_a_join_that_is_cut_off(&mut cluster, &machine).await;
    joins_again(&machine, &words).await;
    a_state_that_cannot_be_used(&machine).await;

    let worker = machine.up().await.unwrap();
    let ready = || async {
        worker.is_up().unwrap();
        is_ready(cluster.first(), "joiner").await
    };
    wait_for("the worker to be Ready after all of that", BOOT, ready).await;
    let Ours { up, node } = worker;
    uninstalled_in_pieces(&node).await;
    drop(up);
}

async fn never_installed(machine: &Node) {
    let before = files(machine).await;
    for (command, exit) in [("up", REFUSED), ("status", REFUSED)] {
        refused(
            machine,
            &[command],
            exit,
            "this machine is no node yet (`stratum server` or `stratum join`",
        )
        .await;
    }
    assert_eq!(files(machine).await, before);
}

/// Each way to fail leaves the machine as it was.
async fn joins_in_vain(cluster: &OurCluster, machine: &Node) {
    let before = files(machine).await;
    let good = cluster.invite(machine, &[]).await.unwrap();
    let with = |flag: &str, value: &str| {
        let mut words = good.clone();
        let at = words.iter().position(|word| word == flag).unwrap() + 1;
        value.clone_into(&mut words[at]);
        words
    };
    let at = |endpoint: &str| {
        let mut words = good.clone();
        endpoint.clone_into(&mut words[1]);
        words
    };
    let controller = cluster.first().node.address();
    let expired = cluster.invite(machine, &["--ttl", "1s"]).await.unwrap();
    let for_controllers = cluster.invite(machine, &["--control-plane"]).await.unwrap();
    let for_controllers: Vec<String> = worker_words(&for_controllers);
    let mistyped = with("--token", "abcdef.0123456789abcdef");
    let taken = [&good[..], &["--node-name".to_owned(), "controller-1".to_owned()]].concat();
    let cases = [
        (
            with("--ca-cert-hash", &format!("sha256:{}", "0".repeat(64))),
            "none of the given hashes is its",
        ),
        (mistyped, "is not signed for token abcdef"),
        (expired, "the token expired"),
        (
            for_controllers,
            "admits a controller, and this machine is to become a worker",
        ),
        (taken, "a Node controller-1 is registered already"),
        (at(&format!("{controller}:10250")), "is no Kubernetes API server"),
        (at(&format!("{controller}:1")), "cannot connect to"),
        (at("no-such-host.invalid:6443"), "no-such-host.invalid:6443: "),
    ];
    for (words, says) in &cases {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let answer = refused(machine, &words, REFUSED, says).await;
        for secret in words.iter().filter(|word| word.len() == 23 && word.contains('.')) {
            assert!(!answer.contains(&secret[7..]), "a secret is printed: {answer}");
        }
        assert_eq!(files(machine).await, before, "{says}");
    }
    for (words, says) in [
        (with("--token", "short"), "--token"),
        (with("--ca-cert-hash", "md5:00"), "--ca-cert-hash"),
    ] {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        refused(machine, &words, Exit::Status(2), says).await;
    }
    assert_eq!(files(machine).await, before);
}

/// Somebody whose clock is years ahead answers for the cluster, and can prove that he may.
async fn of_another_time(rig: &Rig, cluster: &OurCluster, machine: &Node) {
    let before = files(machine).await;
    let controller = cluster.first();
    let mut words = cluster.invite(machine, &[]).await.unwrap();
    let read = |name: &str| std::fs::read(controller.node.path(&format!("/var/lib/stratum/pki/{name}"))).unwrap();
    let authority = Authority::load(&read("ca.crt"), &read("ca.key")).unwrap();
    let info = [
        "get",
        "configmap",
        "cluster-info",
        "--namespace=kube-public",
        "--output=json",
    ];
    let token = words.iter().position(|word| word == "--token").unwrap() + 1;
    let signature = format!("jws-kubeconfig-{}", &words[token][..6]);
    let signed = || async {
        controller
            .kubectl(&info)
            .await
            .ok()
            .filter(|info| info.contains(&signature))
    };
    let info = wait_for("cluster-info to be signed", SOON, signed).await;
    let address = impostor::answering(rig.host_address(), Some(&authority), move |_| {
        let answer = hyper::Response::builder().header("Date", "Fri, 04 Jan 2036 00:00:00 GMT");
        answer.body(info.clone()).unwrap()
    })
    .await;
    words[1] = address.to_string();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let told = refused(machine, &words, REFUSED, "this machine's clock says ").await;
    assert!(told.contains("that of the API server 2036-01-04"), "{told}");
    assert_eq!(files(machine).await, before);
}

/// Without what only a controller's command has.
fn worker_words(words: &[String]) -> Vec<String> {
    let key = words.iter().position(|word| word == "--certificate-key").unwrap();
    let words = words
        .iter()
        .enumerate()
        .filter(|(number, _)| ![key, key + 1].contains(number));
    words
        .map(|(_, word)| word.clone())
        .filter(|word| word != "--control-plane")
        .collect()
}

/// Whoever comes second is told who was first. A join to an address that nobody has waits for an answer.
async fn one_at_a_time(machine: &Node) {
    let nobody = [
        "join",
        "203.0.113.1:6443",
        "--token",
        "abcdef.0123456789abcdef",
        "--ca-cert-hash",
        &format!("sha256:{}", "0".repeat(64)),
    ];
    let first = started(machine, &nobody, true, "first");
    let lock = || async {
        let holder = std::fs::read_to_string(machine.path("/run/stratum/node.lock")).unwrap_or_default();
        holder.contains("stratum join").then_some(())
    };
    wait_for("the first to hold the lock", SOON, lock).await;
    let address = machine.address().to_string();
    for second in [&["server", "--node-ip", &address][..], &["up"], &nobody] {
        let told = refused(machine, second, REFUSED, "this node is being changed by process ").await;
        assert!(told.contains("(stratum join): wait for it"), "{told}");
    }
    drop(first);
}

/// While a controller's `stratum up` is away, its manifests are tampered with, and nobody approves a certificate: a join waits
/// for that, and is cut off. The words of that join.
async fn tampered_manifests_and_a_join_that_is_cut_off(cluster: &mut OurCluster, machine: &Node) -> Vec<String> {
    let words = cluster.invite(machine, &[]).await.unwrap();
    stopped(&mut cluster.controllers[0]).await;
    let join = started(machine, &words, true, "join-cut-off");
    let controller = cluster.first();
    let requests = ["get", "certificatesigningrequests", "--output=name"];
    let asked = || async {
        let requests = controller.kubectl(&requests).await.ok()?;
        requests
            .lines()
            .find(|name| name.contains("stratum-join-joiner"))
            .map(str::to_owned)
    };
    let request = wait_for("the join to ask for its certificate", SOON, asked).await;
    drop(join);
    assert!(!machine.path(STATE).exists());

    let node = &controller.node;
    let rendered = std::fs::read_to_string(node.path(SCHEDULER)).unwrap();
    let edited = rendered.replace("--leader-elect=true", "--leader-elect=false");
    assert_ne!(edited, rendered);
    node.write(SCHEDULER, &edited).unwrap();
    let beside = |name: &str| format!("/var/lib/stratum/static-pods/{name}");
    node.write(
        &beside("stray.yaml"),
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: stray}\n",
    )
    .unwrap();
    node.write(&beside(".hidden.yaml"), "an editor's\n").unwrap();
    node.write(&beside("kube-scheduler.yaml.tmp-7"), &edited).unwrap();

    let Ours { up, node } = cluster.controllers.remove(0);
    drop(up);
    cluster.controllers.insert(0, node.up().await.unwrap());
    let controller = cluster.first();
    let is_mended = || async {
        controller.is_up().unwrap();
        let now = std::fs::read_to_string(controller.node.path(SCHEDULER)).unwrap();
        (now == rendered).then_some(())
    };
    wait_for("the manifest to be as it is rendered", SOON, is_mended).await;
    let told = || async {
        let log = std::fs::read_to_string(controller.node.log("up")).unwrap();
        let words = [
            "wrote the manifest of kube-scheduler",
            "kube-scheduler.yaml.tmp-7: left over",
            "stray.yaml is none of this program's",
        ];
        assert!(!log.contains(".hidden.yaml"), "{log}");
        words.iter().all(|told| log.contains(told)).then_some(())
    };
    wait_for("all of it to be told", SOON, told).await;
    assert!(!controller.node.path(&beside("kube-scheduler.yaml.tmp-7")).exists());
    for kept in ["stray.yaml", ".hidden.yaml"] {
        let kept = controller.node.path(&beside(kept));
        assert!(kept.exists(), "{} is not this program's to remove", kept.display());
        std::fs::remove_file(kept).unwrap();
    }

    let issued = ["get", &request, "--output=jsonpath={.status.certificate}"];
    let is_issued = || async {
        controller
            .kubectl(&issued)
            .await
            .ok()
            .filter(|issued| !issued.is_empty())
    };
    wait_for("the certificate of the join that is gone", BOOT, is_issued).await;
    words
}

/// As systemd would stop it: a signal to the process around it would not reach it in time.
async fn stopped(ours: &mut Ours) {
    let holder = std::fs::read_to_string(ours.node.path("/run/stratum/up.lock")).unwrap();
    let process = holder.split(' ').next().unwrap();
    ours.node.run("kill", &["-TERM", process]).await.unwrap();
    let ended = ours.up.wait().await.unwrap();
    assert!(ended.is_success(), "{ended}");
}

/// The name belongs to whoever has the key of that join: no other machine, and this one at once.
async fn joins_again(machine: &Node, words: &[String]) {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let address = machine.address().to_string();
    refused(
        machine,
        &["server", "--node-ip", &address],
        REFUSED,
        "a join of this machine as worker joiner was cut off: do the same again, or",
    )
    .await;
    let (key, aside) = (machine.path(CLAIM), machine.path("/run/claim.key"));
    std::fs::rename(&key, &aside).unwrap_or_else(|_| {
        std::fs::copy(&key, &aside).unwrap();
        std::fs::remove_file(&key).unwrap();
    });
    refused(
        machine,
        &words,
        REFUSED,
        "the name joiner belongs to another machine until",
    )
    .await;
    std::fs::copy(&aside, &key).unwrap();
    std::fs::remove_file(&aside).unwrap();
    // Of an uninstall whose last step was cut off: it is another node's.
    machine.write(LEFT, "marked Node somebody\n").unwrap();
    let joined = machine.stratum(&words, true).await.unwrap();
    assert!(!machine.path(LEFT).exists() && !machine.path("/var/lib/stratum/joining").exists());
    assert!(joined.contains("joiner is a worker now"), "{joined}");
    assert!(machine.path(STATE).exists() && !key.exists());
    refused(
        machine,
        &words,
        REFUSED,
        "this machine is node joiner already: `stratum up` runs it",
    )
    .await;
}

async fn a_state_that_cannot_be_used(machine: &Node) {
    let good = std::fs::read_to_string(machine.path(STATE)).unwrap();
    let half = good[..good.len() / 2].rfind('\n').unwrap() + 1;
    let replaced = |from: &str, to: &str| {
        let text = good.replace(from, to);
        assert_ne!(text, good, "no {from:?} in {good}");
        text
    };
    let cases = [
        (String::new(), "node.yaml is empty: bring it back from a backup"),
        (good[..half].to_owned(), "node.yaml is cut off"),
        (
            replaced("version: 1\n", "version: 7\n"),
            "has version 7, and this binary knows up to 1: run the newer binary",
        ),
        (
            replaced("profile: default\n", "profile: strict\n"),
            "this binary has no profile \"strict\" (it has: default, cis); run the one that installed the node",
        ),
    ];
    let anywhere = [
        "join",
        "203.0.113.1:6443",
        "--token",
        "abcdef.0123456789abcdef",
        "--ca-cert-hash",
    ];
    let pin = format!("sha256:{}", "0".repeat(64));
    let join = [&anywhere[..], &[&pin]].concat();
    let address = machine.address().to_string();
    for (text, says) in &cases {
        machine.write(STATE, text).unwrap();
        let before = files(machine).await;
        let commands: [(&[&str], Exit); 6] = [
            (&["up"], REFUSED),
            (&["status"], REFUSED),
            (&["uninstall", "--dry-run"], Exit::Status(0)),
            (&["uninstall", "--yes"], REFUSED),
            (&["server", "--node-ip", &address], REFUSED),
            (&join, REFUSED),
        ];
        for (command, exit) in commands {
            let told = refused(machine, command, exit, says).await;
            let errors = told.lines().filter(|line| line.starts_with("error: ")).count();
            assert!(errors <= 1, "one error is told once: {told}");
        }
        assert_eq!(files(machine).await, before, "{says}");
        assert_eq!(std::fs::read_to_string(machine.path(STATE)).unwrap(), *text);
    }
    std::fs::remove_file(machine.path(STATE)).unwrap();
    for (command, exit) in [("up", REFUSED), ("status", REFUSED)] {
        refused(machine, &[command], exit, "this machine is no node yet").await;
    }
    refused(
        machine,
        &["uninstall", "--dry-run"],
        Exit::Status(0),
        "which node this was is not known any more",
    )
    .await;
    machine.write(STATE, &good).unwrap();
    // Of an uninstall that was cut off after the cluster was told.
    machine.write(LEFT, "marked Node joiner\n").unwrap();
    let says = "this machine has left its cluster (marked Node joiner): `stratum uninstall --yes`";
    refused(machine, &["up"], REFUSED, says).await;
    std::fs::remove_file(machine.path(LEFT)).unwrap();
}
