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
    let error = become_child_of(1, None, std::ffi::OsStr::new("/bin/true"), &[]);
    assert_eq!(error.to_string(), "process 1 has ended already");
    rustix::process::set_parent_process_death_signal(None).unwrap();
}

#[tokio::test]
async fn what_is_chatty_is_read_to_its_end_and_kept_in_part() {
    let never = std::future::pending();
    let program = shell("echo first; head -c 50000000 /dev/zero; echo last; echo other >&2");
    let run = program.run_until(Vec::new(), 1000, never, Duration::ZERO);
    let bounded = tokio::time::timeout(Duration::from_secs(60), run)
        .await
        .unwrap()
        .unwrap();
    assert_eq!((bounded.exit, bounded.was_ended), (Exit::Status(0), false));
    let kept = &bounded.stdout;
    assert!(kept.was_cut && kept.bytes.len() < 1100, "{}", kept.bytes.len());
    assert!(kept.bytes.starts_with(b"first\n") && kept.bytes.ends_with(b"\0last\n"));
    assert!(kept.text().contains("[49999011 bytes left out]"), "{}", kept.text());
    assert_eq!(
        (bounded.stderr.text().as_str(), bounded.stderr.was_cut),
        ("other\n", false)
    );
}

#[tokio::test]
async fn what_hangs_is_ended_with_all_that_it_started() {
    for (script, exit) in [
        ("sleep 600 & echo $!; wait", Exit::Signal(15)),
        (
            "trap '' TERM; sleep 600 & echo $!; while :; do sleep 1; done",
            Exit::Signal(9),
        ),
    ] {
        let program = shell(script);
        let end = crate::host::clock::sleep(Duration::from_millis(500));
        let run = program.run_until(Vec::new(), 1000, end, Duration::from_millis(200));
        let bounded = tokio::time::timeout(Duration::from_secs(60), run)
            .await
            .unwrap()
            .unwrap();
        assert_eq!((bounded.exit, bounded.was_ended), (exit, true), "{script}");
        let grandchild: u32 = bounded.stdout.text().trim().parse().unwrap();
        // It was killed, and takes a moment to be gone; by itself it would take ten minutes.
        let gone = async {
            loop {
                let state = std::fs::read_to_string(format!("/proc/{grandchild}/stat")).unwrap_or_default();
                if state.is_empty() || state.contains(") Z") {
                    return;
                }
                crate::host::clock::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), gone).await.unwrap();
    }
}

#[test]
fn a_confinement_is_one_argument() {
    for text in ["-:-:1024:4096:100", "64738:64738:1:2:3"] {
        assert_eq!(text.parse::<Confinement>().unwrap().to_string(), text);
    }
    for text in ["", "-:1:1:1:1", "1:1:1:1", "a:1:1:1:1", "1:1:1:1:1:1", "-1:1:1:1:1"] {
        text.parse::<Confinement>().unwrap_err();
    }
}
