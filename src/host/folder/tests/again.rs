//! A folder that is read again and again: what of it is believed without a look, and what never is.

use std::time::{Duration, SystemTime};

use super::*;

#[test]
fn the_digest_covers_everything() {
    let tree = Tree::new();
    let mut folder = Folder::new(tree.0.path().to_owned());
    let mut seen = vec![folder.read().unwrap().digest];
    let mut changed = |what: &str| {
        let listing = folder.read().unwrap();
        assert!(!seen.contains(&listing.digest), "{what}");
        assert_eq!(tree.read(), listing, "{what}: read anew");
        assert!(Arc::ptr_eq(&listing, &folder.read().unwrap()), "{what}");
        seen.push(listing.digest);
    };
    fs::create_dir(tree.at("t")).unwrap();
    changed("a stack");
    tree.write("t/a.yaml", "1");
    changed("a file");
    tree.write("t/a.yaml", "2");
    changed("its bytes");
    fs::rename(tree.at("t/a.yaml"), tree.at("t/b.yaml")).unwrap();
    changed("its name");
    fs::copy(tree.at("t/b.yaml"), tree.at("t/c.yaml")).unwrap();
    changed("a second file");
    fs::remove_file(tree.at("t/c.yaml")).unwrap();
    fs::rename(tree.at("t/b.yaml"), tree.at("t/c.yaml")).unwrap();
    changed("the first of two");
    symlink("nowhere", tree.at("t/d.yaml")).unwrap();
    changed("a problem");
    fs::rename(tree.at("t/d.yaml"), tree.at("t/e.yaml")).unwrap();
    changed("its place");
    fs::remove_file(tree.at("t/e.yaml")).unwrap();
    symlink("e.yaml", tree.at("t/e.yaml")).unwrap();
    changed("what is wrong with it");
}

#[test]
fn a_folder_put_in_its_place_is_another_listing() {
    let tree = Tree::new();
    fs::create_dir_all(tree.at("one/s")).unwrap();
    fs::create_dir_all(tree.at("two/s")).unwrap();
    symlink("one", tree.at("link")).unwrap();
    let mut folder = Folder::new(tree.at("link"));
    let one = folder.read().unwrap();
    fs::remove_file(tree.at("link")).unwrap();
    symlink("two", tree.at("link")).unwrap();
    let two = folder.read().unwrap();
    assert_ne!(one.identity, two.identity);
    assert_eq!(one.digest, two.digest, "wherever it is");
}

#[test]
fn a_folder_that_is_replaced_while_it_is_read_has_no_listing() {
    let tree = Tree::new();
    fs::create_dir_all(tree.at("m/s")).unwrap();
    fs::create_dir_all(tree.at("other")).unwrap();
    let mut folder = Folder::new(tree.at("m"));
    folder.read().unwrap();
    let replaced = folder.read_while(|| {
        fs::rename(tree.at("m"), tree.at("away")).unwrap();
        fs::rename(tree.at("other"), tree.at("m")).unwrap();
    });
    assert!(matches!(replaced, Err(FolderError::Replaced { .. })), "{replaced:?}");
    let gone = folder.read_while(|| fs::remove_dir(tree.at("m")).unwrap());
    assert!(matches!(gone, Err(FolderError::Missing { .. })), "{gone:?}");
}

/// As if the files had been read so long after they changed, whatever this machine took.
fn read_after(folder: &mut Folder, duration: jiff::SignedDuration) {
    for cached in folder.cache.values_mut() {
        cached.read_at = cached.stamp.changed_at() + duration;
    }
}

fn settle(folder: &mut Folder) {
    read_after(folder, jiff::SignedDuration::from_secs(3));
}

/// A rewrite that keeps size and modification time is seen; an unchanged file is opened only while it is young.
#[test]
fn only_settled_files_are_left_closed() {
    let tree = Tree::new();
    let write = |text: &str| {
        tree.write("s/a.yaml", text);
        let old = SystemTime::UNIX_EPOCH + Duration::from_secs(1);
        let file = File::options().write(true).open(tree.at("s/a.yaml")).unwrap();
        file.set_modified(old).unwrap();
    };
    write("1");
    let mut folder = Folder::new(tree.0.path().to_owned());
    let mut read = |settled: bool| {
        read_after(
            &mut folder,
            jiff::SignedDuration::from_secs(if settled { 3 } else { 1 }),
        );
        let listing = folder.read().unwrap();
        let text = String::from_utf8(listing.files[0].bytes.to_vec()).unwrap();
        (text, folder.opened, listing)
    };
    let first = read(false);
    assert_eq!((first.0.as_str(), first.1), ("1", 1));
    write("2");
    let second = read(false);
    assert_eq!((second.0.as_str(), second.1), ("2", 1));
    let third = read(false);
    assert_eq!(third.1, 1, "it changed less than 2 s before it was read");
    assert!(Arc::ptr_eq(&second.2, &third.2), "and holds the same bytes");
    let fourth = read(true);
    assert_eq!(fourth.1, 0);
    assert!(Arc::ptr_eq(&third.2, &fourth.2));
    write("3");
    let fifth = read(true);
    assert_eq!((fifth.0.as_str(), fifth.1), ("3", 1));
    write("3");
    let sixth = read(true);
    assert_eq!(sixth.1, 1, "the same bytes, written again");
    assert!(Arc::ptr_eq(&fifth.2, &sixth.2));
    fs::set_permissions(tree.at("s/a.yaml"), fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(read(true).1, 1, "who may read it is found out by opening");
}

/// A name that leads to another file, or to none, is never what it was.
#[test]
fn what_takes_the_place_of_a_settled_file_is_seen() {
    let tree = Tree::new();
    tree.write("s/a.yaml", "1").write("s/b.yaml", "2").write("s/c", "3");
    symlink("b.yaml", tree.at("s/link.yaml")).unwrap();
    let mut folder = Folder::new(tree.0.path().to_owned());
    folder.read().unwrap();
    settle(&mut folder);
    folder.read().unwrap();
    assert_eq!(folder.opened, 0);
    fs::rename(tree.at("s/c"), tree.at("s/a.yaml")).unwrap();
    fs::remove_file(tree.at("s/link.yaml")).unwrap();
    symlink("a.yaml", tree.at("s/link.yaml")).unwrap();
    let listing = folder.read().unwrap();
    assert_eq!(folder.opened, 2, "the third keeps its file");
    let texts: Vec<&[u8]> = listing.files.iter().map(|file| &*file.bytes).collect();
    assert_eq!(texts, [&b"3"[..], b"2", b"3"]);
    settle(&mut folder);
    fs::remove_file(tree.at("s/a.yaml")).unwrap();
    fs::create_dir(tree.at("s/a.yaml")).unwrap();
    let listing = folder.read().unwrap();
    assert_eq!(paths(&listing), ["s/b.yaml"]);
    problem(&listing, "s/a.yaml", "folder with a file's ending");
    problem(&listing, "s/link.yaml", "folder with a file's ending");
}
