//! Components that run: a kubelet made of a task beside real files, and real listeners.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use sha2::{Digest, Sha256};
use tokio::net::TcpListener;
use tokio_util::sync::DropGuard;

use super::*;
use crate::host::certificates::Entry;
use crate::host::static_pods::Component;
use crate::pki::hexadecimal;
use crate::reconcilers::certificates::moves::{Consumer, Proof, Reason};

const RUNNING: [Component; 2] = [Component::KubeControllerManager, Component::KubeScheduler];

/// A machine whose kubelet and two components run, started at tick 1.
struct Running {
    // Before its folder goes.
    _kubelet: DropGuard,
    bench: Bench,
    pods: StaticPods,
    health: SocketAddr,
    _listeners: Vec<TcpListener>,
}

/// A process in a pod, as the kernel and the kubelet show it.
fn start(root: &Path, kubelet_root: &Path, pid: u32, component: Component, uid: &str, ticks: u64) {
    let pod = format!("kubepods/burstable/pod{uid}");
    for folder in [
        kubelet_root
            .join("pods")
            .join(uid)
            .join("containers")
            .join(component.name()),
        root.join("cgroup").join(&pod),
        root.join("proc").join(pid.to_string()),
    ] {
        atomic_file::create_folder(&folder, Access::Public).unwrap();
    }
    let process = root.join("proc").join(pid.to_string());
    let fields = "S 1 1 1 0 -1 4194560 1 1 0 0 1 1 0 0 20 0 1 0";
    put(
        &process.join("stat"),
        format!("{pid} (x) {fields} {ticks} 0 0\n").as_bytes(),
    );
    put(&process.join("cmdline"), format!("{component}\0--flag\0").as_bytes());
    put(&process.join("cgroup"), format!("0::/{pod}/c1\n").as_bytes());
}

fn end(root: &Path, pid: u32, uid: &str) {
    let process = root.join("proc").join(pid.to_string());
    std::fs::remove_file(process.join("cgroup")).unwrap();
    std::fs::remove_dir_all(process).unwrap();
    std::fs::remove_dir_all(root.join(format!("cgroup/kubepods/burstable/pod{uid}"))).unwrap();
}

impl Running {
    async fn new() -> Self {
        // Whose kubelet asks the cluster for what it serves with: nobody here does.
        let state = NodeState {
            profile: node_state::Profile::Cis,
            ..examples::one_controller()
        };
        let bench = Bench::of(&state, |_| {});
        let root = bench.openssl.path();
        let signalled: Signalled = Arc::default();
        let sent = Arc::clone(&signalled);
        let mut pods = bench
            .pods()
            .with_kernel(root.join("proc"), root.join("cgroup"), move |pid, _| {
                sent.lock().unwrap().insert(pid);
            });
        let mut listeners = Vec::new();
        for component in RUNNING {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            pods = pods.with_port(component, listener.local_addr().unwrap().port());
            pods.start(component).unwrap();
            listeners.push(listener);
        }
        let health = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = health.local_addr().unwrap();
        listeners.push(health);
        let stop = CancellationToken::new();
        tokio::spawn(kubelet(
            bench.openssl.path().to_owned(),
            bench.layout().kubelet_root(),
            pods.clone(),
            signalled,
            stop.clone(),
        ));
        let running = Self {
            bench,
            pods,
            health: address,
            _listeners: listeners,
            _kubelet: stop.drop_guard(),
        };
        while !RUNNING
            .iter()
            .all(|component| running.pods.running(*component).unwrap())
        {
            clock::sleep(Duration::from_millis(5)).await;
        }
        running
    }

    fn run<'a>(&'a self, options: &'a Options, stop: &'a CancellationToken) -> Run<'a> {
        Run {
            pods: self.pods.clone(),
            kubelet_health: self.health,
            ..self.bench.run(options, stop)
        }
    }

    /// Who brings the consumers of a new serving certificate to it.
    fn mover<'a>(&'a self, stop: &'a CancellationToken, entries: Vec<Entry>) -> Mover<'a> {
        let leaves = ["apiserver".to_owned()].into();
        Mover {
            machine: &self.bench.machine,
            pods: self.pods.clone(),
            entries,
            mark: Mark::take(),
            marker: rotation_incomplete::Incomplete::new(OPERATION, false, leaves, clock::now()),
            fenced: &Fenced::Skipped,
            stop,
            kube_vip_required: false,
            patience: Patience {
                reload: Duration::from_millis(300),
                answer: Duration::from_secs(2),
                stop: Duration::from_secs(1),
                ..Patience::default()
            },
            kubelet_health: self.health,
            kubelet_runs: true,
            by_hand: Vec::new(),
            warnings: Vec::new(),
        }
    }

    fn pid(&self, component: Component) -> u32 {
        self.pods.pids(component).unwrap()[0]
    }

    fn manifest(&self, component: Component) -> String {
        String::from_utf8(self.pods.read(component).unwrap()).unwrap()
    }
}

