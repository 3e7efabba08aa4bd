//! The loop over real files: leaves that `openssl` and this program made.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use super::*;
use crate::host::atomic_file::{self, Access};
use crate::host::certificates::fixtures::Openssl;
use crate::host::renewal_record::RenewalResult;
use crate::pki::authority::Authority;
use crate::pki::certificate::Certificate;
use crate::pki::key::{Key, Serial};
use crate::pki::leaf::{Request, issue};
use crate::pki::name::{AlternativeName, Subject};
use crate::reconcilers::certificates::renewal::{ConcernKind, Waiting};

const PKI: &str = "etc/kubernetes/pki";

/// Makes the API server's certificate new, with its key kept, for a life of so many seconds.
fn reissue(root: &Path, seconds: i64) -> Vec<u8> {
    let read = |file: &str| std::fs::read(root.join(PKI).join(file)).unwrap();
    let authority = Authority::load(&read("ca.crt"), &read("ca.key")).unwrap();
    let key = Key::from_pem(&read("apiserver.key")).unwrap();
    let request = Request {
        lifetime: SignedDuration::from_secs(seconds),
        ..Request::server(Subject::user("kube-apiserver"), vec![AlternativeName::dns("alpha")])
    };
    let made = issue(&authority, &request, &key, Serial::random().unwrap(), clock::now()).unwrap();
    let path = root.join(PKI).join("apiserver.crt");
    atomic_file::write(&path, made.to_pem().as_bytes(), Access::Public).unwrap();
    made.details().serial.clone()
}

fn record(layout: &Layout) -> RenewalRecord {
    load_renewal_record(layout).unwrap().unwrap()
}

/// The mark of a rotation that is to be gone on with: a reason to renew whatever is due.
fn mark(layout: &Layout) {
    atomic_file::create_folder(&layout.state(), Access::Secret).unwrap();
    atomic_file::write(&layout.rotation_incomplete(), b"{}", Access::Public).unwrap();
}

async fn no_attempt(_: Wish) -> Attempted {
    panic!("nothing was due");
}

fn fails(words: &str, refused: bool) -> Attempted {
    let words = words.to_owned();
    Err(Failure { words, refused })
}

fn renewal<A, F>(layout: &Layout, attempt: A) -> Renewal<A>
where
    A: Fn(Wish) -> F,
    F: Future<Output = Attempted>,
{
    Renewal::new(layout.clone(), Teller::default(), attempt)
}

#[tokio::test]
async fn nothing_is_tried_and_nothing_recorded_while_nothing_is_due() {
    let machine = Openssl::kubeadm_controller();
    let layout = machine.kubeadm();
    let looked = renewal(&layout, no_attempt).look(&CancellationToken::new()).await;
    let Looked::Nothing(decision) = looked else {
        panic!("{looked:?}")
    };
    assert!(
        matches!(
            decision.action,
            Action::Wait {
                why: Waiting::NotDue { .. },
                ..
            }
        ),
        "{decision:?}"
    );
    assert_eq!(decision.concerns, []);
    assert!(!layout.renewal_record().exists());
}

#[tokio::test]
async fn leaves_that_live_for_seconds_are_renewed_again_and_again() {
    let machine = Openssl::kubeadm_controller();
    let layout = machine.kubeadm();
    let root: PathBuf = machine.path().to_owned();
    reissue(&root, 4);
    let serials = Arc::new(Mutex::new(Vec::new()));
    let stop = CancellationToken::new();
    let attempt = {
        let (serials, layout, stop) = (Arc::clone(&serials), layout.clone(), stop.clone());
        move |wish: Wish| {
            assert_eq!(record(&layout).result, RenewalResult::InProgress, "before the attempt");
            assert!(wish.window > SignedDuration::ZERO && wish.window < SignedDuration::from_secs(3));
            let file = std::fs::read(root.join(PKI).join("apiserver.crt")).unwrap();
            let certificate = Certificate::from_pem(&file).unwrap();
            assert!(certificate.is_in_date(clock::now()), "it ended first");
            let mut serials = serials.lock().unwrap();
            serials.push(reissue(&root, 4));
            if serials.len() == 3 {
                stop.cancel();
            }
            async { Ok(vec!["apiserver".to_owned()]) }
        }
    };
    let run = renewal(&layout, attempt).run(stop);
    tokio::time::timeout(Duration::from_secs(30), run).await.unwrap();
    let mut serials = serials.lock().unwrap().clone();
    serials.sort();
    serials.dedup();
    assert_eq!(serials.len(), 3);
    assert!(record(&layout).is_success());
}

#[tokio::test]
async fn a_failure_is_recorded_counted_and_not_repeated_at_once() {
    let machine = Openssl::kubeadm_controller();
    let layout = machine.kubeadm();
    let stop = CancellationToken::new();
    mark(&layout);
    let looked = renewal(&layout, async |_| fails("no key", false)).look(&stop).await;
    assert_eq!(
        looked,
        Looked::Failed(Failure {
            words: "no key".to_owned(),
            refused: false
        })
    );
    let failed = record(&layout);
    assert_eq!(
        (failed.result.clone(), failed.failures),
        (RenewalResult::Failed("no key".to_owned()), 1)
    );
    assert!(failed.finished_at.is_some());
    // Another process finds the record, and waits.
    let looked = renewal(&layout, no_attempt).look(&stop).await;
    let Looked::Nothing(decision) = looked else {
        panic!("{looked:?}")
    };
    assert!(
        matches!(
            decision.action,
            Action::Wait {
                why: Waiting::Paused { failures: 1 },
                ..
            }
        ),
        "{decision:?}"
    );
}

