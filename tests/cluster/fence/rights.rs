//! What the token of a joining controller may do about the fence: all it needs, each of it needed, and nothing else.

use http::Method;
use serde_json::{Value, json};
use stratum::controllers::cluster_fence::{ClusterFence, FenceError, Settings};
use stratum::controllers::concern::chain;
use stratum::reconcilers::election::fence::NAME;
use stratum::reconcilers::joining::access::CONTROLLER_ROLE;

use super::{SHORT, SOON, operation};
use crate::joining::bed::{Bed, Command, NAMESPACE};
use crate::support::requests::send;
use crate::support::wait_for;

#[tokio::test]
async fn the_token_of_a_controller_takes_renews_and_releases_and_needs_every_right_for_it() {
    let bed = Bed::new().await;
    let command = Command::read(&bed.done(&["token", "create", "--control-plane"]).await).await;
    let client = bed.find_as_controller(&command).await;
    let settings = Settings {
        namespace: NAMESPACE.to_owned(),
        timing: SHORT,
        lock: None,
    };
    let acquire =
        async || ClusterFence::acquire(client.clone(), &settings, &operation("beta"), &mut std::io::sink()).await;
    let get = ["get", "lease", NAME, "-o", "json"];
    let lease = async || -> Value { serde_json::from_str(&bed.cluster.kubectl_in(NAMESPACE, &get).await).unwrap() };

    // Makes it, renews it, and gives it back.
    let fence = acquire().await.map_err(|error| chain(&error)).unwrap();
    let first = lease().await["spec"]["renewTime"].clone();
    let renewed = || async { (lease().await["spec"]["renewTime"] != first).then_some(()) };
    wait_for("a renewal", SOON, renewed).await;
    fence.check().unwrap();
    fence.release().await;
    assert_eq!(lease().await["spec"]["holderIdentity"], "");

    let role = ["get", "role", CONTROLLER_ROLE, "-o", "json"];
    let role: Value = serde_json::from_str(&bed.cluster.kubectl_in(NAMESPACE, &role).await).unwrap();
    let rules = role["rules"].as_array().unwrap();
    let mut tried = Vec::new();
    for (index, rule) in rules
        .iter()
        .enumerate()
        .filter(|(_, rule)| rule["resources"][0] == "leases")
    {
        for verb in rule["verbs"].as_array().unwrap() {
            let mut without = rules.clone();
            without[index]["verbs"]
                .as_array_mut()
                .unwrap()
                .retain(|other| other != verb);
            // A rule without verbs is none.
            without.retain(|rule| !rule["verbs"].as_array().unwrap().is_empty());
            bed.set_rules(&without).await;
            if verb == "create" {
                bed.cluster
                    .kubectl_in(NAMESPACE, &["delete", "lease", NAME, "--ignore-not-found"])
                    .await;
            }
            let refused = || async {
                match acquire().await {
                    Ok(fence) => {
                        fence.release().await;
                        None
                    }
                    Err(error) => Some(error),
                }
            };
            let error = wait_for(&format!("a refusal without {verb}"), SOON, refused).await;
            assert!(matches!(error, FenceError::Unanswered(_)), "{verb}: {}", chain(&error));
            assert!(chain(&error).contains("forbidden"), "{verb}: {}", chain(&error));
            bed.set_rules(rules).await;
            let granted = || async { acquire().await.ok() };
            let fence = wait_for(&format!("the fence with {verb}"), SOON, granted).await;
            fence.release().await;
            tried.push(verb.as_str().unwrap());
        }
    }
    assert_eq!(tried, ["create", "get", "update"]);

    let leases = format!("/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases");
    for (method, path) in [
        (Method::GET, leases.clone()),
        (Method::GET, format!("{leases}/stratum-operator")),
        (Method::DELETE, format!("{leases}/{NAME}")),
        (Method::PUT, format!("{leases}/stratum-operator")),
        (
            Method::POST,
            "/apis/coordination.k8s.io/v1/namespaces/default/leases".to_owned(),
        ),
    ] {
        let body = if method == Method::GET { Value::Null } else { json!({}) };
        let refused = send(&client, method.clone(), &path, &body).await.unwrap_err();
        assert_eq!(refused.code, 403, "{method} {path}: {}", refused.message);
    }
}
