//! What is not accepted, and what a namespace's users do not gain.

use serde_json::json;

use super::bed::{Bed, SYSTEM, chart};

#[tokio::test(flavor = "multi_thread")]
async fn what_breaks_a_rule_is_refused_by_the_api_server() {
    let bed = Bed::new(&[]).await;
    let long = "a".repeat(54);
    for (object, part) in [
        (chart(SYSTEM, &long, json!({})), "53 characters"),
        (
            json!({"apiVersion": "helm.stratum.ciq.com/v1", "kind": "HelmChart", "metadata": {"namespace": SYSTEM, "name": "x"}, "spec": {"chart": "a.tgz", "chartContent": "b"}}),
            "exclude one another",
        ),
        (
            chart(SYSTEM, "x", json!({"chart": "--post-renderer"})),
            "begin with '-'",
        ),
        (
            chart(
                SYSTEM,
                "x",
                json!({"chart": "web", "repo": "https://a.example.org", "version": "-1"}),
            ),
            "begin with '-'",
        ),
        (chart(SYSTEM, "x", json!({"values": [1]})), "spec.values"),
        (chart(SYSTEM, "x", json!({"failurePolicy": "pray"})), "failurePolicy"),
    ] {
        let finished = bed.try_apply(&object).await;
        let told = String::from_utf8_lossy(&finished.stderr);
        assert!(!finished.exit.is_success() && told.contains(part), "{part}: {told}");
    }
    bed.apply(&chart(SYSTEM, "web", json!({"suspend": true}))).await;
    let moved = bed
        .try_apply(&chart(SYSTEM, "web", json!({"targetNamespace": "elsewhere"})))
        .await;
    assert!(String::from_utf8_lossy(&moved.stderr).contains("targetNamespace cannot be changed"));

    // And what only the operator can tell is in the status.
    for (name, more, reason) in [
        ("list", json!({"valuesContent": "- a\n"}), "NotAMap"),
        ("yaml", json!({"valuesContent": "a: [1\n"}), "NotYaml"),
        ("path", json!({"chart": "../web.tgz"}), "Path"),
        ("time", json!({"timeout": "soon"}), "Timeout"),
        ("away", json!({"chart": "https://127.0.0.1:1/web.tgz"}), "Retrying"),
        (
            "secret",
            json!({"chart": "oci://127.0.0.1:1/web", "authSecret": {"name": "gone"}}),
            "Missing",
        ),
    ] {
        bed.apply(&chart(SYSTEM, name, more)).await;
        bed.reason(SYSTEM, name, reason).await;
    }
}

/// k3s-io/helm-controller#148: whoever may create a HelmChart anywhere was cluster-admin.
#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_acts_as_its_own_service_account_only() {
    let bed = Bed::new(&[]).await;
    bed.apply(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "dev"}}))
        .await;
    bed.apply(&chart("dev", "web", json!({}))).await;
    bed.reason("dev", "web", "NoServiceAccount").await;
    for (name, more, reason) in [
        (
            "target",
            json!({"serviceAccountName": "builder", "targetNamespace": "kube-system"}),
            "OtherNamespace",
        ),
        (
            "file",
            json!({"serviceAccountName": "builder", "chart": "web.tgz"}),
            "NotAllowed",
        ),
        (
            "host",
            json!({"serviceAccountName": "builder", "chart": "web", "repo": "https://169.254.169.254"}),
            "NotAllowed",
        ),
    ] {
        bed.apply(&chart("dev", name, more)).await;
        bed.reason("dev", name, reason).await;
    }
    // Nor does one that is refused keep another from its release, though it is older.
    bed.apply(&chart(
        "dev",
        "squatted",
        json!({"serviceAccountName": "builder", "targetNamespace": "kube-system"}),
    ))
    .await;
    bed.reason("dev", "squatted", "OtherNamespace").await;
    bed.apply(&chart(SYSTEM, "squatted", json!({}))).await;
    bed.reason(SYSTEM, "squatted", "Deployed").await;
    bed.delete("helmchart", SYSTEM, "squatted").await;
    let gone = || async { bed.listed(SYSTEM, "squatted").await.is_none().then_some(()) };
    crate::support::wait_for("the release to be gone", super::bed::SOON, gone).await;
    // It may do nothing yet, and so may the chart.
    bed.apply(&chart(
        "dev",
        "web",
        json!({"serviceAccountName": "builder", "failurePolicy": "retry"}),
    ))
    .await;
    let condition = bed.reason("dev", "web", "Retrying").await;
    assert!(
        condition["message"]
            .as_str()
            .unwrap()
            .contains("system:serviceaccount:dev:builder"),
        "{condition}"
    );
    assert_eq!(bed.get("configmap", "dev", "web-greeting").await, None);
    // Nobody aggregates the role `admin` here.
    bed.apply(&json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"namespace": "dev", "name": "builder"},
        "rules": [{"apiGroups": [""], "resources": ["secrets", "configmaps"], "verbs": ["*"]}],
    }))
    .await;
    bed.apply(&json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"namespace": "dev", "name": "builder"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "builder"},
        "subjects": [{"kind": "ServiceAccount", "namespace": "dev", "name": "builder"}],
    }))
    .await;
    bed.greets("dev", "web", "hello").await;
    bed.reason("dev", "web", "Deployed").await;
    // A release that somebody made up, with a label of ours, is uninstalled by nobody.
    bed.helm(&[
        "install",
        "forged",
        "--namespace",
        "dev",
        &bed.packed("1.0.0"),
        "--labels",
        "stratum.ciq.com/helmchart-namespace=kube-system,stratum.ciq.com/helmchart-name=forged",
    ])
    .await;
    bed.delete("helmchart", "dev", "web").await;
    let gone = || async { bed.listed("dev", "web").await.is_none().then_some(()) };
    crate::support::wait_for("the release to be gone", super::bed::SOON, gone).await;
    assert_eq!(bed.listed("dev", "forged").await.unwrap().0, "deployed");
}
