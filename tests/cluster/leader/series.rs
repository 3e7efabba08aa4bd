//! What Prometheus has to keep: the number of series must not follow the number of objects.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use stratum::host::atomic_file::{self, Access};

use crate::support::operator::Operator;
use crate::support::{Cluster, wait_for};

/// How long a pass with its second, equal read may take here.
const PASSES: Duration = Duration::from_secs(60);
/// A request may be answered with a status that was not seen before; that is a new series, and the only kind there is.
const NEW_STATUSES: usize = 6;

/// Lets the operator create, change, refuse and prune a few objects, then apply many, and compares the series.
pub(super) async fn do_not_grow_with_objects(cluster: &Cluster, operator: &Operator, manifests: &Path) {
    let stack = manifests.join("series");
    let write = |names: std::ops::Range<usize>, value: &str| {
        let documents = names.map(|number| {
            format!(
                "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: series-{number}, namespace: default}}\ndata: {{key: \"{value}\"}}\n"
            )
        });
        let text = documents.collect::<Vec<_>>().join("---\n");
        atomic_file::create_folder(&stack, Access::Public).unwrap();
        atomic_file::write(&stack.join("maps.yaml"), text.as_bytes(), Access::Public).unwrap();
    };
    let live = |count: usize| {
        let arguments = ["get", "configmaps", "-l", "stratum.ciq.com/stack=series", "-o", "name"];
        let live = move || async move { (cluster.kubectl(&arguments).await.lines().count() == count).then_some(()) };
        wait_for("the stack to be as declared", PASSES, live)
    };
    // Without a control-plane Node nobody knows who has to contribute to the inventory, and pruning waits.
    cluster.register(&["one"]).await;
    write(0..3, "1");
    live(3).await;
    write(0..2, "2");
    live(2).await;
    let broken = stack.join("broken.yaml");
    atomic_file::write(&broken, b"a: [", Access::Public).unwrap();
    let refused = || async {
        operator
            .metrics()
            .await
            .contains("state=\"refused\"} 1\n")
            .then_some(())
    };
    wait_for("the broken file to be refused", PASSES, refused).await;
    atomic_file::remove(&broken).unwrap();
    write(0..1, "2");
    live(1).await;
    let few = series(&operator.metrics().await);
    write(0..400, "3");
    live(400).await;
    let metrics = operator.metrics().await;
    let many = series(&metrics);
    let new: Vec<_> = many.difference(&few).collect();
    assert!(
        new.len() <= NEW_STATUSES,
        "400 objects made {} new series: {new:?}",
        new.len()
    );
    assert!(!metrics.contains("series-"), "an object's name is a label");
}

/// The names of the series with their labels, without their values.
fn series(exposition: &str) -> BTreeSet<String> {
    let lines = exposition.lines().filter(|line| !line.starts_with('#'));
    lines
        .filter_map(|line| Some(line.rsplit_once(' ')?.0.to_owned()))
        .collect()
}
