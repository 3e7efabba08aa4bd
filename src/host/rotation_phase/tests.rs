//! Each row of a rotation, told from the files it leaves.

use super::super::atomic_file::{self, Access};
use super::super::{clock, node_pki, node_state};
use super::*;
use crate::pki::authority::Authority;
use crate::pki::key::{KeyKind, Serial};

struct Node {
    _folder: tempfile::TempDir,
    layout: Layout,
}

impl Node {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let layout = Layout::under(folder.path());
        let state = node_state::examples::one_controller();
        node_pki::prepare(&layout, &state, clock::now()).unwrap();
        Self {
            _folder: folder,
            layout,
        }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.layout.pki().join(name)
    }

    fn put(&self, name: &str, bytes: &[u8]) {
        let path = self.file(name);
        atomic_file::create_folder(path.parent().unwrap(), Access::Secret).unwrap();
        atomic_file::write(&path, bytes, Access::Secret).unwrap();
    }

    fn read(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.file(name)).unwrap()
    }

    fn phase(&self) -> String {
        rotation_phase(&self.layout).to_string()
    }

    fn detail(&self) -> String {
        rotation_detail(&self.layout).join("\n")
    }

    fn promote(&self) {
        for name in ["ca.crt", "ca.key"] {
            self.put(&format!("{name}.{BACKUP}"), &self.read(name));
            self.put(name, &self.read(&format!("rotation/r1/{name}")));
        }
    }

    fn bundle(&self, names: &[&str]) {
        let all: Vec<u8> = names.iter().flat_map(|name| self.read(name)).collect();
        self.put(ROOT_BUNDLE, &all);
    }

    /// A new root under the very subject of the old one: only DER tells them apart.
    fn stage(&self) {
        let key = Key::generate(KeyKind::EcdsaP256).unwrap();
        let made = Authority::make("kubernetes-ca", key, Serial::random().unwrap(), clock::now()).unwrap();
        self.put("rotation/r1/ca.crt", made.certificate().to_pem().as_bytes());
        self.put("rotation/r1/ca.key", made.key().to_pem().expose().as_bytes());
    }
}

#[test]
fn each_row_is_told_from_the_files() {
    let node = Node::new();
    assert_eq!((node.phase().as_str(), node.detail().as_str()), ("idle", ""));
    // Somebody's own authority in the bundle is no rotation.
    node.stage();
    node.bundle(&["ca.crt", "rotation/r1/ca.crt"]);
    std::fs::rename(node.file("rotation/r1"), node.file("kept")).unwrap();
    assert_eq!(node.phase(), "idle");
    std::fs::rename(node.file("kept"), node.file("rotation/r1")).unwrap();
    assert_eq!(node.phase(), "trust-new");
    node.bundle(&["ca.crt"]);
    assert_eq!(node.phase(), "staged");
    node.bundle(&["ca.crt", "rotation/r1/ca.crt"]);
    assert!(
        node.detail().contains("root CA: trust-new; its old pair is here"),
        "{}",
        node.detail()
    );
    node.promote();
    assert_eq!(node.phase(), "sign-new");
    let detail = node.detail();
    assert!(
        detail.contains("run r1") && detail.ends_with("this node can roll back"),
        "{detail}"
    );
    node.bundle(&["ca.crt"]);
    assert_eq!(node.phase(), "finalize");
    // What is staged was purged, and what was before was not.
    std::fs::remove_dir_all(node.file("rotation")).unwrap();
    assert_eq!(node.phase(), "finalize");
    node.bundle(&["ca.crt", "ca.crt.pre-carotate"]);
    assert_eq!(node.phase(), "sign-new");
    std::fs::remove_file(node.file("ca.crt.pre-carotate")).unwrap();
    std::fs::remove_file(node.file("ca.key.pre-carotate")).unwrap();
    assert_eq!(node.phase(), "idle");
}

#[test]
fn a_forced_one_and_one_without_its_old_key_cannot_go_back() {
    let node = Node::new();
    node.stage();
    node.bundle(&["ca.crt", "rotation/r1/ca.crt"]);
    node.promote();
    std::fs::remove_file(node.file("ca.key.pre-carotate")).unwrap();
    let detail = node.detail();
    assert!(
        detail.contains("a staged pair signs in its place") && detail.ends_with("this node cannot roll back"),
        "{detail}"
    );
    node.put("ca.key.pre-carotate", &node.read("ca.key"));
    assert!(node.detail().contains("is not the key of"), "{}", node.detail());
    node.put("rotation/r1/forced", b"");
    assert!(
        node.detail().contains("forced: it cannot be rolled back"),
        "{}",
        node.detail()
    );
}

#[test]
fn what_cannot_be_told_is_open() {
    let node = Node::new();
    std::fs::create_dir_all(node.file("rotation/r1")).unwrap();
    assert_eq!(node.phase(), "staged");
    node.put("rotation/r1/ca.crt", b"");
    assert_eq!(node.phase(), "unknown");
    std::fs::remove_dir_all(node.file("rotation")).unwrap();
    node.stage();
    std::fs::create_dir_all(node.file("rotation/r2")).unwrap();
    assert_eq!(node.phase(), "unknown");
    assert!(node.detail().contains("2 runs"), "{}", node.detail());
    std::fs::remove_dir_all(node.file("rotation")).unwrap();
    node.put("sa.key.pre-carotate", b"x");
    assert_eq!(node.phase(), "unknown");
}
