//! A file that is not all there: cut at every byte, cut while no operator ran, and written from the start by a slow writer.
//! Nothing is pruned, except what a cut between two documents leaves out, once it has stood for a second.

use futures::future::join_all;

use super::fixture::Fixture;

/// Three small objects, with a comment, a line that is no whole document at each end, and a boundary of each kind.
fn whole() -> String {
    let document = |name: &str| {
        format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}, namespace: NAMESPACE}}\ndata: {{k: v}}\n")
    };
    let [a, b, c] = ["a", "b", "c"].map(document);
    format!("# x\n{a}---\n{b}--- # y\n{c}")
}

/// How many documents a cut leaves, if it is one between documents. Told from the text, not as the operator tells it.
fn documents_left(whole: &str, end: usize) -> Option<usize> {
    let (cut, rest) = whole.split_at(end);
    let last = cut.lines().last().unwrap_or_default();
    let is_boundary = cut.is_empty()
        || rest.starts_with("---")
        || (cut.ends_with('\n') && (last.starts_with("---") || last.starts_with('#')));
    is_boundary.then(|| cut.matches("kind:").count())
}

const NAMES: [&str; 3] = ["a", "b", "c"];

/// Cuts the file at each of `ends`, each time from the whole one, and makes a settled pass.
async fn cut_at(purpose: &str, ends: impl Iterator<Item = usize>) -> usize {
    let fixture = Fixture::new(purpose).await;
    let whole = fixture.text(&whole());
    fixture.write("s/a.yaml", &whole);
    fixture.write("t/other.yaml", &super::config_map("other", "1"));
    let mut cuts = 0;
    let mut before = None;
    for end in ends.take_while(|end| *end < whole.len()) {
        if before.is_none() {
            fixture.write("s/a.yaml", &whole);
            assert!(fixture.pass().await.is_complete());
        }
        let uids = fixture.uids().await;
        assert_eq!(uids.len(), 4, "cut at byte {end}: {uids:?}");
        fixture.write("s/a.yaml", &whole[..end]);
        let report = fixture.settled_pass().await;
        let after = fixture.uids().await;
        match documents_left(&whole, end) {
            None => {
                assert!(!report.is_complete(), "cut at byte {end} was taken for a whole file");
                assert_eq!(report.total().pruned, 0, "cut at byte {end}: {report:?}");
                assert_eq!(after, uids, "cut at byte {end}");
                before = Some(uids);
            }
            Some(left) => {
                let names: Vec<&str> = after.keys().map(String::as_str).collect();
                let kept: Vec<&str> = NAMES[..left].iter().copied().chain(["other"]).collect();
                assert_eq!(names, kept, "cut at byte {end}: {report:?}");
                assert!(after.iter().all(|(name, uid)| uids[name] == *uid), "cut at byte {end}");
                before = None;
            }
        }
        cuts += 1;
    }
    cuts
}

/// Every byte, in lanes: what takes time is the second for which a folder has to stay the same.
#[tokio::test]
async fn every_byte_prefix_of_a_file_prunes_nothing_but_a_cut_between_documents() {
    const LANES: usize = 40;
    let lanes = (0..LANES).map(|lane| async move { cut_at("cut", (lane..).step_by(LANES)).await });
    let cuts: usize = join_all(lanes).await.into_iter().sum();
    assert!(cuts > 250, "{cuts}");
}

/// Only digests are left of what the file held. A cut inside the last document loses none, and is not seen.
#[tokio::test]
async fn a_file_cut_while_no_operator_ran_prunes_nothing_but_a_cut_between_documents() {
    let length = whole().len();
    let ends: Vec<usize> = whole().match_indices('\n').flat_map(|(at, _)| [at, at + 1]).collect();
    let lanes = ends.into_iter().filter(|end| *end < length).map(|line_end| async move {
        let fixture = Fixture::new("off").await;
        fixture.write("s/a.yaml", &whole());
        fixture.pass().await;
        let uids = fixture.uids().await;
        let end = fixture.text(&whole()[..line_end]).len();
        let whole = fixture.text(&whole());
        fixture.write("s/a.yaml", &whole[..end]);
        let report = fixture.restarted().pass().await;
        let after = fixture.uids().await;
        let left = documents_left(&whole, end).unwrap_or(3);
        let kept: Vec<&String> = uids.keys().take(left).collect();
        assert_eq!(after.keys().collect::<Vec<_>>(), kept, "cut at byte {end}: {report:?}");
        assert!(after.iter().all(|(name, uid)| uids[name] == *uid), "cut at byte {end}");
    });
    join_all(lanes).await;
}

/// A writer that empties the file first and stops half way: what the operator has seen meanwhile is no reason to take
/// the half file for a file that grows.
#[tokio::test]
async fn a_slow_writer_that_stops_inside_a_document_prunes_nothing() {
    let lines: Vec<String> = whole().split_inclusive('\n').map(str::to_owned).collect();
    let stops: Vec<usize> = (1..lines.len())
        .filter(|stop| documents_left(&whole(), lines[..*stop].concat().len()).is_none())
        .collect();
    assert_eq!(stops.len(), 9, "three inside of each document");
    let lines = &lines;
    let lanes = stops.into_iter().map(|stop| async move {
        let fixture = Fixture::new("slow").await;
        fixture.write("s/a.yaml", &whole());
        fixture.pass().await;
        let uids = fixture.uids().await;
        fixture.write_in_place("s/a.yaml".as_ref(), "");
        fixture.glance().await;
        for line in &lines[..stop] {
            fixture.append("s/a.yaml", line);
            fixture.glance().await;
        }
        let report = fixture.settled_pass().await;
        assert!(!report.is_complete(), "stopped after line {stop}: {report:?}");
        assert_eq!(fixture.uids().await, uids, "stopped after line {stop}: {report:?}");
        let report = fixture.restarted().pass().await;
        assert_eq!(
            fixture.uids().await,
            uids,
            "stopped after line {stop}, restarted: {report:?}"
        );
        for line in &lines[stop..] {
            fixture.append("s/a.yaml", line);
        }
        let report = fixture.settled_pass().await;
        assert!(report.is_complete() && report.suspended.is_none(), "{report:?}");
        assert_eq!(fixture.uids().await, uids);
    });
    join_all(lanes).await;
}