#[tokio::test]
async fn an_attempt_that_was_cut_off_is_no_success_and_is_followed_up() {
    let machine = Openssl::kubeadm_controller();
    let layout = machine.kubeadm();
    let stop = CancellationToken::new();
    mark(&layout);
    {
        let mut cut_off = renewal(&layout, async |_| std::future::pending().await);
        let look = cut_off.look(&stop);
        assert!(tokio::time::timeout(Duration::from_millis(300), look).await.is_err());
    }
    let left = record(&layout);
    assert!(!left.is_success() && left.finished_at.is_none());
    assert_eq!((left.result, left.failures), (RenewalResult::InProgress, 1));
    // As long ago as the pause is.
    let old = RenewalRecord::begun(clock::now() - SignedDuration::from_hours(2), 0);
    save_renewal_record(&layout, &old).unwrap();
    atomic_file::remove(&layout.rotation_incomplete()).unwrap();
    let looked = renewal(&layout, async |wish: Wish| {
        assert_eq!(wish.window, SignedDuration::ZERO, "nothing is due");
        Ok(Vec::new())
    });
    let looked = { looked }.look(&stop).await;
    assert_eq!(looked, Looked::Renewed { names: Vec::new() });
    assert_eq!((record(&layout).is_success(), record(&layout).failures), (true, 0));
}

#[tokio::test]
async fn without_a_record_there_is_no_attempt() {
    let machine = Openssl::kubeadm_controller();
    let layout = machine.kubeadm();
    mark(&layout);
    atomic_file::create_folder(&layout.renewal_record(), Access::Secret).unwrap();
    let stop = CancellationToken::new();
    let mut renewal = renewal(&layout, no_attempt);
    let looked = renewal.look(&stop).await;
    let Looked::Failed(failure) = looked else {
        panic!("{looked:?}")
    };
    assert!(
        failure
            .words
            .starts_with("not attempted: cannot write the renewal record"),
        "{failure:?}"
    );
    // Nor busily.
    assert!(matches!(renewal.look(&stop).await, Looked::Nothing(_)));
}

#[tokio::test]
async fn a_stop_waits_for_the_step_in_flight() {
    let machine = Openssl::kubeadm_controller();
    let layout = machine.kubeadm();
    reissue(machine.path(), 1);
    let stop = CancellationToken::new();
    let steps = Arc::new(AtomicUsize::new(0));
    let attempt = {
        let steps = Arc::clone(&steps);
        move |wish: Wish| {
            let steps = Arc::clone(&steps);
            async move {
                wish.stop.cancelled().await;
                clock::sleep(Duration::from_millis(200)).await;
                steps.fetch_add(1, Ordering::SeqCst);
                fails("stopped before the next step", false)
            }
        }
    };
    let running = tokio::spawn(renewal(&layout, attempt).run(stop.clone()));
    let began = async {
        while !layout.renewal_record().exists() {
            clock::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), began).await.unwrap();
    stop.cancel();
    tokio::time::timeout(Duration::from_secs(10), running)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(
        steps.load(Ordering::SeqCst),
        1,
        "the step was cut off, or another began"
    );
    let left = record(&layout);
    assert_eq!(left.failures, 0, "nobody's failure");
    assert!(matches!(left.result, RenewalResult::Failed(why) if why.starts_with("asked to stop: ")));
}

#[tokio::test]
async fn what_cannot_be_renewed_is_a_concern_and_no_attempt() {
    let machine = Openssl::kubeadm_controller();
    let layout = machine.kubeadm();
    reissue(machine.path(), 1);
    clock::sleep(Duration::from_millis(1100)).await;
    machine.remove(&format!("{PKI}/ca.key"));
    machine.write(&format!("{PKI}/etcd/server.crt"), "no certificate");
    let looked = renewal(&layout, no_attempt).look(&CancellationToken::new()).await;
    let Looked::Nothing(decision) = looked else {
        panic!("{looked:?}")
    };
    let concerns: Vec<_> = decision
        .concerns
        .iter()
        .map(|concern| (concern.name.as_str(), concern.kind))
        .collect();
    assert_eq!(concerns, [("apiserver", ConcernKind::NoSigner)]);
    let machine = Machine::load(layout.clone()).unwrap();
    let unreadable = observe::observe(&machine).unreadable;
    assert!(
        matches!(unreadable.as_slice(), [(name, _)] if name == "etcd-server"),
        "{unreadable:?}"
    );
}

#[tokio::test]
async fn a_machine_that_cannot_be_told_is_not_asked_busily() {
    let machine = Openssl::new();
    let layout = Layout::under(machine.path());
    machine.write("var/lib/stratum/node.yaml", "half a");
    let stop = CancellationToken::new();
    let mut renewal = renewal(&layout, no_attempt);
    // As after an attempt.
    renewal.remember(&RenewalRecord::begun(clock::now(), 0));
    assert!(matches!(renewal.look(&stop).await, Looked::Unknown(words) if words.contains("node.yaml")));
    assert_eq!(next(&renewal.look(&stop).await, clock::now()), LOOK_AGAIN);
}

#[test]
fn a_sleep_is_never_short_and_never_for_months() {
    let now = clock::now();
    let until = |until| {
        let why = Waiting::Nothing;
        let action = Action::Wait { until, why };
        next(
            &Looked::Nothing(Decision {
                action,
                concerns: Vec::new(),
            }),
            now,
        )
    };
    assert_eq!(until(None), LOOK_AGAIN);
    assert_eq!(until(Some(now + SignedDuration::from_hours(5000))), LOOK_AGAIN);
    assert_eq!(until(Some(now + SignedDuration::from_secs(7))), Duration::from_secs(7));
    assert_eq!(until(Some(now - SignedDuration::from_secs(7))), SHORTEST);
}
