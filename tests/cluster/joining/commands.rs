//! `stratum token`: what it makes is what the API server and kubectl take for a token, and what it prints joins.

use std::collections::BTreeMap;
use std::time::Duration;

use http::Method;
use jiff::Timestamp;
use serde_json::{Value, json};
use stratum::controllers::concern::chain;
use stratum::controllers::grants::join::JoinError;
use stratum::controllers::joining::discovery::{DiscoveryError, Told, discover};
use stratum::controllers::joining::material::download_material;
use stratum::host::child::{Exit, Finished};
use stratum::host::clock;
use stratum::host::node_state::{self, Role};
use stratum::reconcilers::grants::entry::OpenError;
use stratum::reconcilers::joining::token::Kind;

use super::bed::{BRIEF, Bed, Command, NAMESPACE};
use crate::support::requests::send;
use crate::support::wait_for;

fn json_of(finished: &Finished) -> Value {
    let stderr = String::from_utf8_lossy(&finished.stderr);
    assert!(finished.exit.is_success(), "{}: {stderr}", finished.exit);
    serde_json::from_slice(&finished.stdout).unwrap()
}

fn parsed(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

/// Seconds from now to a time.
fn left(time: &Value) -> i64 {
    let time: Timestamp = time.as_str().unwrap().parse().unwrap();
    time.as_second() - clock::now().as_second()
}

#[tokio::test]
async fn a_token_is_made_used_listed_and_deleted() {
    let bed = Bed::shared().await;
    let arguments = [
        "token",
        "create",
        "--ttl",
        "1h",
        "--description",
        "rack 3",
        "-o",
        "json",
    ];
    let made = json_of(&bed.stratum(&arguments).await);
    let id = made["id"].as_str().unwrap();
    assert!((3590..=3600).contains(&left(&made["expires"])), "{made}");
    assert_eq!(
        (&made["kind"], &made["certificateKey"]),
        (&json!("worker"), &Value::Null)
    );
    let command = Command::read(made["commandLine"].as_str().unwrap()).await;
    assert_eq!(*command.token().expose(), made["token"].as_str().unwrap());

    let name = format!("bootstrap-token-{id}");
    let secret = bed
        .cluster
        .kubectl_in(NAMESPACE, &["get", "secret", &name, "-o", "json"])
        .await;
    assert_eq!(parsed(&secret)["type"], "bootstrap.kubernetes.io/token");
    let described = bed.cluster.kubectl_in(NAMESPACE, &["describe", "secret", &name]).await;
    assert!(described.contains("auth-extra-groups"), "{described}");

    let whoami = || bed.kubectl_with_token(command.token(), &["auth", "whoami", "-o", "json"]);
    let user = json_of(&whoami().await)["status"]["userInfo"].clone();
    assert_eq!(user["username"], format!("system:bootstrap:{id}"));
    let groups = user["groups"].as_array().unwrap();
    assert!(
        groups.contains(&json!("system:bootstrappers:kubeadm:default-node-token")),
        "{user}"
    );

    let list = bed.done(&["token", "list", "-o", "json"]).await;
    let all = parsed(&list);
    let shown = all.as_array().unwrap().iter().find(|token| token["id"] == id).unwrap();
    assert_eq!((&shown["kind"], &shown["expired"]), (&json!("worker"), &json!(false)));
    assert_eq!(shown["description"], "rack 3");
    let table = bed.done(&["token", "list"]).await;
    assert!(
        table.lines().any(|line| line.starts_with(&format!("{id}  worker"))),
        "{table}"
    );
    for text in [list, table] {
        assert!(!text.contains(command.token().expose_secret()), "{text}");
    }

    let gone = bed.done(&["token", "delete", id]).await;
    assert_eq!(gone, format!("token {id} is deleted\n"));
    // The API server remembers for ten seconds whom it let in.
    let refused = || async { (!whoami().await.exit.is_success()).then_some(()) };
    wait_for("the API server to refuse the token", Duration::from_secs(30), refused).await;
    let info = bed.cluster_info().await.data.unwrap();
    assert!(!info.contains_key(&format!("jws-kubeconfig-{id}")), "{info:?}");
    let again = bed.stratum(&["token", "delete", id]).await;
    assert_eq!(again.exit, Exit::Status(1));
    let stderr = String::from_utf8_lossy(&again.stderr);
    assert!(stderr.contains(&format!("there is no token {id}")), "{stderr}");
}

#[tokio::test]
async fn a_life_is_limited_unless_said_otherwise() {
    let bed = Bed::shared().await;
    let made = |arguments: &'static [&'static str]| async move {
        let all = [&["token", "create", "-o", "json"], arguments].concat();
        json_of(&bed.stratum(&all).await)
    };
    let day = made(&[]).await;
    assert!((86_390..=86_400).contains(&left(&day["expires"])), "{day}");
    let grant = made(&["--control-plane"]).await;
    assert!((7_190..=7_200).contains(&left(&grant["expires"])), "{grant}");
    let forever = made(&["--ttl", "0"]).await;
    assert_eq!(forever["expires"], Value::Null);
    let name = format!("bootstrap-token-{}", forever["id"].as_str().unwrap());
    let path = ["get", "secret", &name, "-o", "jsonpath={.data.expiration}"];
    assert_eq!(bed.cluster.kubectl_in(NAMESPACE, &path).await, "");
    for ttl in ["0s", "-1h", "soon", ""] {
        let finished = bed.stratum(&["token", "create", "--ttl", ttl]).await;
        assert_eq!(finished.exit, Exit::Status(2), "{ttl:?}");
    }
    let wrong = bed.stratum(&["token", "delete", "abc123.0123"]).await;
    assert_eq!(wrong.exit, Exit::Status(2));
    assert!(!String::from_utf8_lossy(&wrong.stderr).contains("0123"));
}