/// Who got a signal.
type Signalled = Arc<Mutex<BTreeSet<u32>>>;

/// Runs what the manifests say, and starts again what was ended; the first processes at tick 1, and whatever follows now.
async fn kubelet(root: PathBuf, folder: PathBuf, pods: StaticPods, signalled: Signalled, stop: CancellationToken) {
    let mut running: BTreeMap<Component, (String, u32)> = BTreeMap::new();
    let mut next = 100;
    while !stop.is_cancelled() {
        for component in RUNNING {
            let text = std::fs::read(pods.path(component)).ok();
            let uid = text.map(|text| hexadecimal(&Sha256::digest(&text)[..16]));
            let ended = |pid: &u32| signalled.lock().unwrap().contains(pid);
            let is_same = |(old, pid): &(String, u32)| uid.as_ref() == Some(old) && !ended(pid);
            if running.get(&component).is_some_and(is_same) || (uid.is_none() && !running.contains_key(&component)) {
                continue;
            }
            if let Some((old, pid)) = running.remove(&component) {
                end(&root, pid, &old);
            }
            if let Some(uid) = uid {
                let ticks = if next < 102 { 1 } else { Mark::take().ticks() + 1 };
                start(&root, &folder, next, component, &uid, ticks);
                running.insert(component, (uid, next));
                next += 1;
            }
        }
        clock::sleep(Duration::from_millis(10)).await;
    }
}

fn moved(rotated: &Rotated, consumer: Consumer) -> &Moved {
    rotated.moves.iter().find(|moved| moved.consumer == consumer).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn who_reads_at_its_start_is_restarted_once_and_is_younger_then() {
    let running = Running::new().await;
    let before = RUNNING.map(|component| (running.pid(component), running.manifest(component)));
    let (options, stop) = (forced(Keys::New), CancellationToken::new());
    let rotated = running.run(&options, &stop).rotate(&mut Vec::new()).await.unwrap();
    for (component, (pid, manifest)) in RUNNING.iter().zip(before) {
        assert_ne!(running.pid(*component), pid);
        assert_eq!(running.manifest(*component), manifest, "the pod is the same");
    }
    let scheduler = moved(&rotated, Consumer::KubeScheduler);
    assert_eq!(scheduler.restart, Some(Reason::AtStart));
    assert_eq!(scheduler.proofs["scheduler"], Proof::StartedAfter);
    assert_eq!(moved(&rotated, Consumer::Etcd).proofs["etcd/server"], Proof::NotRunning);
    assert!(!running.bench.has_marker());
}

/// Nobody would start again what was ended.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_ended_where_no_kubelet_runs() {
    let running = Running::new().await;
    let before = RUNNING.map(|component| running.pid(component));
    let (options, stop) = (forced(Keys::New), CancellationToken::new());
    let run = Run {
        // Nobody listens there.
        kubelet_health: "127.0.0.1:1".parse().unwrap(),
        ..running.run(&options, &stop)
    };
    let error = run.rotate(&mut Vec::new()).await.unwrap_err();
    assert!(
        matches!(error, Error::NoKubelet { .. }) && !error.is_refusal(),
        "{error}"
    );
    assert_eq!(RUNNING.map(|component| running.pid(component)), before);
    let marker = rotation_incomplete::load(running.bench.layout()).unwrap().unwrap();
    assert!(marker.waiting.unwrap().contains("kube-scheduler"));
}

/// A minute is long for somebody who wants to stop, and for somebody who is not told what is waited for.
#[tokio::test(flavor = "multi_thread")]
async fn waiting_for_the_kubelet_is_told_and_can_be_stopped() {
    let running = Running::new().await;
    let stop = CancellationToken::new();
    let mut mover = running.mover(&stop, Vec::new());
    // Nobody listens there.
    mover.kubelet_health = "127.0.0.1:1".parse().unwrap();
    mover.patience.kubelet = Duration::from_secs(600);
    let mut told = StopsAt("waiting until it answers", stop.clone());
    let waited = tokio::time::timeout(Duration::from_secs(60), mover.until_the_kubelet_answers(&mut told)).await;
    assert!(matches!(waited, Ok(Err(Error::Stopped))), "{waited:?}");
    mover.kubelet_health = running.health;
    mover.until_the_kubelet_answers(&mut Vec::new()).await.unwrap();
}

/// Stops a run when it tells these words.
struct StopsAt<'a>(&'a str, CancellationToken);

