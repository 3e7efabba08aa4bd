//! Many instances that contribute at one time.

use std::collections::BTreeSet;
use std::time::Duration;

use futures::future::join_all;
use stratum::controllers::concern::chain;
use stratum::controllers::connection::{self, ClientSettings};
use stratum::controllers::inventory::store::{Store, StoreError};
use stratum::host::layout::Identity;
use stratum::reconcilers::inventory::document::Entry;
use stratum::reconcilers::inventory::records::Documents;

use super::bed::{Bed, NAME};
use crate::support::Cluster;

const WRITERS: usize = 50;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_writers_at_one_time_lose_nothing() {
    let cluster = Cluster::shared().await;
    let bed = Bed::new(cluster, "writers").await;
    let inputs = "{ \"clusterDNS\": \"10.96.0.10\", \"clusterDomain\": \"c\",\n  \"dualStack\": false, \"storageDefault\": true }";
    bed.put(&[("cluster-inputs", inputs), ("note", "mine")]).await;
    bed.kubectl(&["annotate", "configmap", NAME, "team=mine"]).await;
    bed.kubectl(&["label", "configmap", NAME, "team=mine"]).await;

    let write = async |index: usize| {
        let settings = ClientSettings::new(cluster.kubeconfig(Identity::Operator), "inventory");
        let client = connection::client(&settings, None).await.unwrap();
        let store = Store::new(client, &bed.namespace);
        let record = format!(r#"{{"s":{{"core/configmaps":{{"n":{{"x{index}":"u{index}"}}}}}}}}"#);
        let record = Entry::parse(&record).unwrap();
        let change = |documents: &mut Documents| {
            documents
                .inventory
                .get_or_insert_default()
                .union_into(&format!("n{index}"), &record);
            Ok(())
        };
        store.commit(None, None, change).await?;
        Ok::<_, StoreError>(())
    };
    // A person with kubectl among them.
    let person = async {
        for value in ["1", "2", "3", "4"] {
            let patch = format!(r#"{{"data":{{"note":"{value}"}}}}"#);
            bed.kubectl(&["patch", "configmap", NAME, "--type=merge", "-p", &patch])
                .await;
        }
    };
    let (results, ()) = tokio::join!(join_all((0..WRITERS).map(write)), person);
    for result in results {
        result.unwrap();
    }

    let stored = bed.store().load().await.unwrap();
    let inventory = stored.documents.inventory.unwrap();
    let found: BTreeSet<(String, String, Option<String>)> = inventory
        .nodes
        .iter()
        .flat_map(|(node, entry)| {
            entry
                .iter()
                .map(|(_, id, uid)| (node.clone(), id.name, uid.map(|uid| uid.0)))
        })
        .collect();
    let expected: BTreeSet<_> = (0..WRITERS)
        .map(|index| (format!("n{index}"), format!("x{index}"), Some(format!("u{index}"))))
        .collect();
    assert_eq!(found, expected);
    let config_map = bed.config_map().await;
    assert_eq!(config_map["data"]["cluster-inputs"], inputs);
    assert_eq!(config_map["data"]["note"], "4");
    assert_eq!(config_map["metadata"]["annotations"]["team"], "mine");
    assert_eq!(config_map["metadata"]["labels"]["team"], "mine");
}

/// A namespace that is missing is told at once; nobody else will make it within the tries of a lost race.
#[tokio::test]
async fn a_missing_namespace_is_told_at_once() {
    let client = Cluster::shared().await.client().await;
    let store = Store::new(client, "nowhere");
    let commit = store.commit(None, None, |documents| {
        documents.inventory.get_or_insert_default();
        Ok(())
    });
    let error = tokio::time::timeout(Duration::from_secs(5), commit)
        .await
        .unwrap()
        .unwrap_err();
    let message = chain(&error);
    assert!(message.contains(r#"namespaces "nowhere" not found"#), "{message}");
}

/// One that was deleted meanwhile is made again.
#[tokio::test]
async fn an_inventory_deleted_meanwhile_is_made_again() {
    let bed = Bed::new(Cluster::shared().await, "deleted").await;
    let store = bed.store();
    let change = |documents: &mut Documents| {
        documents.inventory.get_or_insert_default();
        Ok(())
    };
    let stored = store.commit(None, None, change).await.unwrap();
    bed.kubectl(&["delete", "configmap", NAME]).await;
    let change = |documents: &mut Documents| {
        documents.inventory.get_or_insert_default().recovery = true;
        Ok(())
    };
    store.commit(Some(stored), None, change).await.unwrap();
    assert_eq!(bed.document().await["recovery"], true);
}

/// A leader of an earlier term is refused, and an instance that writes without a term leaves the number as it is.
#[tokio::test]
async fn an_earlier_term_writes_nothing_more() {
    let bed = Bed::new(Cluster::shared().await, "term").await;
    let store = bed.store();
    let add = |node: &'static str| {
        move |documents: &mut Documents| {
            let inventory = documents.inventory.get_or_insert_default();
            inventory.union_into(node, &Entry::default());
            Ok(())
        }
    };
    store.commit(None, Some(3), add("a")).await.unwrap();
    let error = store.commit(None, Some(2), add("b")).await.unwrap_err();
    assert!(matches!(error, StoreError::StaleTerm { ours: 2, stored: 3 }), "{error}");
    store.commit(None, None, add("c")).await.unwrap();
    let config_map = bed.config_map().await;
    assert_eq!(config_map["metadata"]["annotations"]["stratum.ciq.com/term"], "3");
    let document = bed.document().await;
    let nodes: Vec<&String> = document["nodes"].as_object().unwrap().keys().collect();
    assert_eq!(nodes, ["a", "c"]);
}
