use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::{StreamExt, stream};
use http::Method;
use serde_json::json;

use super::bed::{Bed, SERVING, ask, ask_client, ask_serving, conditions, new_key, pkcs10, report, try_ask};
use crate::support::requests::send;
use crate::support::wait_for;

/// How long five thousand requests may take to be taken and judged beside other tests.
const FLOODED: Duration = Duration::from_secs(120);

#[tokio::test]
async fn a_node_is_approved_once_it_tells_its_addresses() {
    let bed = Bed::shared().await;
    let kubelet = bed.node("slow", &[]).await;
    ask_serving(&kubelet, "slow-1", "slow", &["10.1.0.1", "slow"]).await;
    let why = bed.waits("slow-1", "NodeNotReadyYet").await;
    assert_eq!(why, "Node slow has no addresses in its status yet");
    let told = bed.stratum(&["operator", "csrs"]).await;
    assert!(told.contains(&format!("\n  {why}\n")), "{told}");
    report(&kubelet, "slow", &[("InternalIP", "10.1.0.1"), ("Hostname", "slow")]).await;
    bed.approved("slow-1").await;
    let told = bed.stratum(&["operator", "csrs", "-o", "json"]).await;
    assert!(!told.contains("slow-1"), "{told}");
}

#[tokio::test]
async fn what_a_node_says_of_itself_does_not_make_it_its_own() {
    let bed = Bed::shared().await;
    let victim = bed
        .node("victim", &[("InternalIP", "10.2.0.1"), ("Hostname", "victim")])
        .await;
    ask_serving(&victim, "victim-1", "victim", &["10.2.0.1"]).await;
    bed.approved("victim-1").await;
    let stolen = [
        ("InternalIP", "10.2.0.2"),
        ("InternalIP", "10.2.0.1"),
        ("Hostname", "victim"),
        ("InternalDNS", "kubernetes.default.svc"),
        ("InternalIP", "10.96.0.1"),
        ("ExternalIP", "127.0.0.1"),
    ];
    let hostile = bed.node("hostile", &stolen).await;
    for (number, name, reason, word) in [
        (1, "10.2.0.1", "ForeignAddress", "10.2.0.1 was node victim's before"),
        (2, "victim", "ForeignAddress", "victim was node victim's before"),
        (
            3,
            "kubernetes.default.svc",
            "ReservedAddress",
            "is a name of the cluster's own",
        ),
        (4, "10.96.0.1", "ReservedAddress", "lies in the service network"),
        (5, "127.0.0.1", "ReservedAddress", "is one of the loopback addresses"),
        (
            6,
            "10.2.0.9",
            "ForeignAddress",
            "is not in the addresses of Node hostile",
        ),
    ] {
        let request = format!("hostile-{number}");
        ask_serving(&hostile, &request, "hostile", &["10.2.0.2", name]).await;
        let why = bed.waits(&request, reason).await;
        assert!(why.contains(word), "{why}");
    }
    ask_serving(&hostile, "hostile-own", "hostile", &["10.2.0.2"]).await;
    bed.approved("hostile-own").await;
    // The victim loses nothing.
    ask_serving(&victim, "victim-2", "victim", &["10.2.0.1", "victim"]).await;
    bed.approved("victim-2").await;
}

#[tokio::test]
async fn nobody_else_gets_a_nodes_serving_certificate() {
    let bed = Bed::shared().await;
    let kubelet = bed.node("target", &[("InternalIP", "10.3.0.1")]).await;
    let other = bed.node("other", &[("InternalIP", "10.3.0.2")]).await;
    let joiner = bed.joiner("aaaaaa").await;
    let stranger = bed.cluster.client_of("stranger", &["system:nodes"]).await;
    let controller_manager = bed.cluster.client_of("system:kube-controller-manager", &[]).await;
    bed.cluster.apply(ASKERS).await;
    // Another node cannot even ask: NodeRestriction knows the kubelets. Without that plugin it would wait.
    let pem = pkcs10(&new_key(), "system:node:target", &["10.3.0.1"]);
    let usages = ["digital signature", "server auth"];
    let refused = try_ask(&other, "target-by-other", SERVING, &usages, &pem)
        .await
        .unwrap_err();
    assert!(refused.is_forbidden(), "{refused:?}");
    for (client, request) in [
        (&joiner, "target-by-joiner"),
        (&stranger, "target-by-stranger"),
        (&controller_manager, "target-by-controller-manager"),
    ] {
        ask_serving(client, request, "target", &["10.3.0.1"]).await;
        assert!(
            bed.waits(request, "ForeignRequester")
                .await
                .contains("which is no node")
        );
    }
    let pem = pkcs10(&new_key(), "system:node:target", &["10.3.0.1"]);
    let usages = ["digital signature", "server auth", "client auth"];
    ask(&kubelet, "target-usages", SERVING, &usages, &pem).await;
    assert!(
        bed.waits("target-usages", "NotAKubeletsRequest")
            .await
            .contains("its usages are")
    );
    ask_serving(&kubelet, "target-own", "target", &["10.3.0.1"]).await;
    bed.approved("target-own").await;
}

/// Strangers who may ask.
const ASKERS: &str = "apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: strangers-ask}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: 'system:node-bootstrapper'}
subjects:
- {apiGroup: rbac.authorization.k8s.io, kind: User, name: stranger}
- {apiGroup: rbac.authorization.k8s.io, kind: User, name: 'system:kube-controller-manager'}
";