impl Write for StopsAt<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if String::from_utf8_lossy(bytes).contains(self.0) {
            self.1.cancel();
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Stopped between two restarts: the next run restarts the other one, and nobody twice.
#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_was_stopped_is_finished_and_nobody_is_restarted_twice() {
    let running = Running::new().await;
    let (options, stop) = (forced(Keys::New), CancellationToken::new());
    let mut writer = StopsAt("kube-controller-manager: restarted", stop.clone());
    let error = running.run(&options, &stop).rotate(&mut writer).await.unwrap_err();
    assert!(matches!(error, Error::Stopped) && !error.is_refusal(), "{error}");
    let marker = rotation_incomplete::load(running.bench.layout()).unwrap().unwrap();
    let waiting = marker.waiting.unwrap();
    assert!(
        waiting.contains("kube-scheduler") && !waiting.contains("kube-controller-manager"),
        "{waiting:?}"
    );
    let [manager, scheduler] = RUNNING.map(|component| running.pid(component));
    let (options, stop) = (renewal(), CancellationToken::new());
    let rotated = running.run(&options, &stop).rotate(&mut Vec::new()).await.unwrap();
    assert!(rotated.reissued.is_empty());
    assert_eq!(running.pid(RUNNING[0]), manager);
    assert_ne!(running.pid(RUNNING[1]), scheduler);
    assert_eq!(moved(&rotated, Consumer::KubeControllerManager).restart, None);
    assert!(!running.bench.has_marker());
}

/// SIGKILL between the last write and the first restart: written is not loaded.
#[tokio::test(flavor = "multi_thread")]
async fn written_is_not_moved() {
    let running = Running::new().await;
    let all: BTreeSet<String> = running.bench.pairs().into_iter().collect();
    let mut marker = rotation_incomplete::Incomplete::new(OPERATION, false, all, clock::now());
    marker.written = Some(Moment::take());
    marker.save(running.bench.layout()).unwrap();
    let before = RUNNING.map(|component| running.pid(component));
    let (options, stop) = (renewal(), CancellationToken::new());
    running.run(&options, &stop).rotate(&mut Vec::new()).await.unwrap();
    let after = RUNNING.map(|component| running.pid(component));
    assert!(before.iter().zip(after).all(|(before, after)| *before != after));
    assert!(!running.bench.has_marker());
}

/// A listener that reads its pair at each handshake, or once.
async fn listener(bench: &Bench, reloads: bool) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let [certificate, key] = [bench.pki("apiserver.crt"), bench.pki("apiserver.key")];
    let config = move || {
        let chain = vec![CertificateDer::from_pem_file(&certificate).unwrap()];
        let key = PrivateKeyDer::from_pem_file(&key).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let config = builder.unwrap().with_no_client_auth().with_single_cert(chain, key);
        Arc::new(config.unwrap())
    };
    let once = config();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let config = if reloads { config() } else { Arc::clone(&once) };
            let _ = tokio_rustls::TlsAcceptor::from(config).accept(stream).await;
        }
    });
    address
}

#[tokio::test(flavor = "multi_thread")]
async fn a_listener_is_asked_and_not_believed() {
    for reloads in [true, false] {
        let running = Running::new().await;
        let bench = &running.bench;
        let address = listener(bench, reloads).await;
        let (options, stop) = (forced(Keys::New), CancellationToken::new());
        running.run(&options, &stop).rotate(&mut Vec::new()).await.unwrap();
        let mut entries = bench.machine.entries();
        for entry in &mut entries {
            entry.listeners.retain(|_| false);
            if entry.name == "apiserver" {
                entry.listeners.push(address);
            }
        }
        let mut mover = running.mover(&stop, entries);
        // The API server's own process has to be seen, or there is nobody who could serve anything.
        start(
            bench.openssl.path(),
            &bench.layout().kubelet_root(),
            50,
            Component::KubeApiserver,
            &"a".repeat(32),
            Mark::take().ticks() + 1000,
        );
        mover.pods = mover.pods.with_port(Component::KubeApiserver, address.port());
        let (expired, mut told) = (BTreeSet::new(), Vec::new());
        let limit = Duration::from_secs(60);
        let done = tokio::time::timeout(limit, mover.run(&expired, None, &mut told))
            .await
            .unwrap();
        let told = String::from_utf8(told).unwrap();
        if reloads {
            let done = done.unwrap();
            let server = done.iter().find(|one| one.consumer == Consumer::KubeApiserver).unwrap();
            assert_eq!(
                (server.restart, server.proofs["apiserver"]),
                (None, Proof::Serves),
                "{told}"
            );
        } else {
            done.unwrap_err();
            assert!(
                told.contains("kube-apiserver: restarting, it goes on serving the old certificate"),
                "{told}"
            );
            let marker = rotation_incomplete::load(bench.layout()).unwrap().unwrap();
            assert!(marker.waiting.unwrap().contains("kube-apiserver"));
        }
    }
}
