//! Who may set, change and remove the mark, and that nobody else's writes are in the way of it.

use http::Method;
use kube::core::Status;
use kube::{Client, Config};
use serde_json::{Value, json};
use stratum::controllers::departed::unmark;
use stratum::host::clock;
use stratum::reconcilers::departed::MARK;

use super::bed::{Bed, annotate, mark_of, names_the_policy, node, register, speak};
use crate::support::requests::send;

/// Somebody who may write every Node, and is not the machine.
struct Stranger {
    name: &'static str,
    client: Client,
}

/// May do with Nodes what kube-controller-manager's own controllers may.
async fn grant(bed: &Bed, name: &str, subject: &str) {
    let role = "--clusterrole=system:controller:node-controller";
    bed.cluster
        .kubectl(&["create", "clusterrolebinding", name, role, subject])
        .await;
}

/// A ServiceAccount's token that is bound to Node `w1`, as a pod on that machine has it.
async fn pod_on_w1(bed: &Bed) -> Client {
    bed.cluster
        .kubectl(&["create", "serviceaccount", "agent", "-n", "default"])
        .await;
    grant(bed, "agent", "--serviceaccount=default:agent").await;
    let uid = bed.uid("w1").await.unwrap();
    let bound = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {
        "boundObjectRef": {"kind": "Node", "apiVersion": "v1", "name": "w1", "uid": uid}}});
    let path = "/api/v1/namespaces/default/serviceaccounts/agent/token";
    let answer = send(&bed.admin, Method::POST, path, &bound).await.unwrap();
    let mut config = Config::new(bed.cluster.plane.server().parse().unwrap());
    let authority = pem::parse_many(bed.cluster.plane.authority()).unwrap();
    config.root_cert = Some(authority.into_iter().map(pem::Pem::into_contents).collect());
    config.auth_info.token = Some(answer["status"]["token"].as_str().unwrap().to_owned().into());
    Client::try_from(config).unwrap()
}

