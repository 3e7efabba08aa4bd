use std::fs::{self, File};
use std::path::Path;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn put(layout: &Layout, text: &str) {
    atomic_file::create_folder(&layout.state(), Access::Secret).unwrap();
    atomic_file::write(&layout.renewal_record(), text.as_bytes(), Access::Public).unwrap();
}

fn raw(layout: &Layout) -> Value {
    serde_json::from_slice(&fs::read(layout.renewal_record()).unwrap()).unwrap()
}

/// The reader that knows `attemptedAt` and `result` and nothing else: whether it sees a success.
fn seen_as_success(document: &Value) -> bool {
    document["attemptedAt"].as_str().unwrap().parse::<Timestamp>().unwrap();
    document
        .get("result")
        .is_none_or(|result| result.as_str().unwrap().is_empty())
}

#[test]
fn an_attempt_from_its_beginning_to_its_end() {
    let folder = tempfile::tempdir().unwrap();
    let layout = Layout::under(folder.path());
    assert_eq!(
        renewal_record_path(&layout),
        folder.path().join("var/lib/stratum/renewal.json")
    );
    assert_eq!(load_renewal_record(&layout).unwrap(), None);

    let begun = RenewalRecord::begun(at(1_800_000_000), 2);
    save_renewal_record(&layout, &begun).unwrap();
    let expected = json!({
        "attemptedAt": "2027-01-15T08:00:00Z", "state": "in progress", "result": "in progress", "failures": 3
    });
    assert_eq!(raw(&layout), expected);
    assert!(!seen_as_success(&raw(&layout)));
    let read = load_renewal_record(&layout).unwrap().unwrap();
    assert!(!read.is_success());
    assert_eq!(read, begun);

    let failed = begun.clone().failed(at(1_800_000_007), "no key");
    save_renewal_record(&layout, &failed).unwrap();
    let expected = json!({
        "attemptedAt": "2027-01-15T08:00:00Z", "result": "no key", "finishedAt": "2027-01-15T08:00:07Z", "failures": 3
    });
    assert_eq!(raw(&layout), expected);
    assert_eq!(load_renewal_record(&layout).unwrap().unwrap(), failed);

    let succeeded = begun.succeeded(at(1_800_000_007));
    save_renewal_record(&layout, &succeeded).unwrap();
    let expected = json!({"attemptedAt": "2027-01-15T08:00:00Z", "finishedAt": "2027-01-15T08:00:07Z"});
    assert_eq!(raw(&layout), expected);
    assert!(seen_as_success(&raw(&layout)));
    let read = load_renewal_record(&layout).unwrap().unwrap();
    assert!(read.is_success());
    assert_eq!(read, succeeded);
}

/// What the other program writes, and what a later release may add.
#[test]
fn records_of_others_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let layout = Layout::under(folder.path());
    put(&layout, r#"{"attemptedAt":"2027-01-15T09:00:00.123456789+01:00"}"#);
    assert!(load_renewal_record(&layout).unwrap().unwrap().is_success());
    put(
        &layout,
        r#"{"attemptedAt":"2027-01-15T08:00:00Z","result":"in progress","more":{}}"#,
    );
    let read = load_renewal_record(&layout).unwrap().unwrap();
    assert_eq!(read.result, RenewalResult::Failed("in progress".to_owned()));
    // A record that contradicts itself is no success.
    put(
        &layout,
        r#"{"attemptedAt":"2027-01-15T08:00:00Z","state":"in progress","finishedAt":"2027-01-15T08:00:00Z"}"#,
    );
    assert_eq!(
        load_renewal_record(&layout).unwrap().unwrap().result,
        RenewalResult::InProgress
    );
}

#[test]
fn what_is_no_record_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let layout = Layout::under(folder.path());
    for text in [
        "",
        "{}",
        "[]",
        r#"{"attemptedAt":"yesterday"}"#,
        r#"{"attemptedAt":"2027-01-15T08:00:00Z","state":"half done"}"#,
        r#"{"attemptedAt":"2027-01-15T08:00:00Z","result":7}"#,
        r#"{"attemptedAt":"2027-01-15T08:00:00Z"#,
    ] {
        put(&layout, text);
        assert!(
            matches!(load_renewal_record(&layout), Err(Error::Parse { .. })),
            "{text}"
        );
    }
    put(&layout, &" ".repeat(70_000));
    assert!(matches!(load_renewal_record(&layout), Err(Error::Read { .. })));
    let path = layout.renewal_record();
    fs::remove_file(&path).unwrap();
    std::os::unix::fs::symlink("nowhere", &path).unwrap();
    assert_eq!(load_renewal_record(&layout).unwrap(), None, "as the system says it");
    fs::remove_file(&path).unwrap();
    let (kind, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR);
    rustix::fs::mknodat(rustix::fs::CWD, &path, kind, mode, 0).unwrap();
    assert!(matches!(load_renewal_record(&layout), Err(Error::Read { .. })));
}

/// Every write is the old record or the new one, and nothing lies beside it, whatever went wrong.
#[test]
fn a_failed_save_leaves_the_old_record_and_no_copy() {
    let folder = tempfile::tempdir().unwrap();
    let layout = Layout::under(folder.path());
    let first = RenewalRecord::begun(at(1), 0);
    save_renewal_record(&layout, &first).unwrap();
    // What a process that was killed in the middle of a write left.
    let stray = layout.state().join(".renewal.json.4194305-0.tmp");
    File::create(&stray).unwrap();
    save_renewal_record(&layout, &first.clone().succeeded(at(2))).unwrap();
    let names = |folder: &Path| -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect()
    };
    assert_eq!(names(&layout.state()), ["renewal.json"]);
    // A folder in its place cannot be replaced by a file.
    fs::remove_file(layout.renewal_record()).unwrap();
    fs::create_dir(layout.renewal_record()).unwrap();
    assert!(matches!(save_renewal_record(&layout, &first), Err(Error::Write(_))));
    assert_eq!(names(&layout.state()), ["renewal.json"]);
}

proptest! {
    /// Whatever the words of an error are, what is read is what was written, up to its length, and never a success.
    #[test]
    fn no_failure_reads_as_success(why in ".{0,400}", repeat in 0_usize..40, failures in 0_u32..9) {
        let why = why.repeat(repeat);
        let record = RenewalRecord::begun(at(5), failures).failed(at(6), why.clone());
        let json = serde_json::to_vec(&Document::from(&record)).unwrap();
        prop_assert!(json.len() as u64 <= LIMIT);
        prop_assert!(!seen_as_success(&serde_json::from_slice(&json).unwrap()));
        let read = RenewalRecord::from(serde_json::from_slice::<Document>(&json).unwrap());
        let RenewalResult::Failed(words) = &read.result else { panic!("{read:?}") };
        prop_assert!(why.starts_with(words.as_str()) || why.trim().is_empty());
        prop_assert_eq!(read.failures, failures + 1);
    }
}