#[tokio::test]
async fn the_printed_command_lets_a_worker_find_the_cluster_and_ask_for_its_certificate_and_no_more() {
    let bed = Bed::shared().await;
    let line = bed.done(&["token", "create"]).await;
    assert_eq!(line.lines().count(), 1, "{line}");
    let command = Command::read(&line).await;
    assert_eq!(command.endpoint, bed.endpoint().to_string());
    assert_eq!(command.pins, [bed.pin()]);
    assert_eq!(command.service_ranges.as_deref(), Some("10.96.0.0/16"));
    assert!(!command.control_plane && command.certificate_key.is_none());
    let found = bed.find(command.token(), &command.pins).await.unwrap();
    assert_eq!(found.server, bed.cluster.plane.server());
    assert_eq!(found.bundle, [bed.authority()]);
    assert!(found.ahead.unwrap().abs().as_secs() <= 2, "one clock");

    let client = found.client(command.token());
    let identities = "/apis/stratum.ciq.com/v1/nodeidentities";
    for path in ["/api/v1/nodes/beta", &format!("{identities}/beta")] {
        let taken = send(&client, Method::GET, path, &Value::Null).await;
        assert_eq!(taken.unwrap_err().code, 404, "whether a name is taken: {path}");
    }
    let requests = "/apis/certificates.k8s.io/v1/certificatesigningrequests?dryRun=All";
    // Refused for what it says, not for who asks.
    let invalid = json!({"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
        "metadata": {"name": "beta"}, "spec": {"request": "", "signerName": "kubernetes.io/kube-apiserver-client-kubelet",
        "usages": ["client auth"]}});
    let asked = send(&client, Method::POST, requests, &invalid).await;
    assert_eq!(asked.unwrap_err().code, 422);
    for path in [
        "/api/v1/namespaces/kube-system/secrets/stratum-certs",
        "/api/v1/namespaces/kube-system/secrets",
        "/api/v1/nodes",
        identities,
        "/api/v1/namespaces/kube-system/configmaps",
    ] {
        let refused = send(&client, Method::GET, path, &Value::Null).await;
        assert_eq!(refused.unwrap_err().code, 403, "{path}");
    }
}

#[tokio::test]
async fn the_printed_command_opens_the_keys_for_a_controller_and_its_token_may_do_nothing_else() {
    let bed = Bed::shared().await;
    let command = Command::read(&bed.done(&["token", "create", "--control-plane"]).await).await;
    assert!(command.control_plane);
    let (token, endpoint) = (command.token(), bed.endpoint());
    let told = |kind| Told {
        endpoint: &endpoint,
        token,
        pins: &command.pins,
        kind,
    };
    let found = discover(&told(Kind::Controller), BRIEF, clock::now()).await.unwrap();
    let key = command.certificate_key.as_ref().unwrap();
    let material = download_material(&found, NAMESPACE, token, key).await.unwrap();
    let pki = bed.cluster.plane.layout().pki();
    let files: BTreeMap<&str, &[u8]> = material.files().collect();
    for name in [
        "ca.crt",
        "ca.key",
        "sa.key",
        "front-proxy-ca.key",
        "etcd/ca.crt",
        "etcd/ca.key",
    ] {
        assert_eq!(files[name], std::fs::read(pki.join(name)).unwrap(), "{name}");
    }
    assert!(!files.contains_key("apiserver.key"), "{:?}", files.keys());

    let another = "0".repeat(64).parse().unwrap();
    let error = download_material(&found, NAMESPACE, token, &another).await.unwrap_err();
    assert!(
        matches!(error, JoinError::Open(OpenError::Sealed { .. })),
        "{}",
        chain(&error)
    );
    assert!(chain(&error).contains("another certificate key"), "{}", chain(&error));
    let client = found.client(token);
    for (method, path, code) in [
        (Method::GET, "/api/v1/namespaces/kube-system/secrets", 403),
        (
            Method::POST,
            "/apis/certificates.k8s.io/v1/certificatesigningrequests",
            403,
        ),
        (Method::GET, "/api/v1/nodes/beta", 404),
    ] {
        let body = if method == Method::POST { json!({}) } else { Value::Null };
        let refused = send(&client, method, path, &body).await.unwrap_err();
        assert_eq!(refused.code, code, "{path}: {}", refused.message);
    }

    let error = discover(&told(Kind::Worker), BRIEF, clock::now()).await.unwrap_err();
    assert!(
        matches!(
            error,
            DiscoveryError::OtherKind {
                admits: Some(Kind::Controller),
                ..
            }
        ),
        "{error}"
    );

    // The right is the token's own: it is bound by its user, owned by its Secret, and gone with it.
    let binding = format!("stratum:joining-controller:{}", token.id());
    let get = ["get", "rolebinding", &binding, "-o", "json", "--ignore-not-found"];
    let bound = parsed(&bed.cluster.kubectl_in(NAMESPACE, &get).await);
    assert_eq!(bound["subjects"].as_array().unwrap().len(), 1);
    assert_eq!(bound["subjects"][0]["name"], token.id().user());
    assert_eq!(
        bound["metadata"]["ownerReferences"][0]["name"],
        token.id().secret_name()
    );
    bed.done(&["token", "delete", token.id().as_str()]).await;
    assert_eq!(bed.cluster.kubectl_in(NAMESPACE, &get).await, "");
    let error = download_material(&found, NAMESPACE, token, key).await.unwrap_err();
    assert!(matches!(error, JoinError::Call(_)), "{}", chain(&error));
}

