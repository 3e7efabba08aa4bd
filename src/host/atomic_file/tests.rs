//! Files that are whole, before, during and after.

use zeroize::Zeroizing;

use super::*;

/// Whoever reads while it is written finds one whole content or the other, and never nothing.
#[test]
fn a_reader_never_finds_a_part() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    let content = |byte: u8| vec![byte; 100_000];
    write(&path, &content(b'a'), Access::Public).unwrap();
    let ended = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for byte in *b"bababababababababababababababa" {
                write(&path, &content(byte), Access::Public).unwrap();
            }
            ended.store(true, Ordering::Relaxed);
        });
        while !ended.load(Ordering::Relaxed) {
            let read = fs::read(&path).unwrap();
            assert!(read == content(b'a') || read == content(b'b'), "{} bytes", read.len());
        }
    });
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

#[test]
fn every_file_and_folder_gets_its_mode_and_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let modes = [
        (Access::Secret, 0o600, 0o700),
        (Access::Public, 0o644, 0o755),
        (Access::Executable, 0o755, 0o755),
    ];
    for (access, of_file, of_folder) in modes {
        let path = folder.path().join(format!("{access:?}/below/file"));
        let below = path.parent().unwrap();
        create_folder(below, access).unwrap();
        write(&path, b"x", access).unwrap();
        assert_eq!((mode(&path), mode(below)), (of_file, of_folder), "{access:?}");
        assert_eq!(mode(below.parent().unwrap()), of_folder, "{access:?}");
        create_folder(below, Access::Public).unwrap();
        assert_eq!(mode(below), of_folder, "a folder that exists keeps its mode");
    }
    let error = create_folder(&folder.path().join("Public/below/file/x"), Access::Public).unwrap_err();
    assert!(matches!(error, Error::CreateFolder { .. }), "{error}");
}

/// The temporary file is hidden from readers of the folder, and never one that somebody else has put there.
#[test]
fn a_temporary_file_is_hidden_and_made_anew() {
    let (one, two) = (temporary_name("a.yaml"), temporary_name("a.yaml"));
    assert!(one.starts_with('.') && one.contains(&std::process::id().to_string()) && one != two);
    let folder = tempfile::tempdir().unwrap();
    let (target, path) = (folder.path().join("target"), folder.path().join(one));
    write(&target, b"of another", Access::Public).unwrap();
    std::os::unix::fs::symlink(&target, &path).unwrap();
    fill_temporary(&path, Access::Secret, |file| file.write_all(b"ours")).unwrap();
    assert_eq!(fs::read(&target).unwrap(), b"of another");
    assert_eq!(fs::read(&path).unwrap(), b"ours");
    assert!(fs::symlink_metadata(&path).unwrap().is_file());
    assert_eq!(mode(&path), 0o600);
}

#[test]
fn a_bare_name_is_in_the_current_folder() {
    assert_eq!(folder_of(Path::new("file")), Path::new("."));
    assert_eq!(folder_of(Path::new("a/file")), Path::new("a"));
}

#[test]
fn replaces_content_and_mode_and_leaves_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ca.key");
    write(&path, b"old", Access::Public).unwrap();
    let reader = File::open(&path).unwrap();
    write(&path, b"new", Access::Secret).unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"new");
    let read = io::read_to_string(reader).unwrap();
    assert_eq!(read, "old", "who has the old file open keeps all of it");
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn an_equal_file_is_not_touched() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    assert!(write_if_changed(&path, b"one", Access::Public).unwrap());
    let before = fs::metadata(&path).unwrap();
    assert!(!write_if_changed(&path, b"one", Access::Public).unwrap());
    use std::os::unix::fs::MetadataExt;
    assert_eq!(before.ino(), fs::metadata(&path).unwrap().ino());
    assert!(write_if_changed(&path, b"two", Access::Public).unwrap());
    assert_eq!(fs::read(&path).unwrap(), b"two");
    // What cannot be compared is not overwritten.
    let error = write_if_changed(folder.path(), b"one", Access::Public).unwrap_err();
    assert!(matches!(error, Error::Compare { .. }), "{error}");
}

#[test]
fn a_failure_names_the_path_keeps_the_old_file_and_cleans_up() {
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("in-the-way");
    fs::create_dir_all(target.join("child")).unwrap();
    let error = write(&target, b"x", Access::Public).unwrap_err();
    assert_eq!(error.to_string(), format!("cannot write {}", target.display()));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    assert!(matches!(
        write(Path::new("/"), b"x", Access::Public),
        Err(Error::NoFileName { .. })
    ));
}

