//! Killed after each write, and disks on which nothing can be written: the same command again makes it whole.

use super::*;
use crate::host::atomic_file::{self, NewFile};

/// What a forced rotation would write.
fn writes(bench: &Bench) -> Vec<NewFile> {
    let observed = observe(&bench.machine, clock::now()).unwrap();
    let wish = Wish {
        within: None,
        keys: Keys::New,
    };
    let decision = reissue::decide(&observed.seen(), wish, clock::now());
    let kinds = issue::kinds(&bench.machine, &observed, &decision.reissue);
    let keys = pki_folder::new_keys(&kinds).unwrap();
    let issued = issue::issue(&bench.machine, &observed, &decision.reissue, keys, &[], clock::now());
    issued.unwrap().files
}

fn mark(bench: &Bench) {
    let all = bench.pairs().into_iter().collect();
    let marker = rotation_incomplete::Incomplete::new(OPERATION, false, all, clock::now());
    marker.save(bench.layout()).unwrap();
}

/// As SIGKILL leaves it after that many renames. The renewal, which keeps what is whole, mends it.
#[tokio::test]
async fn a_run_that_was_killed_after_any_write_is_finished_by_the_next() {
    let count = writes(&Bench::controller()).len();
    assert!(count >= 24, "{count}");
    for killed_after in 0..=count {
        let bench = Bench::controller();
        let files = writes(&bench);
        mark(&bench);
        atomic_file::write_all(&files[..killed_after]).unwrap();
        let rotated = bench.rotate(&renewal()).await.unwrap();
        // A key without its certificate yet, and nothing else.
        let mixed = killed_after % 2;
        assert_eq!(rotated.reissued.len(), mixed, "{killed_after}: {:?}", rotated.reissued);
        bench.judge(None);
        assert!(!bench.has_marker(), "{killed_after}");
        // Everybody counts as left, whoever it is.
        assert!(rotated.moves.len() >= 6, "{killed_after}: {:?}", rotated.moves);
    }
}

#[tokio::test]
async fn files_that_are_missing_or_make_no_sense_are_made_anew() {
    let bench = Bench::controller();
    for name in ["apiserver", "scheduler", "etcd/peer"] {
        put(&bench.pki(&format!("{name}.crt")), b"");
    }
    std::fs::remove_file(bench.pki("admin.key")).unwrap();
    std::fs::remove_file(bench.pki("operator.crt")).unwrap();
    put(&bench.pki("deployer.key"), b"\0\0\0");
    let kept = std::fs::read(bench.pki("scheduler.key")).unwrap();
    let rotated = bench.rotate(&renewal()).await.unwrap();
    let expected = ["apiserver", "scheduler", "etcd/peer", "admin", "operator", "deployer"];
    assert_eq!(names(&rotated), expected.map(str::to_owned).into());
    bench.judge(None);
    assert_eq!(
        std::fs::read(bench.pki("scheduler.key")).unwrap(),
        kept,
        "a key that is good stays"
    );
    assert!(bench.rotate(&renewal()).await.unwrap().reissued.is_empty());
}

/// Whoever started after an earlier run's files may be older than these.
#[tokio::test]
async fn an_old_moment_is_forgotten_while_new_files_are_written() {
    let bench = Bench::controller();
    let mut earlier = rotation_incomplete::Incomplete::new(OPERATION, false, BTreeSet::new(), clock::now());
    earlier.written = Some(Moment::take());
    earlier.save(bench.layout()).unwrap();
    // Nothing can be renamed over a folder: the run ends in the middle of its writes.
    let path = bench.pki("scheduler.crt");
    std::fs::remove_file(&path).unwrap();
    std::fs::create_dir(&path).unwrap();
    let error = bench.rotate(&forced(Keys::New)).await.unwrap_err();
    assert!(matches!(error, Error::Write(_)), "{error}");
    let marker = rotation_incomplete::load(bench.layout()).unwrap().unwrap();
    assert!(marker.written.is_none() && marker.leaves.len() > 5, "{marker:?}");
}

#[tokio::test]
async fn a_marker_that_cannot_be_read_stands_for_everybody() {
    let bench = Bench::controller();
    put(&rotation_incomplete::path(bench.layout()), b"{\"version\": 9}");
    let (rotated, _) = bench.rotate_at(&renewal(), SignedDuration::ZERO).await;
    let rotated = rotated.unwrap();
    assert!(
        rotated.reissued.is_empty() && rotated.moves.len() >= 6,
        "{:?}",
        rotated.moves
    );
    assert!(!bench.has_marker());
}

/// A small file system, mounted while this lives.
struct Mounted(PathBuf);

impl Mounted {
    fn on(path: &Path) -> Option<Self> {
        use rustix::mount::{MountFlags, mount};
        let options = c"size=400k,mode=700";
        mount("tmpfs", path, "tmpfs", MountFlags::empty(), options).ok()?;
        Some(Self(path.to_owned()))
    }

    fn read_only(&self) {
        use rustix::mount::{MountFlags, mount_remount};
        mount_remount(&self.0, MountFlags::RDONLY, c"").unwrap();
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(&self.0, rustix::mount::UnmountFlags::DETACH);
    }
}

#[tokio::test]
async fn a_full_disk_and_one_that_is_read_only_change_nothing() {
    if !rustix::process::geteuid().is_root() {
        // Nobody else may mount; the tests on real nodes, which are run as root, have a full disk as well.
        return;
    }
    let bench = Bench::controller();
    let elsewhere = bench.openssl.path().join("elsewhere");
    std::fs::rename(bench.layout().pki(), &elsewhere).unwrap();
    std::fs::create_dir(bench.layout().pki()).unwrap();
    let mounted = Mounted::on(&bench.layout().pki()).unwrap();
    std::fs::create_dir(bench.pki("etcd")).unwrap();
    for folder in ["", "etcd"] {
        for entry in std::fs::read_dir(elsewhere.join(folder)).unwrap() {
            let path = entry.unwrap().path();
            if path.is_file() {
                std::fs::copy(&path, bench.pki(folder).join(path.file_name().unwrap())).unwrap();
            }
        }
    }
    // Each file takes a page, and so many are free that the first few still fit.
    let mut filler = 0;
    while std::fs::copy(bench.pki("ca.crt"), bench.pki(&format!("filler-{filler}"))).is_ok() {
        filler += 1;
    }
    for number in 0..6.min(filler) {
        std::fs::remove_file(bench.pki(&format!("filler-{number}"))).unwrap();
    }
    let before = bench.files();
    let fails = async |words: &str| {
        let error = bench.rotate(&forced(Keys::New)).await.unwrap_err();
        let told = crate::controllers::concern::chain(&error);
        assert!(matches!(error, Error::Stage(_)) && told.contains(words), "{told}");
        assert!(told.starts_with("nothing was changed: cannot write"), "{told}");
        assert_eq!(bench.files(), before);
        assert!(!bench.has_marker(), "there is nothing to finish");
    };
    fails("No space left on device").await;
    mounted.read_only();
    fails("Read-only file system").await;
}
