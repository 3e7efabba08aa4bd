use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use super::*;

const LIMIT: Duration = Duration::from_secs(20);

fn service(folder: &std::path::Path, program: Program) -> Service {
    Service {
        name: ServiceName::Kubelet,
        program,
        log: folder.join("kubelet.log"),
        ends_within: Duration::from_secs(5),
        before_start: None,
    }
}

fn sleeper() -> Program {
    Program::new("sleep").arguments(["1000"])
}

async fn until(supervised: &Supervised, wanted: impl Fn(&Status) -> bool) -> Status {
    let mut status = supervised.status.clone();
    let seen = tokio::time::timeout(LIMIT, status.wait_for(|status| wanted(status))).await;
    seen.expect("the status in time").unwrap().clone()
}

fn is_alive(process: u32) -> bool {
    std::path::Path::new(&format!("/proc/{process}/exe")).exists()
}

#[tokio::test]
async fn a_service_that_is_killed_is_started_again() {
    let folder = tempfile::tempdir().unwrap();
    let supervised = Supervised::start(service(folder.path(), sleeper())).unwrap();
    let first = supervised.status().process.unwrap();
    let pid = rustix::process::Pid::from_raw(first.cast_signed()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    let again = until(&supervised, |status| status.restarts == 1 && status.process.is_some()).await;
    assert_ne!(again.process, Some(first));
    assert!(again.last_exit.unwrap().contains("signal 9"));
    let process = again.process.unwrap();
    assert!(is_alive(process) && !is_alive(first));
    supervised.stop().await;
    assert!(!is_alive(process));
}

#[tokio::test]
async fn an_ordered_restart_is_another_process() {
    let folder = tempfile::tempdir().unwrap();
    let supervised = Supervised::start(service(folder.path(), sleeper())).unwrap();
    let first = supervised.status().process.unwrap();
    let second = supervised.restart().await.unwrap();
    assert!(is_alive(second) && !is_alive(first));
    assert_eq!(supervised.status().process, Some(second));
    supervised.stop().await;
    assert!(!is_alive(second));
}

/// The first start, one that was ordered and one after a death; each time nothing of the service runs.
#[tokio::test]
async fn what_is_done_before_each_start() {
    let folder = tempfile::tempdir().unwrap();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let last = Arc::new(AtomicU32::new(0));
    let before_start = {
        let (seen, last) = (Arc::clone(&seen), Arc::clone(&last));
        BeforeStart::new(move || seen.lock().unwrap().push(is_alive(last.load(Ordering::SeqCst))))
    };
    let supervised = Supervised::start(Service {
        before_start: Some(before_start),
        ..service(folder.path(), sleeper())
    })
    .unwrap();
    assert_eq!(*seen.lock().unwrap(), [false]);
    last.store(supervised.status().process.unwrap(), Ordering::SeqCst);
    let second = supervised.restart().await.unwrap();
    assert_eq!(*seen.lock().unwrap(), [false, false]);
    last.store(second, Ordering::SeqCst);
    let pid = rustix::process::Pid::from_raw(second.cast_signed()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    until(&supervised, |status| status.restarts == 2).await;
    assert_eq!(*seen.lock().unwrap(), [false, false, false]);
    supervised.stop().await;
}

/// The second wait is a second long; an order does not wait for it.
#[tokio::test]
async fn what_always_fails_is_tried_again_and_says_its_last_word() {
    let folder = tempfile::tempdir().unwrap();
    let failing = Program::new("ls").arguments(["/no-such-folder"]);
    let supervised = Supervised::start(service(folder.path(), failing)).unwrap();
    let failed = until(&supervised, |status| status.restarts >= 2 && status.process.is_none()).await;
    assert!(failed.last_exit.unwrap().contains("No such file"));
    supervised.restart().await.unwrap();
    supervised.stop().await;
}

#[tokio::test]
async fn what_is_not_there_is_an_error_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let error = Supervised::start(service(folder.path(), Program::new("/no/such/program")))
        .err()
        .unwrap();
    assert_eq!(error.to_string(), "kubelet");
    assert!(
        std::error::Error::source(&error)
            .unwrap()
            .to_string()
            .contains("/no/such/program")
    );
}

#[tokio::test]
async fn nothing_outlives_its_keeper() {
    let folder = tempfile::tempdir().unwrap();
    let supervised = Supervised::start(service(folder.path(), sleeper())).unwrap();
    let process = supervised.status().process.unwrap();
    drop(supervised);
    let began = clock::monotonic();
    while is_alive(process) {
        assert!(began.elapsed() < LIMIT, "it lives on");
        clock::sleep(Duration::from_millis(10)).await;
    }
}