#[tokio::test]
async fn what_cannot_lead_to_a_join_is_refused_before_a_token_is_made() {
    let bed = Bed::new().await;
    let layout = bed.cluster.plane.layout();
    let refused = |why: &'static str, arguments: &'static [&'static str]| {
        let bed = &bed;
        async move {
            let all = [&["token", "create"], arguments].concat();
            let finished = bed.stratum(&all).await;
            let stderr = String::from_utf8(finished.stderr).unwrap();
            assert_eq!(finished.exit, Exit::Status(3), "{stderr}");
            assert!(stderr.contains(why) && stderr.lines().count() == 1, "{stderr}");
            assert_eq!(parsed(&bed.done(&["token", "list", "-o", "json"]).await), json!([]));
        }
    };
    let staged = ["create", "secret", "generic", "stratum-carotate"];
    bed.cluster.kubectl_in(NAMESPACE, &staged).await;
    refused("CAs of this cluster are being replaced", &[]).await;
    refused("CAs of this cluster are being replaced", &["--control-plane"]).await;
    bed.cluster
        .kubectl_in(NAMESPACE, &["delete", "secret", "stratum-carotate"])
        .await;

    bed.publish(&[super::bed::other_authority().certificate().clone()])
        .await;
    refused("names other CAs than this node has", &[]).await;
    bed.patch(&json!({"kubeconfig": "clusters: ["})).await;
    refused("what cluster-info publishes cannot be used", &[]).await;
    bed.cluster
        .kubectl_in("kube-public", &["delete", "configmap", "cluster-info"])
        .await;
    refused("there is no ConfigMap kube-public/cluster-info", &[]).await;

    let worker = node_state::NodeState {
        role: Role::Worker,
        ..bed.state()
    };
    node_state::save(&layout.node_state(), &worker).unwrap();
    refused("alpha is a worker", &[]).await;
    std::fs::remove_file(layout.node_state()).unwrap();
    refused("is missing: this machine is no node yet", &[]).await;

    // A later step that fails leaves no token behind.
    node_state::save(&layout.node_state(), &bed.state()).unwrap();
    bed.publish(&[bed.authority()]).await;
    let limit = "x".repeat(1024 * 1024 - 100);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("theirs");
    stratum::host::atomic_file::write(&file, limit.as_bytes(), stratum::host::atomic_file::Access::Public).unwrap();
    let from = format!("--from-file=theirs.txt={}", file.display());
    bed.cluster
        .kubectl_in(NAMESPACE, &["create", "secret", "generic", "stratum-certs", &from])
        .await;
    let full = bed.stratum(&["token", "create", "--control-plane"]).await;
    assert_eq!(full.exit, Exit::Status(1), "{}", String::from_utf8_lossy(&full.stderr));
    assert_eq!(parsed(&bed.done(&["token", "list", "-o", "json"]).await), json!([]));
    let bindings = bed
        .cluster
        .kubectl_in(NAMESPACE, &["get", "rolebindings", "-o", "name"])
        .await;
    assert!(!bindings.contains("stratum:joining-controller:"), "{bindings}");
    let info = bed.cluster_info().await.data.unwrap();
    assert_eq!(info.keys().collect::<Vec<_>>(), ["kubeconfig"]);
}
