use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixListener;

use rustix::fs::Mode;
use tempfile::TempDir;

use super::walk::unreadable;
use super::*;

mod again;

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
    fn read(&self) -> Arc<Listing> {
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
    problem(&tree.read(), "s/io.yaml", "cannot be read");
    assert!(unreadable(&io::ErrorKind::PermissionDenied.into(), false).contains("may not be read"));
}

/// Root reads everything, so the reader is a process of another user: this very program, as nobody.
#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "only the standard library starts a child as another user"
)]
fn without_the_right_to_read_there_are_problems_and_no_absence() {
    use std::os::unix::process::CommandExt;
    let tree = Tree::new();
    for path in ["s/a.yaml", "s/secret.yaml", "closed/a.yaml", "s/closed/a.yaml"] {
        tree.write(path, "x");
    }
    symlink("closed/a.yaml", tree.at("s/behind.yaml")).unwrap();
    let mode = |path: &str, mode| fs::set_permissions(tree.at(path), fs::Permissions::from_mode(mode)).unwrap();
    mode("", 0o755);
    for path in ["s/secret.yaml", "closed", "s/closed"] {
        mode(path, 0o0);
    }
    let mut reader = std::process::Command::new("/proc/self/exe");
    reader
        .args(["--exact", "--ignored", "host::folder::tests::reads_without_rights"])
        .env("STRATUM_TEST_FOLDER", tree.at(""));
    if rustix::process::geteuid().is_root() {
        reader.uid(65534).gid(65534);
    }
    let output = reader.output().unwrap();
    for path in ["closed", "s/closed"] {
        mode(path, 0o755);
    }
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("1 passed"), "{output:?}");
}

#[test]
#[ignore = "the child of the test before"]
fn reads_without_rights() {
    let path = std::env::var_os("STRATUM_TEST_FOLDER").unwrap();
    let listing = Folder::new(path.into()).read().unwrap();
    assert_eq!(paths(&listing), ["s/a.yaml"]);
    assert_eq!(listing.stacks, ["closed", "s"]);
    for path in ["s/secret.yaml", "s/behind.yaml", "closed", "s/closed"] {
        problem(&listing, path, "may not be read");
    }
    assert_eq!(listing.problems.len(), 4);
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
fn folders_too_deep_and_links_without_end_are_problems() {
    let tree = Tree::new();
    let at = |depth: usize| format!("s{}", "/d".repeat(depth));
    tree.write(&format!("{}/a.yaml", at(31)), "deep")
        .write(&format!("{}/b.yaml", at(32)), "too deep");
    let listing = tree.read();
    assert_eq!(paths(&listing), [format!("{}/a.yaml", at(31))]);
    problem(&listing, &at(32), "more than 32 folders deep");

    let tree = Tree::new();
    for index in 0..1000 {
        File::create(tree.at(&format!("s/{index}"))).unwrap();
    }
    for index in 0..100 {
        symlink("s", tree.at(&format!("link{index}"))).unwrap();
    }
    let listing = tree.read();
    let ends = |problem: &FolderProblem| problem.message.contains("more than 100000 files");
    assert!(listing.problems.iter().any(ends), "{:?}", listing.problems);
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
