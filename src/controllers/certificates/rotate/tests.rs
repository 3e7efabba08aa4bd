//! Rotations on files, with `openssl` as the judge, and cut off at every write.

mod cut;
mod kubeadm;
mod refused;
mod running;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::*;
use crate::host::atomic_file::Access;
use crate::host::certificates::fixtures::Openssl;
use crate::host::layout::{Identity, Layout};
use crate::host::node_state::{self, NodeState, examples};
use crate::pki::certificate::Certificate;
use crate::pki::key::KeyKind;

const DAY: SignedDuration = SignedDuration::from_hours(24);

/// A machine in a folder, on which nothing runs.
struct Bench {
    openssl: Openssl,
    machine: Machine,
}

fn forced(keys: Keys) -> Options {
    Options {
        if_expiring: None,
        keys,
        rekey_shared: false,
        offline: true,
        kube_vip_required: false,
        lock: NodeLock::Take,
        dry_run: false,
    }
}

/// As the renewal loop does it.
fn renewal() -> Options {
    Options {
        if_expiring: Some(DAY * 90),
        ..forced(Keys::Keep)
    }
}

impl Bench {
    fn controller() -> Self {
        Self::of(&examples::one_controller(), |_| {})
    }

    /// A node of this state, made after `before` has put files there.
    fn of(state: &NodeState, before: impl FnOnce(&Openssl)) -> Self {
        let openssl = Openssl::new();
        before(&openssl);
        let layout = Layout::under(openssl.path());
        atomic_file::create_folder(&layout.state(), Access::Secret).unwrap();
        node_state::save(&layout.node_state(), state).unwrap();
        node_pki::prepare(&layout, state, clock::now()).unwrap();
        node_pki::write_kubeconfigs(&layout, state).unwrap();
        let machine = Machine::load(layout).unwrap();
        Self { openssl, machine }
    }

    fn layout(&self) -> &Layout {
        &self.machine.layout
    }

    fn pki(&self, name: &str) -> PathBuf {
        self.layout().pki().join(name)
    }

    /// Static pods of a machine on which none runs.
    fn pods(&self) -> StaticPods {
        let proc = self.openssl.path().join("proc");
        let init = proc.join("1");
        atomic_file::create_folder(&init, Access::Public).unwrap();
        for (name, text) in [("cgroup", "0::/init.scope\n"), ("cmdline", "/sbin/init\0")] {
            atomic_file::write(&init.join(name), text.as_bytes(), Access::Public).unwrap();
        }
        let cgroups = self.openssl.path().join("cgroup");
        let send = |pid, signal| panic!("{signal:?} for process {pid} of a machine on which none runs");
        StaticPods::new(self.layout().clone(), Inputs::default()).with_kernel(proc, cgroups, send)
    }

    fn run<'a>(&'a self, options: &'a Options, stop: &'a CancellationToken) -> Run<'a> {
        Run {
            machine: &self.machine,
            pods: self.pods(),
            options,
            stop,
            patience: Patience {
                reload: Duration::from_millis(300),
                stop: Duration::from_secs(20),
                answer: Duration::from_secs(20),
                kubelet: Duration::from_millis(300),
            },
            // Nobody listens there.
            kubelet_health: "127.0.0.1:1".parse().unwrap(),
            ahead: SignedDuration::ZERO,
        }
    }

    async fn rotate(&self, options: &Options) -> Result<Rotated, Error> {
        self.rotate_at(options, SignedDuration::ZERO).await.0
    }

    async fn rotate_at(&self, options: &Options, ahead: SignedDuration) -> (Result<Rotated, Error>, String) {
        let stop = CancellationToken::new();
        let mut told = Vec::new();
        let run = Run {
            ahead,
            ..self.run(options, &stop)
        };
        let done = run.rotate(&mut told).await;
        (done, String::from_utf8(told).unwrap())
    }

    fn certificate(&self, name: &str) -> Certificate {
        Certificate::from_pem(&std::fs::read(self.pki(&format!("{name}.crt"))).unwrap()).unwrap()
    }

    /// The leaves in files of their own, without the kubelet's.
    fn pairs(&self) -> Vec<String> {
        let entries = self.machine.entries().into_iter();
        let ours = entries.filter(|entry| entry.role == crate::host::certificates::Role::Leaf);
        ours.map(|entry| entry.name).collect()
    }

    /// Content and inode of every file of the PKI folder.
    fn files(&self) -> BTreeMap<PathBuf, (Vec<u8>, u64)> {
        use std::os::unix::fs::MetadataExt;
        let mut found = BTreeMap::new();
        let mut folders = vec![self.layout().pki()];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                } else {
                    let inode = std::fs::metadata(&path).unwrap().ino();
                    found.insert(path.clone(), (std::fs::read(&path).unwrap(), inode));
                }
            }
        }
        found
    }

    /// `openssl` verifies every leaf against its signer, and finds the key of each beside it; nothing is left beside them.
    fn judge(&self, at: Option<i64>) {
        let at = at.map(|at| format!("-attime {at}")).unwrap_or_default();
        for entry in self.machine.entries() {
            let (Some(signer), crate::host::certificates::Store::Pair { certificate, key }) =
                (&entry.signer, &entry.store)
            else {
                continue;
            };
            if entry.role != crate::host::certificates::Role::Leaf {
                continue;
            }
            let signer = self
                .machine
                .entries()
                .into_iter()
                .find(|one| one.name == *signer)
                .unwrap();
            let signer = signer.store.certificate_file().to_owned();
            let (certificate, key) = (certificate.display(), key.display());
            self.openssl
                .run(&format!("verify {at} -CAfile {} {certificate}", signer.display()));
            let of_key = self.openssl.run(&format!("pkey -in {key} -pubout"));
            let of_certificate = self.openssl.run(&format!("x509 -in {certificate} -noout -pubkey"));
            assert_eq!(of_key, of_certificate, "{}", entry.name);
        }
        let left = self
            .files()
            .into_keys()
            .filter(|path| path.extension().is_some_and(|end| end == "tmp"));
        assert_eq!(left.collect::<Vec<_>>(), Vec::<PathBuf>::new());
    }

    fn has_marker(&self) -> bool {
        rotation_incomplete::incomplete_rotation(self.layout()).0
    }
}

