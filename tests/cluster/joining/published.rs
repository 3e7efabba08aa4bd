//! kube-controller-manager's own signer judges what is published here.

use std::collections::BTreeMap;
use std::time::Duration;

use stratum::controllers::joining::publishing::sign_cluster_info;
use stratum::host::assets::{Source, Tool};
use stratum::host::child::{Child, Output, Program};
use stratum::host::clock;
use stratum::host::layout::Identity;
use stratum::reconcilers::joining::token::Kind;

use super::bed::{Bed, NAMESPACE};
use crate::support::{stratum, wait_for};

const SOON: Duration = Duration::from_secs(60);

/// kube-controller-manager with nothing but its signer of cluster-info.
async fn signer(bed: &Bed) -> Child {
    let source = Source::choose(|name| std::env::var_os(name), Some(stratum().to_owned())).unwrap();
    let [manager] = source.provide([Tool::KubeControllerManager]).await.unwrap();
    let log = bed
        .cluster
        .plane
        .layout()
        .state()
        .join("logs/kube-controller-manager.log");
    Program::new(manager)
        .arguments([
            "--kubeconfig".into(),
            bed.cluster.kubeconfig(Identity::Admin).into_os_string(),
        ])
        .arguments([
            "--controllers=bootstrapsigner",
            "--leader-elect=false",
            "--secure-port=0",
        ])
        .dies_with_us(stratum())
        .start(&Output::Log(log))
        .unwrap()
}

#[tokio::test]
async fn our_signatures_are_kube_controller_managers_byte_for_byte() {
    let bed = Bed::new().await;
    let admin = bed.admin().await;
    for _ in 0..3 {
        bed.token(Kind::Worker, 3600).await;
    }
    bed.token(Kind::Worker, -5).await;
    sign_cluster_info(&admin, NAMESPACE).await.unwrap();
    let ours = bed.cluster_info().await.data.unwrap();
    assert_eq!(ours.len(), 4, "three signatures and the content: {ours:?}");
    let forged: BTreeMap<&String, &str> = ours
        .keys()
        .filter(|key| *key != "kubeconfig")
        .map(|key| (key, "forged"))
        .collect();
    bed.patch(&serde_json::json!(forged)).await;

    let _signer = signer(&bed).await;
    let signed = || async {
        let data = bed.cluster_info().await.data.unwrap();
        let corrected = !data.values().any(|value| value == "forged");
        corrected.then_some(data)
    };
    let theirs = wait_for("kube-controller-manager to sign", SOON, signed).await;
    assert_eq!(ours, theirs);

    // Each leaves what the other wrote.
    let before = bed.cluster_info().await.metadata.resource_version;
    sign_cluster_info(&admin, NAMESPACE).await.unwrap();
    bed.publish(&[bed.authority()]).await;
    assert_eq!(bed.cluster_info().await.metadata.resource_version, before);
    let line = bed.done(&["token", "create"]).await;
    let command = super::bed::Command::read(&line).await;
    bed.find(command.token(), &command.pins).await.unwrap();
    let settled = || async {
        let version = bed.cluster_info().await.metadata.resource_version;
        clock::sleep(Duration::from_secs(3)).await;
        let later = bed.cluster_info().await;
        (later.metadata.resource_version == version).then(|| later.data.unwrap())
    };
    let data = wait_for("both writers to rest", SOON, settled).await;
    assert_eq!(data.len(), 5, "{data:?}");
    bed.find(command.token(), &command.pins).await.unwrap();
}