#[test]
fn removing_twice_is_fine() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    write(&path, b"x", Access::Public).unwrap();
    assert!(remove(&path).unwrap());
    assert!(!remove(&path).unwrap());
    assert!(matches!(remove(folder.path()), Err(Error::Remove { .. })));
}

/// Either every file is as asked for, or none has changed and nothing is left beside them.
#[test]
fn several_files_change_together_or_not_at_all() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let bytes = |name: &str, text: &str| NewFile {
        path: path(name),
        content: Content::Bytes(text.as_bytes().to_vec().into(), Access::Secret),
    };
    let link = || NewFile {
        path: path("current"),
        content: Content::Link("one".into()),
    };
    write_all(&[bytes("one", "1"), bytes("two", "2"), link()]).unwrap();
    assert_eq!(fs::read(path("current")).unwrap(), b"1");
    assert_eq!(fs::read_link(path("current")).unwrap(), Path::new("one"));
    assert_eq!(mode(&path("two")), 0o600);
    write_all(&[bytes("three", "3"), link()]).unwrap();
    let error = write_all(&[bytes("one", "changed"), bytes("none/four", "4")]).unwrap_err();
    assert!(
        matches!(&error, Error::Write { path, .. } if path.ends_with("none/four")),
        "{error}"
    );
    assert_eq!(fs::read(path("one")).unwrap(), b"1");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 4);
    let shown = format!("{:?}", bytes("one", "secret"));
    assert!(!shown.contains("secret") && shown.contains("6 bytes"), "{shown}");
}

#[test]
fn what_a_killed_writer_left_goes_with_the_next_write_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    // No process has such an id: the kernel's highest is 4194304.
    let dead = [".key.4194305-0.tmp", ".other.key.4194305-1.tmp"];
    let own = format!(".key.{}-77.tmp", std::process::id());
    let kept = [
        ".key.4194305.tmp",
        ".key.4194305-x.tmp",
        "key.4194305-0.tmp",
        ".key.x-1.tmp",
        &own,
    ];
    for name in dead.iter().chain(&kept) {
        fs::File::create(path(name)).unwrap();
    }
    write(&path("key"), b"x", Access::Secret).unwrap();
    assert!(
        !path(dead[0]).exists() && path(dead[1]).exists(),
        "only those of the same file"
    );
    let other = NewFile {
        path: path("other.key"),
        content: Content::Bytes(b"x".to_vec().into(), Access::Secret),
    };
    write_all(&[other]).unwrap();
    assert!(!path(dead[1]).exists());
    assert!(kept.iter().all(|name| path(name).exists()));
}

/// Until the renames nothing has changed, and what is given up leaves nothing.
#[test]
fn what_is_staged_has_changed_nothing_yet() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    write(&path("one"), b"old", Access::Secret).unwrap();
    let new = |name: &str| NewFile {
        path: path(name),
        content: Content::Bytes(b"new".to_vec().into(), Access::Secret),
    };
    let staged = stage_all(&[new("one"), new("two")]).unwrap();
    assert_eq!(fs::read(path("one")).unwrap(), b"old");
    assert!(!path("two").exists());
    drop(staged);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    // A rename that fails leaves no temporary file, and those before it are done.
    fs::create_dir_all(path("two/in-the-way")).unwrap();
    let error = stage_all(&[new("one"), new("two"), new("three")])
        .unwrap()
        .put_in_place();
    assert!(matches!(error, Err(Error::Write { path: named, .. }) if named == path("two")));
    assert_eq!(fs::read(path("one")).unwrap(), b"new");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
}

/// A component may run as another user, in a group that an administrator has chosen.
#[test]
fn what_replaces_a_file_has_its_owner_and_its_groups_rights() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("apiserver.key");
    let replace = |access| {
        let content = Content::Replacement(Zeroizing::new(b"new".to_vec()), access);
        let path = path.clone();
        write_all(&[NewFile { path, content }]).unwrap();
    };
    replace(Access::Secret);
    assert_eq!(mode(&path), 0o600, "none was there");
    // Only root can give files away.
    let owner = if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(&path, Some(1234), Some(2345)).unwrap();
        (1234, 2345)
    } else {
        let metadata = fs::metadata(&path).unwrap();
        (metadata.uid(), metadata.gid())
    };
    fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
    replace(Access::Secret);
    assert_eq!(mode(&path), 0o640, "what everybody could do with it is not taken over");
    let metadata = fs::metadata(&path).unwrap();
    assert_eq!((metadata.uid(), metadata.gid()), owner);
    replace(Access::Public);
    assert_eq!(mode(&path), 0o644);
}