fn names(rotated: &Rotated) -> BTreeSet<String> {
    rotated.reissued.iter().cloned().collect()
}

#[tokio::test]
async fn everything_is_made_anew_with_new_keys_and_new_names() {
    let mut bench = Bench::controller();
    let before = bench.files();
    let kubeconfig = |bench: &Bench| std::fs::read_to_string(bench.layout().kubeconfig(Identity::Admin)).unwrap();
    let admin = kubeconfig(&bench);
    // A name that was added since.
    let mut state = examples::one_controller();
    state.extra_names = vec!["new.example.org".to_owned(), "2001:db8::1".to_owned()];
    node_state::save(&bench.layout().node_state(), &state).unwrap();
    bench.machine = Machine::load(bench.layout().clone()).unwrap();
    let rotated = bench.rotate(&forced(Keys::New)).await.unwrap();
    assert_eq!(names(&rotated), bench.pairs().into_iter().collect());
    assert!(rotated.first_end.is_some() && rotated.idle.is_none());
    let after = bench.files();
    for (path, (bytes, _)) in &before {
        let is_leaf = bench
            .pairs()
            .iter()
            .any(|name| *path == bench.pki(&format!("{name}.crt")) || *path == bench.pki(&format!("{name}.key")));
        assert_eq!(after[path].0 != *bytes, is_leaf, "{}", path.display());
    }
    bench.judge(None);
    let said = bench.openssl.run(&format!(
        "x509 -in {} -noout -ext subjectAltName",
        bench.pki("apiserver.crt").display()
    ));
    assert!(
        said.contains("DNS:new.example.org") && said.contains("IP Address:2001:DB8:0:0:0:0:0:1"),
        "{said}"
    );
    assert_eq!(kubeconfig(&bench), admin, "the endpoint stays");
    assert!(!bench.has_marker());
    // Nothing runs here: whoever starts reads what is there.
    let proofs: BTreeSet<String> = rotated
        .moves
        .iter()
        .flat_map(|moved| moved.proofs.values().map(ToString::to_string))
        .collect();
    assert!(proofs.contains("does not run, reads it at its start"), "{proofs:?}");
    assert!(!proofs.contains("serves the new serial"), "{proofs:?}");
}

#[tokio::test]
async fn a_renewal_keeps_keys_and_does_nothing_before_it_is_due() {
    let bench = Bench::controller();
    let before = bench.files();
    let rotated = bench.rotate(&renewal()).await.unwrap();
    assert!(rotated.reissued.is_empty() && rotated.idle.unwrap().contains("no certificate is due"));
    assert_eq!(bench.files(), before);
    let (rotated, told) = bench.rotate_at(&renewal(), DAY * 280).await;
    assert_eq!(names(&rotated.unwrap()), bench.pairs().into_iter().collect());
    assert!(told.contains("apiserver: made anew, due"), "{told}");
    for (path, found) in bench.files() {
        let is_key = path.extension().is_some_and(|end| end == "key");
        assert_eq!(
            before[&path] == found,
            is_key
                || !bench
                    .pairs()
                    .iter()
                    .any(|name| path == bench.pki(&format!("{name}.crt"))),
            "{}",
            path.display()
        );
    }
}

#[tokio::test]
async fn a_dry_run_tells_everything_and_changes_nothing() {
    let bench = Bench::controller();
    let before = bench.files();
    let options = Options {
        dry_run: true,
        offline: false,
        ..forced(Keys::New)
    };
    let (rotated, told) = bench.rotate_at(&options, SignedDuration::ZERO).await;
    assert!(rotated.unwrap().reissued.is_empty());
    assert!(
        told.contains("etcd/peer: would be made anew (asked for), a new key"),
        "{told}"
    );
    assert!(
        told.contains("kube-scheduler: would be restarted: it reads its certificate at its start only"),
        "{told}"
    );
    assert!(told.contains("etcd: would not be restarted"), "{told}");
    assert_eq!(bench.files(), before);
    assert!(!bench.layout().run().exists() && !bench.has_marker());
}

