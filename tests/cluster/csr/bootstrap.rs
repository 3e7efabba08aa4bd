use http::Method;
use jiff::SignedDuration;
use k8s_openapi::ByteString;
use serde_json::{Value, json};
use stratum::host::child::Exit;
use stratum::host::clock;

use super::bed::{Bed, SOON, ask_client, conditions, new_key};
use crate::support::requests::send;
use crate::support::wait_for;

#[tokio::test]
async fn a_token_claims_a_new_name_and_no_other_may_have_it_then() {
    let bed = Bed::shared().await;
    let (one, two) = (bed.joiner("cccccc").await, bed.joiner("dddddd").await);
    ask_client(&one, "fresh-1", "fresh", &new_key()).await;
    bed.approved("fresh-1").await;
    let identity = bed.identity("fresh").await.unwrap();
    assert_eq!(identity["claim"]["requester"], "system:bootstrap:cccccc");
    assert_eq!(identity["claim"]["request"], "fresh-1");
    assert_eq!(identity["certificate"]["assumed"], true);

    ask_client(&two, "fresh-2", "fresh", &new_key()).await;
    let why = bed.waits("fresh-2", "NameTaken").await;
    assert!(
        why.contains("claimed by system:bootstrap:cccccc until ") && why.ends_with("stratum node forget fresh"),
        "{why}"
    );
    // Another machine on the same token is no better.
    ask_client(&one, "fresh-3", "fresh", &new_key()).await;
    bed.waits("fresh-3", "NameTaken").await;

    let printed = bed.stratum(&["node", "forget", "fresh"]).await;
    assert_eq!(printed, "the name fresh, held by system:bootstrap:cccccc, is free\n");
    // One of the two that wait has it now.
    let either = || async {
        let both = [bed.request("fresh-2").await, bed.request("fresh-3").await];
        both.iter().any(|request| !conditions(request).is_empty()).then_some(())
    };
    wait_for("one of them to be approved", SOON, either).await;
    assert_eq!(
        bed.stratum(&["node", "forget", "nobody"]).await,
        "nothing is remembered of node nobody\n"
    );
}

#[tokio::test]
async fn the_same_machine_may_ask_again() {
    let bed = Bed::shared().await;
    let joiner = bed.joiner("eeeeee").await;
    let key = new_key();
    ask_client(&joiner, "again-1", "again", &key).await;
    bed.approved("again-1").await;
    ask_client(&joiner, "again-2", "again", &key).await;
    bed.approved("again-2").await;
}

#[tokio::test]
async fn two_machines_that_race_get_one_name_once() {
    let bed = Bed::shared().await;
    let (one, two) = (bed.joiner("ffffff").await, bed.joiner("gggggg").await);
    let (first, second) = (new_key(), new_key());
    for round in 0..20 {
        // All joiners on one token are one user, and still two machines.
        let two = if round % 2 == 0 { &one } else { &two };
        let node = format!("race-{round}");
        let names = [format!("{node}-a"), format!("{node}-b")];
        futures::join!(
            ask_client(&one, &names[0], &node, &first),
            ask_client(two, &names[1], &node, &second)
        );
        let one_of_two = || async {
            let both = [bed.request(&names[0]).await, bed.request(&names[1]).await];
            both.iter().any(|request| !conditions(request).is_empty()).then_some(())
        };
        wait_for("one of them to be approved", SOON, one_of_two).await;
        let loser = if conditions(&bed.request(&names[0]).await).is_empty() {
            &names[0]
        } else {
            &names[1]
        };
        bed.waits(loser, "NameTaken").await;
    }
}

#[tokio::test]
async fn a_registered_name_and_one_whose_certificate_lives_are_taken() {
    let bed = Bed::shared().await;
    let joiner = bed.joiner("hhhhhh").await;
    bed.node("settled", &[("InternalIP", "10.7.0.1")]).await;
    let adopted = || async { bed.identity("settled").await };
    let identity = wait_for("the Node to be adopted", SOON, adopted).await;
    assert_eq!(
        (&identity["claim"], &identity["certificate"]["assumed"]),
        (&Value::Null, &Value::Bool(true))
    );
    ask_client(&joiner, "settled-1", "settled", &new_key()).await;
    assert!(
        bed.waits("settled-1", "NameTaken")
            .await
            .starts_with("Node settled is registered")
    );
    // A controller's name is no different.
    ask_client(&joiner, "controller-1", "one", &new_key()).await;
    bed.waits("controller-1", "NameTaken").await;

    let refused = bed.try_stratum(&["node", "forget", "settled"]).await;
    assert_eq!(refused.exit, Exit::Status(3));
    let why = String::from_utf8(refused.stderr).unwrap();
    assert!(
        why.starts_with("error: Node settled is registered") && why.lines().count() == 1,
        "{why}"
    );
    bed.cluster.kubectl(&["delete", "node", "settled"]).await;
    let claimed = || async {
        let told = bed.stratum(&["operator", "csrs"]).await;
        told.contains("the name settled is claimed by system:node:settled until")
            .then_some(())
    };
    wait_for("the name to be held by its certificate", SOON, claimed).await;
    assert_eq!(conditions(&bed.request("settled-1").await), Vec::<String>::new());
    bed.stratum(&["node", "forget", "settled"]).await;
    bed.approved("settled-1").await;
}