#[tokio::test]
async fn what_somebody_denied_stays_denied() {
    let bed = Bed::shared().await;
    let kubelet = bed.node("denied", &[]).await;
    ask_serving(&kubelet, "denied-1", "denied", &["10.4.0.1"]).await;
    bed.waits("denied-1", "NodeNotReadyYet").await;
    bed.decide("denied-1", "Denied").await;
    report(&kubelet, "denied", &[("InternalIP", "10.4.0.1")]).await;
    ask_serving(&kubelet, "denied-2", "denied", &["10.4.0.1"]).await;
    bed.approved("denied-2").await;
    assert_eq!(conditions(&bed.request("denied-1").await), ["Denied"]);
}

/// A controller's own address is one at which an API server listens. Nobody else has it, whatever they say of themselves.
#[tokio::test]
async fn the_address_of_an_api_server_is_its_controllers_own() {
    let bed = Bed::shared().await;
    bed.cluster.register(&["controller"]).await;
    let controller = bed.cluster.kubelet("controller").await;
    report(
        &controller,
        "controller",
        &[("InternalIP", "10.8.0.1"), ("InternalIP", "10.8.0.100")],
    )
    .await;
    let worker = [
        ("InternalIP", "10.8.0.9"),
        ("InternalIP", "10.8.0.2"),
        ("InternalIP", "10.8.0.100"),
    ];
    let worker = bed.node("worker", &worker).await;
    ask_serving(&controller, "controller-own", "controller", &["10.8.0.1"]).await;
    bed.approved("controller-own").await;
    for (client, node, address, word) in [
        (&worker, "worker", "10.8.0.2", "an address of the API server"),
        (&worker, "worker", "10.8.0.100", "shared address"),
        (&controller, "controller", "10.8.0.100", "shared address"),
    ] {
        let request = format!("{node}-{address}");
        ask_serving(client, &request, node, &[address]).await;
        let why = bed.waits(&request, "ReservedAddress").await;
        assert!(why.contains(word), "{why}");
    }
    ask_serving(&worker, "worker-own", "worker", &["10.8.0.9"]).await;
    bed.approved("worker-own").await;
}

/// The flood is of one requester; everybody else is served as if it were not there, and the Events are few.
#[tokio::test]
async fn a_flood_of_one_node_holds_up_nobody_else() {
    const FLOOD: usize = 5000;
    let bed = Bed::shared().await;
    let flooder = bed.node("flooder", &[("InternalIP", "10.5.0.1")]).await;
    let kubelet = bed.node("patient", &[("InternalIP", "10.5.0.2")]).await;
    let pem = pkcs10(&new_key(), "system:node:flooder", &["10.5.0.9"]);
    let sent = AtomicUsize::new(0);
    let send_all = stream::iter(0..FLOOD)
        .map(async |number| {
            let usages = ["digital signature", "server auth"];
            ask(&flooder, &format!("flood-{number}"), SERVING, &usages, &pem).await;
            sent.fetch_add(1, Ordering::Relaxed);
        })
        .buffer_unordered(8)
        .collect::<()>();
    let patient = async {
        let under_way = || async { (sent.load(Ordering::Relaxed) > FLOOD / 5).then_some(()) };
        wait_for("the flood to be under way", FLOODED, under_way).await;
        ask_serving(&kubelet, "patient-1", "patient", &["10.5.0.2"]).await;
        bed.approved("patient-1").await;
        sent.load(Ordering::Relaxed)
    };
    let ((), sent_by_then) = futures::join!(send_all, patient);
    assert!(sent_by_then < FLOOD, "the other node waited for the flood's end");
    let waiting = || async {
        let told = bed.stratum(&["operator", "csrs", "-o", "json"]).await;
        let told: serde_json::Value = serde_json::from_str(&told).unwrap();
        let flood = told
            .as_array()
            .unwrap()
            .iter()
            .filter(|line| line["reason"] == "not_its_own");
        (flood.filter(|line| line["requester"] == "system:node:flooder").count() == FLOOD).then_some(())
    };
    wait_for("the flood to wait", FLOODED, waiting).await;
    let events = bed
        .cluster
        .kubectl_in("kube-system", &["get", "events", "-o", "name"])
        .await;
    let flood = events.lines().filter(|name| name.contains("flood-")).count();
    assert!(flood <= 40, "{flood} Events");
    let admin = bed.cluster.client().await;
    stream::iter(0..FLOOD)
        .map(async |number| {
            let path = format!("/apis/certificates.k8s.io/v1/certificatesigningrequests/flood-{number}");
            send(&admin, Method::DELETE, &path, &json!(null)).await.unwrap();
        })
        .buffer_unordered(8)
        .collect::<()>()
        .await;
}

#[tokio::test]
async fn a_bootstrap_request_never_becomes_a_serving_one() {
    let bed = Bed::shared().await;
    let joiner = bed.joiner("bbbbbb").await;
    ask_client(&joiner, "twofold-client", "twofold", &new_key()).await;
    bed.approved("twofold-client").await;
    ask_serving(&joiner, "twofold-serving", "twofold", &["10.6.0.1"]).await;
    bed.waits("twofold-serving", "ForeignRequester").await;
}