async fn strangers(bed: &Bed) -> Vec<Stranger> {
    let manager = "system:kube-controller-manager";
    grant(bed, "manager", &format!("--user={manager}")).await;
    grant(bed, "name-alone", "--user=system:node:w1").await;
    grant(bed, "group-alone", "--user=somebody").await;
    let client = |user: &'static str, groups: &'static [&'static str]| bed.cluster.client_of(user, groups);
    vec![
        Stranger {
            name: "cluster-admin",
            client: bed.admin.clone(),
        },
        Stranger {
            name: "controller-manager",
            client: client(manager, &[]).await,
        },
        Stranger {
            name: "the machine's name without its group",
            client: client("system:node:w1", &["nobodies"]).await,
        },
        Stranger {
            name: "the machine's group without its name",
            client: client("somebody", &["system:nodes"]).await,
        },
        Stranger {
            name: "a pod on the machine",
            client: pod_on_w1(bed).await,
        },
    ]
}

fn denied(what: &str, result: Result<Value, Box<Status>>) {
    let status = result.expect_err(what);
    assert_eq!(status.code, 403, "{what}: {status:?}");
    assert!(names_the_policy(&status), "{what}: {status:?}");
}

fn passes(what: &str, result: Result<Value, Box<Status>>) -> Value {
    result.unwrap_or_else(|status| panic!("{what}: {status:?}"))
}

/// Both ways to write a Node.
fn ways(name: &str) -> [String; 2] {
    [node(name), format!("{}/status", node(name))]
}

async fn mark_now(bed: &Bed, name: &str) -> Value {
    bed.node(name).await.unwrap()["metadata"]["annotations"][MARK].clone()
}

/// Sets, changes and removes as a PATCH and as a PUT.
async fn stranger(bed: &Bed, stranger: &Stranger) {
    let Stranger { name, client } = stranger;
    let before = mark_now(bed, "w1").await;
    for path in ways("plain").iter().chain(&ways("w1")) {
        let what = format!("{name}, {path}");
        for value in [mark_of(clock::now()), String::new()] {
            let patch = annotate(MARK, Some(&value));
            denied(&what, send(client, Method::PATCH, path, &patch).await);
        }
        let mut whole = passes(&what, send(&bed.admin, Method::GET, path, &Value::Null).await);
        whole["metadata"]["annotations"][MARK] = mark_of(clock::now()).into();
        denied(&what, send(client, Method::PUT, path, &whole).await);
        // Whatever else they write to a Node, marked or not, is their own affair.
        let label = json!({"metadata": {"labels": {"touched": name.replace([' ', '\''], "-")}}});
        passes(&what, send(client, Method::PATCH, path, &label).await);
        passes(
            &what,
            send(client, Method::PATCH, path, &annotate("touched", Some(name))).await,
        );
        passes(
            &what,
            send(client, Method::PATCH, path, &annotate("touched", None)).await,
        );
        let dry = format!("{path}?dryRun=All");
        let removed = passes(&what, send(client, Method::PATCH, &dry, &annotate(MARK, None)).await);
        assert_eq!(removed["metadata"]["annotations"][MARK], Value::Null, "{what}");
    }
    assert_eq!(mark_now(bed, "w1").await, before, "{name}");
    assert_eq!(mark_now(bed, "plain").await, Value::Null, "{name}");
}

#[tokio::test]
async fn only_the_machine_itself_sets_or_changes_its_mark() {
    let bed = Bed::protected().await;
    let w1 = bed.leave("w1").await;
    let w2 = bed.join("w2").await;
    // The worst this policy could do: be in the way of a kubelet whose Node has no annotation, or no metadata but a name.
    let plain = bed.cluster.kubelet("plain").await;
    register(&plain, "plain", json!({"name": "plain"})).await;
    let registered = bed.node("plain").await.unwrap();
    assert_eq!(registered["metadata"]["annotations"], Value::Null, "{registered}");
    speak(&plain, "plain", super::bed::MACHINE, "True", clock::now()).await;

    for one in strangers(&bed).await {
        stranger(&bed, &one).await;
    }
    creations(&bed).await;
    speak(&plain, "plain", super::bed::MACHINE, "True", clock::now()).await;

    // Another machine is stopped before the policy is asked, by NodeRestriction.
    let before = mark_now(&bed, "w1").await;
    for path in ways("w1") {
        for patch in [annotate(MARK, Some(&mark_of(clock::now()))), annotate(MARK, None)] {
            let status = send(&w2, Method::PATCH, &path, &patch).await.unwrap_err();
            assert_eq!(status.code, 403, "{status:?}");
            assert!(
                status.message.contains("\"w2\" is not allowed to modify node \"w1\""),
                "{status:?}"
            );
        }
    }
    assert_eq!(mark_now(&bed, "w1").await, before);

    // The machine itself, both ways.
    for path in ways("w1") {
        let again = mark_of(clock::now());
        passes(
            &path,
            send(&w1, Method::PATCH, &path, &annotate(MARK, Some(&again))).await,
        );
        assert_eq!(mark_now(&bed, "w1").await, again);
    }
    unmark(&w1, "w1").await.unwrap();
    assert_eq!(mark_now(&bed, "w1").await, Value::Null);
    unmark(&w1, "w1").await.unwrap();
    // An administrator removes it for good.
    for path in ways("w1") {
        passes(&path, send(&w1, Method::PATCH, &path, &annotate(MARK, Some("x"))).await);
        passes(
            &path,
            send(&bed.admin, Method::PATCH, &path, &annotate(MARK, None)).await,
        );
        assert_eq!(mark_now(&bed, "w1").await, Value::Null);
    }
}

/// Nodes that are marked from their first moment.
async fn creations(bed: &Bed) {
    let marked = |metadata: Value| {
        let mut object = json!({"apiVersion": "v1", "kind": "Node", "metadata": metadata});
        object["metadata"]["annotations"] = json!({MARK: mark_of(clock::now())});
        object
    };
    let nodes = "/api/v1/nodes";
    let made = send(&bed.admin, Method::POST, nodes, &marked(json!({"name": "new"}))).await;
    denied("a Node marked by the administrator", made);
    let made = send(
        &bed.admin,
        Method::POST,
        nodes,
        &marked(json!({"generateName": "new-"})),
    )
    .await;
    denied("a Node without a name of its own", made);
    let applied = format!("{}?fieldManager=test", node("new"));
    let request = http::Request::patch(applied)
        .header("content-type", "application/apply-patch+yaml")
        .body(marked(json!({"name": "new"})).to_string().into_bytes())
        .unwrap();
    let error = bed.admin.request::<Value>(request).await.unwrap_err();
    let kube::Error::Api(status) = error else {
        panic!("{error}")
    };
    assert!(names_the_policy(&status), "{status:?}");
    assert!(bed.node("new").await.is_none());

    let own = bed.cluster.kubelet("own").await;
    let metadata = marked(json!({"name": "own"}))["metadata"].clone();
    register(&own, "own", metadata).await;
    let plain = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "hand-made"}});
    passes("a Node by hand", send(&bed.admin, Method::POST, nodes, &plain).await);
}
