//! The members of a real etcd, as our client sees and changes them, with `etcdctl` as the judge.

use stratum::host::atomic_file::{Access, create_folder, write};
use stratum::host::etcd::members::{Joining, Leaving, peer_url};
use stratum::host::etcd::{Error, Etcd};
use stratum::host::layout::Layout;

use crate::support::{Cluster, Options};

#[tokio::test]
async fn a_learner_comes_and_goes() {
    let cluster = Cluster::dedicated(Options::default()).await;
    let folder = tempfile::tempdir().unwrap();
    let layout = Layout::under(folder.path());
    let pki = layout.pki().join("etcd");
    create_folder(&pki, Access::Secret).unwrap();
    let names = ["ca-bundle.crt", "healthcheck-client.crt", "healthcheck-client.key"];
    for (from, to) in cluster.plane.etcd_client().iter().zip(names) {
        write(&pki.join(to), &std::fs::read(from).unwrap(), Access::Secret).unwrap();
    }
    let server = cluster.plane.etcd_server();
    let server = server.strip_prefix("https://").unwrap().parse().unwrap();
    let nobody = "127.0.0.1:1".parse().unwrap();
    let etcd = Etcd::new(&layout, vec![nobody, server]).unwrap();

    let members = etcd.members().await.unwrap();
    let [founder] = members.0.as_slice() else {
        panic!("{members:?}");
    };
    assert!(founder.name == "stratum-dev" && !founder.is_learner, "{founder}");
    // Nobody answers there: a learner costs the others nothing.
    let address = "192.0.2.7".parse().unwrap();
    assert_eq!(members.joining("new", address), Joining::Add);
    let added = etcd.add_learner(&peer_url(address)).await.unwrap();
    let members = etcd.members().await.unwrap();
    assert_eq!(members.joining("new", address), Joining::GoOn(added.id.clone()));
    let other = "192.0.2.8".parse().unwrap();
    assert!(matches!(members.joining("other", other), Joining::Wait(_)));
    let listed = cluster.etcdctl(&["member", "list"]).await;
    assert!(
        listed.contains("https://192.0.2.7:2380") && listed.contains("true"),
        "{listed}"
    );

    // It has not caught up, and another one has to wait: etcd says so, and so do we.
    let refused = etcd.promote(&added.id).await.unwrap_err();
    assert!(
        matches!(&refused, Error::Refused { message, .. } if message.contains("in sync")),
        "{refused}"
    );
    let refused = etcd.add_learner(&peer_url(other)).await.unwrap_err();
    assert!(
        matches!(&refused, Error::Refused { message, .. } if message.contains("learner")),
        "{refused}"
    );

    let Leaving::Remove(id) = members.leaving(address, |_| false) else {
        panic!("{members:?}");
    };
    etcd.remove(&id).await.unwrap();
    assert_eq!(etcd.members().await.unwrap().0.len(), 1);

    let alone = Etcd::new(&layout, vec![nobody]).unwrap().members().await.unwrap_err();
    assert!(
        alone
            .to_string()
            .contains("none of the members of etcd answers (127.0.0.1:1)"),
        "{alone}"
    );
}
