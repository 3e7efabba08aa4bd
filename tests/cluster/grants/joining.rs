//! A joiner with a real bootstrap token, up to the end of the token and beyond.

use std::time::Duration;

use kube::Client;
use secrecy::SecretString;
use stratum::controllers::concern::chain;
use stratum::controllers::grants::join::{self, JoinError};
use stratum::host::layout::Identity;
use stratum::reconcilers::grants::token::SKEW;

use super::bed::{Bed, TOKEN_SECRET, id, in_seconds, key, material};
use crate::support::{Cluster, Options, wait_for};

/// How long the token of this test lives, in seconds.
const LIFE: i64 = 12;

/// What the group of the joiner may do; the command that makes such tokens writes it.
const MAY_READ: &str = "
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: joiners, namespace: kube-system}
rules:
- {apiGroups: [''], resources: [secrets], resourceNames: [stratum-certs], verbs: [get]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: joiners, namespace: kube-system}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: joiners}
subjects:
- {apiGroup: rbac.authorization.k8s.io, kind: Group, name: 'system:bootstrappers:controllers'}
";

/// A client that has nothing but a token.
async fn joiner(cluster: &Cluster, name: &str) -> Client {
    let kubeconfig = kube::config::Kubeconfig::read_from(cluster.kubeconfig(Identity::Admin)).unwrap();
    let mut config = kube::Config::from_custom_kubeconfig(kubeconfig, &Default::default())
        .await
        .unwrap();
    config.auth_info = kube::config::AuthInfo {
        token: Some(SecretString::from(format!("{name}.{TOKEN_SECRET}"))),
        ..Default::default()
    };
    Client::try_from(config).unwrap()
}

#[tokio::test]
async fn a_token_opens_its_grant_until_its_end_and_the_entry_outlives_it_a_little() {
    let cluster = Cluster::dedicated(Options {
        api_server_arguments: vec!["--enable-bootstrap-token-auth=true".to_owned()],
        ..Options::default()
    })
    .await;
    cluster.apply(MAY_READ).await;
    let bed = Bed::within(&cluster, "kube-system".to_owned()).await;
    bed.token("aaaaaa", Some(&in_seconds(LIFE))).await;
    bed.token("bbbbbb", None).await;
    bed.mint("aaaaaa", &key(1)).await.unwrap();
    let open = async |name: &str| join::open(&joiner(&cluster, name).await, "kube-system", &id(name), &key(1)).await;
    assert_eq!(open("aaaaaa").await.unwrap(), material("aaaaaa"));
    let none = open("bbbbbb").await.unwrap_err();
    assert!(matches!(none, JoinError::Open(_)), "a worker's token: {}", chain(&none));

    bed.pass().await;
    let refused = || async { open("aaaaaa").await.err() };
    let limit = Duration::from_secs(u64::try_from(LIFE).unwrap() + 10);
    let error = wait_for("the API server to refuse the token", limit, refused).await;
    assert!(matches!(error, JoinError::Call(_)), "{}", chain(&error));
    // Another machine's clock may say that it has not ended yet.
    bed.pass().await;
    assert_eq!(bed.keys().await, ["aaaaaa"]);
    bed.ends("aaaaaa", &in_seconds(-SKEW.as_secs())).await;
    bed.pass().await;
    assert!(bed.keys().await.is_empty());
    assert_eq!(bed.dropped("expired"), 1);
}
