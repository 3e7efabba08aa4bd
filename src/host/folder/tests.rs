use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::time::{Duration, SystemTime};

use rustix::fs::Mode;
use tempfile::TempDir;

use super::walk::unreadable;
use super::*;

struct Tree(TempDir);

impl Tree {
    fn new() -> Self {
        let tree = Self(tempfile::tempdir().unwrap());
        fs::create_dir(tree.at("s")).unwrap();
        tree
    }
    fn at(&self, path: &str) -> PathBuf {
        self.0.path().join(path)
    }
    fn write(&self, path: &str, text: &str) -> &Self {
        use std::io::Write;
        fs::create_dir_all(self.at(path).parent().unwrap()).unwrap();
        File::create(self.at(path)).unwrap().write_all(text.as_bytes()).unwrap();
        self
    }
    fn read(&self) -> Listing {
        Folder::new(self.0.path().to_owned()).read().unwrap()
    }
}

fn paths(listing: &Listing) -> Vec<&str> {
    listing.files.iter().map(|f| f.path.as_str()).collect()
}

fn problem(listing: &Listing, path: &str, has: &str) {
    let found = listing
        .problems
        .iter()
        .find(|p| p.path == path)
        .unwrap_or_else(|| panic!("{path}: {listing:?}"));
    assert!(found.message.contains(has), "{found:?}");
    assert!(!paths(listing).contains(&path));
}

#[test]
fn files_stacks_and_what_is_ignored() {
    let tree = Tree::new();
    for path in ["loose.yaml", "s/a.yml", "s/sub/deep/b.json", "t/c.yaml"] {
        tree.write(path, path);
    }
    for path in [
        "s/.a.yaml",
        "s/a.yaml~",
        "s/a.txt",
        "s/a.YAML",
        ".hidden/a.yaml",
        "s/.a.yaml.swp",
        "s/yaml",
        "old~/a.yaml",
    ] {
        tree.write(path, "x");
    }
    fs::create_dir(tree.at("empty")).unwrap();
    let listing = tree.read();
    assert_eq!(
        paths(&listing),
        ["loose.yaml", "s/a.yml", "s/sub/deep/b.json", "t/c.yaml"]
    );
    assert_eq!(
        listing.files.iter().map(|f| f.stack.as_deref()).collect::<Vec<_>>(),
        [None, Some("s"), Some("s"), Some("t")]
    );
    assert_eq!(&*listing.files[2].bytes, b"s/sub/deep/b.json");
    assert_eq!(listing.stacks, ["empty", "s", "t"]);
    assert_eq!(listing.problems, []);
}

#[test]
fn no_folder_is_an_error() {
    let tree = Tree::new();
    let read = |path: &str| Folder::new(tree.at(path)).read().unwrap_err();
    assert!(matches!(read("none"), FolderError::Missing { .. }));
    tree.write("file", "x");
    assert!(matches!(read("file"), FolderError::NotAFolder { .. }));
    symlink("nowhere", tree.at("link")).unwrap();
    assert!(matches!(read("link"), FolderError::Missing { .. }));
}

#[test]
fn links_are_followed() {
    let (tree, other) = (Tree::new(), Tree::new());
    other.write("s/a.yaml", "a");
    symlink(other.at("s"), tree.at("linked")).unwrap();
    tree.write("s/..v1/b.yaml", "1").write("s/..v2/b.yaml", "2");
    symlink("..v1", tree.at("s/..data")).unwrap();
    symlink("..data/b.yaml", tree.at("s/b.yaml")).unwrap();
    let mut folder = Folder::new(tree.0.path().to_owned());
    let first = folder.read().unwrap();
    assert_eq!(paths(&first), ["linked/a.yaml", "s/b.yaml"]);
    assert_eq!(first.stacks, ["linked", "s"]);
    symlink("..v2", tree.at("s/..new")).unwrap();
    fs::rename(tree.at("s/..new"), tree.at("s/..data")).unwrap();
    let second = folder.read().unwrap();
    assert_eq!(&*second.files[1].bytes, b"2");
    assert_ne!(first.digest, second.digest);
}

#[test]
fn broken_links_and_loops_are_problems() {
    let tree = Tree::new();
    symlink("nowhere", tree.at("s/a.yaml")).unwrap();
    symlink("nowhere", tree.at("stack")).unwrap();
    symlink("b.yaml", tree.at("s/b.yaml")).unwrap();
    symlink("..", tree.at("s/up")).unwrap();
    symlink(".", tree.at("self")).unwrap();
    let listing = tree.read();
    problem(&listing, "s/a.yaml", "links to nothing");
    problem(&listing, "stack", "links to nothing");
    problem(&listing, "s/b.yaml", "circle");
    problem(&listing, "s/up", "folder it is in");
    problem(&listing, "self", "folder it is in");
}

