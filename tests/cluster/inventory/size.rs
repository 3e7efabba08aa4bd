//! An inventory that would pass the 1 MiB a ConfigMap may hold.

use std::fmt::Write;

use stratum::reconcilers::inventory::document::Entry;
use stratum::reconcilers::inventory::records::LIMIT;
use stratum::reconcilers::manifests::report::{RefusalReason, Report, SuspensionReason};

use super::bed::Bed;
use crate::support::Cluster;

const UID: &str = "01234567-89ab-cdef-0123-456789abcdef";

/// An inventory in which node `b` recorded this many objects, one of them live, and a foreign key that fills the
/// ConfigMap up to `room` bytes.
async fn fill(bed: &Bed<'_>, recorded: usize, closed: bool, room: usize) {
    let live = bed.objects(&["gone"]).await["gone"].clone();
    let mut names = format!(r#""gone":"{live}""#);
    for index in 1..recorded {
        write!(names, r#","object-{index}":"{UID}""#).unwrap();
    }
    let record = format!(r#"{{"s":{{"core/configmaps":{{"{}":{{{names}}}}}}}}}"#, bed.namespace);
    let record = Entry::parse(&record).unwrap();
    let stored = bed
        .store()
        .commit(None, None, |documents| {
            let inventory = documents.inventory.get_or_insert_default();
            inventory.union_into("a", &Entry::default());
            inventory.union_into("b", &record);
            inventory.closed_at = closed.then_some(jiff::Timestamp::UNIX_EPOCH);
            Ok(())
        })
        .await
        .unwrap();
    let filler = LIMIT - stored.bytes() - "note".len() - room;
    bed.put(&[("note", &"x".repeat(filler))]).await;
}

/// The number of bytes a refusal names.
fn named(report: &Report) -> usize {
    let refusal = &report.refusals[0];
    assert_eq!(refusal.reason, RefusalReason::InventoryTooLarge, "{report:?}");
    assert!(
        refusal.message.contains(&format!("the {LIMIT} a ConfigMap may hold")),
        "{refusal}"
    );
    let words: Vec<&str> = refusal.message.split(' ').collect();
    let number = words.iter().position(|word| *word == "bytes").unwrap() - 1;
    words[number].parse().unwrap()
}

#[tokio::test]
async fn an_inventory_that_would_not_fit_is_refused_with_its_size() {
    let cluster = Cluster::shared().await;
    for recorded in [300, 3_000, 12_000] {
        let bed = Bed::new(cluster, "size").await;
        fill(&bed, recorded, true, 20).await;
        let instance = bed.instance("a");
        instance.write("s/new.yaml", &bed.declared("new"));
        instance.write("loose.yaml", &bed.declared("loose"));
        let before = bed.config_map().await;
        let report = instance.pass().await;
        let bytes = named(&report);
        assert!(bytes > LIMIT && bytes < LIMIT + 300, "{recorded}: {bytes}");
        let suspended = report.suspended.as_ref().map(SuspensionReason::from);
        assert_eq!(suspended, Some(SuspensionReason::PassIncomplete), "{recorded}");
        assert_eq!(bed.names().await, ["gone", "loose"], "{recorded}");
        assert_eq!(bed.config_map().await, before, "{recorded}");

        if recorded == 300 {
            bed.put(&[("note", "")]).await;
            let report = instance.pass().await;
            assert_eq!((report.total().created, report.total().pruned), (1, 1), "{report:?}");
            assert_eq!(bed.names().await, ["loose", "new"]);
        }
    }
}

/// The forecast is made before objects have UIDs, and counts them.
#[tokio::test]
async fn the_forecast_is_what_the_pass_ends_with() {
    let cluster = Cluster::shared().await;
    let bed = Bed::new(cluster, "forecast").await;
    // Open, so that nothing is pruned, which would make room.
    fill(&bed, 300, false, 0).await;
    let instance = bed.instance("a");
    let files: Vec<String> = (0..20).map(|index| bed.declared(&format!("new-{index}"))).collect();
    instance.write("s/new.yaml", &files.join("---\n"));
    let over = named(&instance.pass().await) - LIMIT;
    let filler = bed.text("note").await.len();

    bed.put(&[("note", &"x".repeat(filler - over + 1))]).await;
    assert_eq!(named(&instance.pass().await), LIMIT + 1);
    assert_eq!(bed.names().await, ["gone"]);

    bed.put(&[("note", &"x".repeat(filler - over))]).await;
    let report = instance.pass().await;
    assert_eq!(report.total().created, 20, "{report:?}");
    assert_eq!(bed.store().load().await.unwrap().bytes(), LIMIT);
}
