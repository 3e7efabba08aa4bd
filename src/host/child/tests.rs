use super::*;

fn shell(script: &str) -> Program {
    Program::new("/bin/sh").arguments(["-c", script])
}

#[tokio::test]
async fn a_run_collects_output_input_and_exit() {
    let finished = shell("cat; echo oops >&2; exit 7").run(b"fed".to_vec()).await.unwrap();
    assert_eq!(finished.exit, Exit::Status(7));
    assert_eq!(finished.stdout, b"fed");
    assert_eq!(finished.stderr, b"oops\n");
    let finished = shell("kill -9 $$").run(Vec::new()).await.unwrap();
    assert_eq!(finished.exit, Exit::Signal(9));
}

#[tokio::test]
async fn a_missing_program_is_named() {
    let error = Program::new("/nowhere/etcd").start(&Output::Discard).unwrap_err();
    assert_eq!(error.to_string(), "cannot start /nowhere/etcd");
}

#[tokio::test]
async fn what_does_not_end_when_asked_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let mut child = shell("trap '' TERM; echo ready; while :; do sleep 1; done")
        .start(&Output::Log(log.clone()))
        .unwrap();
    while log_tail(&log, 1) != "ready" {
        assert_eq!(child.exit(), None);
        tokio::task::yield_now().await;
    }
    assert_eq!(
        child.terminate(Duration::from_millis(100)).await.unwrap(),
        Exit::Signal(9)
    );
    assert_eq!(
        child.terminate(Duration::ZERO).await.unwrap(),
        Exit::Signal(9),
        "asking again is harmless"
    );
}

#[tokio::test]
async fn what_a_child_leaves_in_its_group_ends_with_it() {
    // The pipe of the grandchild is only closed by its death; without that the run would take a minute.
    let program = shell("sleep 60 & echo started");
    let run = program.run(Vec::new());
    let finished = tokio::time::timeout(Duration::from_secs(20), run)
        .await
        .expect("grandchild outlived its parent");
    assert_eq!(finished.unwrap().stdout, b"started\n");
}

#[test]
fn the_tail_of_a_log() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    File::create(&log).unwrap().write_all(b"one\ntwo\nthree\n").unwrap();
    assert_eq!(log_tail(&log, 2), "two\nthree");
    assert_eq!(log_tail(&log, 9), "one\ntwo\nthree");
    assert_eq!(log_tail(&folder.path().join("none"), 2), "");
    // Longer than any memory: a log that nobody rotates.
    let mut long = File::create(folder.path().join("long")).unwrap();
    long.set_len(1 << 42).unwrap();
    std::io::Seek::seek(&mut long, std::io::SeekFrom::End(0)).unwrap();
    long.write_all(b"\nlast but one\nlast\n").unwrap();
    assert_eq!(log_tail(&folder.path().join("long"), 2), "last but one\nlast");
}

#[test]
fn a_parent_that_is_gone_is_noticed() {
    let error = become_child_of(1, OsStr::new("/bin/true"), &[]);
    assert_eq!(error.to_string(), "process 1 has ended already");
    rustix::process::set_parent_process_death_signal(None).unwrap();
}
