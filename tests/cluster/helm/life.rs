//! From the install to the uninstall.

use serde_json::json;

use super::bed::{Bed, SOON, SYSTEM, archive, chart, values};
use crate::support::wait_for;

#[tokio::test(flavor = "multi_thread")]
async fn a_chart_is_installed_upgraded_and_uninstalled() {
    let bed = Bed::new(&[]).await;
    bed.apply(&chart(
        SYSTEM,
        "web",
        json!({"targetNamespace": "apps", "createNamespace": true, "set": {"greeting": "good, day"}}),
    ))
    .await;
    bed.greets("apps", "web", "good, day").await;
    bed.reason(SYSTEM, "web", "Deployed").await;
    assert_eq!(bed.listed("apps", "web").await, Some(("deployed".into(), "1".into())));
    let status = bed.get("helmchart", SYSTEM, "web").await.unwrap()["status"].clone();
    assert_eq!(
        (&status["revision"], &status["chartVersion"], &status["appVersion"]),
        (&json!(1), &json!("1.0.0"), &json!("9.1.0.0"))
    );

    // Another wish is another revision; the same is none.
    bed.apply(&chart(
        SYSTEM,
        "web",
        json!({"targetNamespace": "apps", "createNamespace": true, "values": {"greeting": "bye"}}),
    ))
    .await;
    bed.greets("apps", "web", "bye").await;
    bed.reason(SYSTEM, "web", "Deployed").await;
    assert_eq!(bed.listed("apps", "web").await, Some(("deployed".into(), "2".into())));
    let given: serde_json::Value =
        serde_json::from_str(&bed.helm(&["get", "values", "web", "-n", "apps", "-o", "json"]).await).unwrap();
    assert_eq!(given, json!({"greeting": "bye"}), "the values of before are not kept");
    bed.apply(&chart(
        SYSTEM,
        "web",
        json!({"targetNamespace": "apps", "createNamespace": true, "values": {"greeting": "bye"}, "timeout": "1m"}),
    ))
    .await;
    bed.reason(SYSTEM, "web", "Deployed").await;
    assert_eq!(bed.listed("apps", "web").await, Some(("deployed".into(), "2".into())));
    let metrics = bed.operator().metrics().await;
    assert!(
        metrics.contains("stratum_operator_helm_runs_total{action=\"install\",result=\"done\"} 1"),
        "{metrics}"
    );

    bed.delete("helmchart", SYSTEM, "web").await;
    let gone = || async {
        (bed.listed("apps", "web").await.is_none() && bed.get("configmap", "apps", "web-greeting").await.is_none())
            .then_some(())
    };
    wait_for("the release to be gone", SOON, gone).await;
    let forgotten = || async {
        let ledger = bed.get("configmap", SYSTEM, "stratum-helm-releases").await?;
        ledger["data"].get("apps.web").is_none().then_some(())
    };
    wait_for("the release to be forgotten", SOON, forgotten).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn values_come_from_secrets_config_maps_and_a_config_and_are_followed() {
    let bed = Bed::new(&[]).await;
    bed.apply(&values("ConfigMap", SYSTEM, "base", "greeting: from the map\n"))
        .await;
    bed.apply(&chart(
        SYSTEM,
        "web",
        json!({"valuesConfigMaps": [{"name": "base"}], "valuesSecrets": [{"name": "more"}]}),
    ))
    .await;
    let condition = bed.reason(SYSTEM, "web", "Missing").await;
    assert!(
        condition["message"]
            .as_str()
            .unwrap()
            .contains("Secret more in namespace kube-system"),
        "{condition}"
    );
    bed.apply(&values(
        "Secret",
        SYSTEM,
        "more",
        "greeting: from the secret\npassword: hunter2\n",
    ))
    .await;
    bed.greets(SYSTEM, "web", "from the secret").await;
    bed.apply(&values(
        "Secret",
        SYSTEM,
        "more",
        "greeting: another\npassword: hunter2\n",
    ))
    .await;
    bed.greets(SYSTEM, "web", "another").await;
    let config = json!({
        "apiVersion": "helm.stratum.ciq.com/v1", "kind": "HelmChartConfig",
        "metadata": {"namespace": SYSTEM, "name": "web"}, "spec": {"valuesContent": "greeting: from the config\n"},
    });
    bed.apply(&config).await;
    bed.greets(SYSTEM, "web", "from the config").await;
    bed.delete("helmchartconfig", SYSTEM, "web").await;
    bed.greets(SYSTEM, "web", "another").await;

    // What helm says of a failure is told without what is secret.
    bed.apply(&chart(
        SYSTEM,
        "web",
        json!({"valuesConfigMaps": [{"name": "base"}], "valuesSecrets": [{"name": "more"}], "set": {"broken": "true"}}),
    ))
    .await;
    let condition = bed.reason(SYSTEM, "web", "Failed").await;
    let message = condition["message"].as_str().unwrap();
    assert!(
        message.contains("told to fail with [redacted]") && !message.contains("hunter2"),
        "{message}"
    );
    let events = bed.cluster.kubectl_in(SYSTEM, &["get", "events", "-o", "json"]).await;
    assert!(events.contains("HelmFailed") && !events.contains("hunter2"));
    // And nothing of the release has changed.
    bed.greets(SYSTEM, "web", "another").await;
    assert_eq!(bed.listed(SYSTEM, "web").await.unwrap().0, "deployed");
}

#[tokio::test(flavor = "multi_thread")]
async fn charts_wait_for_one_another_and_files_are_charts() {
    let bed = Bed::new(&[]).await;
    bed.apply(&chart(SYSTEM, "front", json!({"dependsOn": ["back"]}))).await;
    let condition = bed.reason(SYSTEM, "front", "Waiting").await;
    assert!(
        condition["message"]
            .as_str()
            .unwrap()
            .contains("kube-system/back, which is not there"),
        "{condition}"
    );
    // A chart in a file, which is not there yet.
    bed.apply(&chart(
        SYSTEM,
        "back",
        json!({"chart": "charts/web.tgz", "suspend": true}),
    ))
    .await;
    bed.reason(SYSTEM, "back", "Suspended").await;
    bed.apply(&chart(SYSTEM, "back", json!({"chart": "charts/web.tgz"})))
        .await;
    bed.reason(SYSTEM, "back", "NoFile").await;
    bed.reason(SYSTEM, "front", "Waiting").await;
    let charts = bed.folder.path().join("manifests/charts");
    std::fs::create_dir_all(&charts).unwrap();
    stratum::host::atomic_file::write(
        &charts.join("web.tgz"),
        &archive("2.0.0"),
        stratum::host::atomic_file::Access::Public,
    )
    .unwrap();
    // Nothing tells of a file; a change of the HelmChart does not wait for the next look.
    bed.apply(&chart(
        SYSTEM,
        "back",
        json!({"chart": "charts/web.tgz", "values": {"greeting": "back"}}),
    ))
    .await;
    bed.greets(SYSTEM, "back", "back").await;
    bed.greets(SYSTEM, "front", "hello").await;
    bed.reason(SYSTEM, "front", "Deployed").await;
    assert_eq!(
        bed.get("helmchart", SYSTEM, "back").await.unwrap()["status"]["chartVersion"],
        "2.0.0"
    );

    // Around.
    bed.apply(&chart(
        SYSTEM,
        "back",
        json!({"chart": "charts/web.tgz", "dependsOn": ["kube-system/front"]}),
    ))
    .await;
    let condition = bed.reason(SYSTEM, "back", "Cycle").await;
    assert!(
        condition["message"]
            .as_str()
            .unwrap()
            .contains("kube-system/back -> kube-system/front -> kube-system/back"),
        "{condition}"
    );
    // Two for one release: the older has it.
    bed.apply(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other"}}))
        .await;
    bed.apply(&chart(SYSTEM, "twice", json!({"targetNamespace": "other"})))
        .await;
    bed.reason(SYSTEM, "twice", "Deployed").await;
    bed.apply(&chart("other", "twice", json!({"serviceAccountName": "builder"})))
        .await;
    bed.reason("other", "twice", "Claimed").await;
}