#[test]
fn what_is_no_file_is_a_problem_and_never_blocks() {
    let tree = Tree::new();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        tree.at("s/fifo.yaml"),
        rustix::fs::FileType::Fifo,
        Mode::RUSR,
        0,
    )
    .unwrap();
    let _socket = UnixListener::bind(tree.at("s/socket.yaml")).unwrap();
    symlink("/dev/null", tree.at("s/device.yaml")).unwrap();
    fs::create_dir(tree.at("s/folder.yaml")).unwrap();
    fs::create_dir(tree.at("top.yaml")).unwrap();
    let listing = tree.read();
    for path in ["s/fifo.yaml", "s/socket.yaml", "s/device.yaml"] {
        problem(&listing, path, "pipe, a socket or a device");
    }
    problem(&listing, "s/folder.yaml", "folder with a file's ending");
    problem(&listing, "top.yaml", "folder with a file's ending");
    assert_eq!(listing.problems.len(), 5);
    assert_eq!(listing.problems[0].stack.as_deref(), Some("s"));
}

#[test]
fn unreadable_is_never_absent() {
    let tree = Tree::new();
    // Reading this process's memory at address 0 is an I/O error, for root as well.
    symlink("/proc/self/mem", tree.at("s/io.yaml")).unwrap();
    tree.write("s/secret.yaml", "x").write("closed/a.yaml", "x");
    fs::set_permissions(tree.at("s/secret.yaml"), fs::Permissions::from_mode(0o0)).unwrap();
    fs::set_permissions(tree.at("closed"), fs::Permissions::from_mode(0o0)).unwrap();
    let listing = tree.read();
    fs::set_permissions(tree.at("closed"), fs::Permissions::from_mode(0o700)).unwrap();
    problem(&listing, "s/io.yaml", "cannot be read");
    // Root reads everything; there is nothing to see then.
    if !rustix::process::geteuid().is_root() {
        problem(&listing, "s/secret.yaml", "may not be read");
        problem(&listing, "closed", "may not be read");
    }
    assert!(unreadable(&io::ErrorKind::PermissionDenied.into(), false).contains("may not be read"));
}

#[test]
fn names_and_sizes() {
    let tree = Tree::new();
    let bad = std::ffi::OsStr::from_bytes(b"s/\xff.yaml");
    File::create(tree.0.path().join(bad)).unwrap();
    tree.write("s/a\nb.yaml", "x");
    File::create(tree.at("s/big.yaml"))
        .unwrap()
        .set_len(MAX_FILE_BYTES + 1)
        .unwrap();
    File::create(tree.at("s/full.yaml"))
        .unwrap()
        .set_len(MAX_FILE_BYTES)
        .unwrap();
    let listing = tree.read();
    problem(&listing, "s/\u{fffd}.yaml", "rename");
    problem(&listing, "s/a\nb.yaml", "rename");
    problem(&listing, "s/big.yaml", "larger than 8 MiB");
    assert_eq!(paths(&listing), ["s/full.yaml"]);
}

#[test]
fn the_digest_covers_everything() {
    let tree = Tree::new();
    let mut seen = vec![tree.read().digest];
    let mut changed = |what: &str| {
        let digest = tree.read().digest;
        assert!(!seen.contains(&digest), "{what}");
        assert_eq!(digest, tree.read().digest, "{what}");
        seen.push(digest);
    };
    fs::create_dir(tree.at("t")).unwrap();
    changed("a stack");
    tree.write("t/a.yaml", "1");
    changed("a file");
    tree.write("t/a.yaml", "2");
    changed("its bytes");
    fs::rename(tree.at("t/a.yaml"), tree.at("t/b.yaml")).unwrap();
    changed("its name");
    symlink("nowhere", tree.at("t/c.yaml")).unwrap();
    changed("a problem");
    fs::rename(tree.at("t/c.yaml"), tree.at("t/d.yaml")).unwrap();
    changed("its place");
}

/// A rewrite that keeps size and modification time is seen; a settled file keeps its very bytes.
#[test]
fn the_cache_believes_only_settled_files() {
    let tree = Tree::new();
    tree.write("s/a.yaml", "1");
    let old = SystemTime::UNIX_EPOCH + Duration::from_secs(1);
    let set_old = || {
        File::options()
            .write(true)
            .open(tree.at("s/a.yaml"))
            .unwrap()
            .set_modified(old)
            .unwrap()
    };
    set_old();
    let mut folder = Folder::new(tree.0.path().to_owned());
    let first = folder.read().unwrap();
    tree.write("s/a.yaml", "2");
    set_old();
    let second = folder.read().unwrap();
    assert_eq!(
        (&*first.files[0].bytes, &*second.files[0].bytes),
        (&b"1"[..], &b"2"[..])
    );
    let third = folder.read().unwrap();
    assert!(
        !Arc::ptr_eq(&second.files[0].bytes, &third.files[0].bytes),
        "changed less than 2 s before it was read"
    );
    folder
        .cache
        .values_mut()
        .for_each(|c| c.read_at = c.read_at.checked_add(jiff::SignedDuration::from_secs(3)).unwrap());
    let fourth = folder.read().unwrap();
    assert!(Arc::ptr_eq(&third.files[0].bytes, &fourth.files[0].bytes));
}

#[test]
fn a_folder_made_again_is_another_one() {
    let tree = tempfile::tempdir().unwrap();
    let path = tree.path().join("m");
    let mut seen = std::collections::BTreeSet::new();
    // The file system gives a freed number out again at once, most of the time.
    for _ in 0..8 {
        fs::create_dir(&path).unwrap();
        let FolderIdentity { device, inode, born } = FolderIdentity::of(&path).unwrap();
        assert!(seen.insert((device, inode, born)), "{inode} {born:?}");
        fs::remove_dir(&path).unwrap();
    }
}