#[tokio::test]
async fn the_end_of_the_certificate_that_was_issued_is_remembered() {
    let bed = Bed::shared().await;
    let joiner = bed.joiner("iiiiii").await;
    ask_client(&joiner, "issued-1", "issued", &new_key()).await;
    bed.approved("issued-1").await;
    // As the signer does it, with the cluster's own authority.
    let certificate = bed.cluster.kubelet_certificate("issued");
    let admin = bed.cluster.client().await;
    let path = "/apis/certificates.k8s.io/v1/certificatesigningrequests/issued-1/status";
    let status = json!({"status": {"certificate": ByteString(certificate.to_pem().into_bytes())}});
    send(&admin, Method::PATCH, path, &status).await.unwrap();
    let remembered = || async {
        let identity = bed.identity("issued").await?;
        (identity["certificate"]["assumed"] == false).then_some(identity)
    };
    let identity = wait_for("the certificate to be remembered", SOON, remembered).await;
    let not_after: jiff::Timestamp = identity["certificate"]["notAfter"].as_str().unwrap().parse().unwrap();
    assert_eq!(not_after, certificate.details().not_after);
    assert!(not_after < clock::now() + SignedDuration::from_hours(24 * 366));
}

#[tokio::test]
async fn a_claim_that_somebody_denies_frees_the_name() {
    let bed = Bed::shared().await;
    let joiner = bed.joiner("jjjjjj").await;
    ask_client(&joiner, "refused-1", "refused", &new_key()).await;
    bed.approved("refused-1").await;
    // A signer that will not sign, as kube-controller-manager marks it.
    let admin = bed.cluster.client().await;
    let path = "/apis/certificates.k8s.io/v1/certificatesigningrequests/refused-1/status";
    let mut request = bed.request("refused-1").await;
    let failed = json!({"type": "Failed", "status": "True", "reason": "SignerValidationFailure", "message": "no"});
    request["status"]["conditions"].as_array_mut().unwrap().push(failed);
    send(&admin, Method::PUT, path, &request).await.unwrap();
    let free = || async { bed.identity("refused").await.is_none().then_some(()) };
    wait_for("the name to be free", SOON, free).await;
}

/// All of them are one user to the API server.
#[tokio::test]
async fn three_hundred_joiners_on_one_token_all_join() {
    let bed = Bed::shared().await;
    let joiner = bed.joiner("kkkkkk").await;
    let join = |number: usize| {
        let joiner = joiner.clone();
        async move {
            let name = format!("crowd-{number}");
            ask_client(&joiner, &name, &name, &new_key()).await;
        }
    };
    futures::future::join_all((0..300).map(join)).await;
    for number in 0..300 {
        bed.approved(&format!("crowd-{number}")).await;
    }
}

#[tokio::test]
async fn the_stock_approval_is_told_of_loudly() {
    let bed = Bed::shared().await;
    // The shared operator asks every ten minutes: a new instance asks at its start.
    let grant = "apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: stock-approval}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: 'system:certificates.k8s.io:certificatesigningrequests:nodeclient'}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: 'system:bootstrappers:kubeadm:default-node-token'}]
";
    bed.cluster.apply(grant).await;
    let folder = tempfile::tempdir().unwrap();
    let mut second = crate::support::operator::Operator::start(&bed.cluster, folder.path(), "two");
    let told = || async {
        let metrics = second.metrics().await;
        metrics
            .contains("stratum_operator_csr_stock_approval_granted 1\n")
            .then_some(())
    };
    wait_for("the second instance to tell", SOON, told).await;
    // Which it writes after that, unless it is stopped.
    let written = || async {
        let events = bed
            .cluster
            .kubectl_in("kube-system", &["get", "events", "-o", "json"])
            .await;
        let told = ["StockApprovalGranted", "kubeadm:node-autoapprove-bootstrap"];
        told.iter().all(|word| events.contains(word)).then_some(())
    };
    wait_for("an Event", SOON, written).await;
    second.stop().await;
    bed.cluster
        .kubectl(&["delete", "clusterrolebinding", "stock-approval"])
        .await;
}