/// Powered off past the end of everything: nobody answers, and nobody has to.
#[tokio::test]
async fn a_year_later_everything_is_expired_and_mended_without_a_cluster() {
    let bench = Bench::controller();
    let options = Options {
        offline: false,
        ..forced(Keys::New)
    };
    let (rotated, told) = bench.rotate_at(&options, DAY * 400).await;
    let mut expected: BTreeSet<String> = bench.pairs().into_iter().collect();
    expected.insert(KUBELET.to_owned());
    assert_eq!(
        names(&rotated.unwrap()),
        expected,
        "the kubelet cannot renew its own any more"
    );
    assert!(
        told.contains("the cluster fence is skipped: this node's own credential has expired"),
        "{told}"
    );
    assert!(told.contains("apiserver: made anew, expired"), "{told}");
    bench.judge(Some((clock::now() + DAY * 401).as_second()));
    let current = bench.layout().kubelet_client();
    assert!(current.is_symlink());
    let subject = bench
        .openssl
        .run(&format!("x509 -in {} -noout -subject", current.display()));
    assert!(subject.contains("system:node:alpha"), "{subject}");
}

const KUBELET: &str = crate::host::certificates::KUBELET_CLIENT;

/// Links are the administrator's: what they lead to changes, and they stay.
#[tokio::test]
async fn links_stay_links() {
    let bench = Bench::controller();
    let elsewhere = bench.openssl.path().join("elsewhere");
    std::fs::rename(bench.layout().pki(), &elsewhere).unwrap();
    std::os::unix::fs::symlink(&elsewhere, bench.layout().pki()).unwrap();
    let kept = bench.openssl.path().join("kept.crt");
    std::fs::rename(bench.pki("apiserver.crt"), &kept).unwrap();
    std::os::unix::fs::symlink(&kept, bench.pki("apiserver.crt")).unwrap();
    let before = std::fs::read(&kept).unwrap();
    bench.rotate(&forced(Keys::New)).await.unwrap();
    bench.judge(None);
    assert!(bench.layout().pki().is_symlink() && bench.pki("apiserver.crt").is_symlink());
    assert_ne!(std::fs::read(&kept).unwrap(), before);
}

/// A reader that polls a pair finds two that do not match for the time between two renames at most.
#[tokio::test(flavor = "multi_thread")]
async fn a_polling_reader_finds_pairs_that_match() {
    for keys in [Keys::Keep, Keys::New] {
        let bench = Bench::controller();
        let files = [bench.pki("apiserver.crt"), bench.pki("apiserver.key")];
        let ended = CancellationToken::new();
        let polling = {
            let ended = ended.clone();
            std::thread::spawn(move || {
                let (mut mixed_since, mut longest, mut seen) = (None, Duration::ZERO, 0_u32);
                while !ended.is_cancelled() {
                    let [certificate, key] = files.each_ref().map(|path| std::fs::read(path).unwrap());
                    let certificate = Certificate::from_pem(&certificate).unwrap();
                    let matches = Key::from_pem(&key).unwrap().public_key_der() == certificate.public_key_der();
                    let now = clock::monotonic();
                    if matches {
                        mixed_since = None;
                    } else {
                        seen += 1;
                        longest = longest.max(now.duration_since(*mixed_since.get_or_insert(now)));
                    }
                }
                (longest, seen)
            })
        };
        for _ in 0..5 {
            bench.rotate(&forced(keys)).await.unwrap();
        }
        ended.cancel();
        let (longest, seen) = polling.join().unwrap();
        assert!(longest < Duration::from_millis(250), "{longest:?}");
        assert!(keys == Keys::New || seen == 0, "a key that is kept always matches");
    }
}

fn put(path: &Path, bytes: &[u8]) {
    atomic_file::write(path, bytes, Access::Secret).unwrap();
}

#[tokio::test]
async fn rsa_keys_are_made_and_kinds_of_signers_do_not_matter() {
    for signer in [
        "-newkey rsa:4096",
        "-newkey ec -pkeyopt ec_paramgen_curve:P-384",
        "-subj /O=x/OU=one/OU=two/CN=ca",
    ] {
        let state = NodeState {
            keys: KeyKind::Rsa2048,
            ..examples::one_controller()
        };
        let bench = Bench::of(&state, |openssl| openssl.authority("var/lib/stratum/pki/ca", signer));
        bench.rotate(&forced(Keys::New)).await.unwrap();
        bench.judge(None);
        let text = bench.openssl.run(&format!(
            "x509 -in {} -noout -text",
            bench.pki("apiserver.crt").display()
        ));
        assert!(text.contains("Public-Key: (2048 bit)"), "{text}");
    }
}
