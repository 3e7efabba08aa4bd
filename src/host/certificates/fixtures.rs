//! Files made by the `openssl` command, for tests of whoever reads certificates.
#![expect(
    clippy::disallowed_methods,
    reason = "the maker is a program, and these tests do not wait in async code"
)]

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use tempfile::TempDir;

use super::super::atomic_file::{self, Access};
use super::super::layout::Layout;

pub(crate) const EC: &str = "-newkey ec -pkeyopt ec_paramgen_curve:P-256";
pub(crate) const SERVER: &str = "-addext extendedKeyUsage=serverAuth";
pub(crate) const CLIENT: &str = "-addext extendedKeyUsage=clientAuth";
pub(crate) const BOTH: &str = "-addext extendedKeyUsage=serverAuth,clientAuth";

/// A folder to make files in.
pub(crate) struct Openssl(TempDir);

impl Openssl {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    /// Runs it with these arguments, split at spaces; what it says on standard output.
    pub(crate) fn run(&self, arguments: &str) -> String {
        let arguments = arguments.split(' ').filter(|word| !word.is_empty());
        let output = Command::new("openssl")
            .args(arguments)
            .current_dir(self.path())
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// `NAME.crt` and `NAME.key` of an authority.
    pub(crate) fn authority(&self, name: &str, more: &str) {
        self.folder_of(name);
        let usage = "-addext basicConstraints=critical,CA:TRUE -addext keyUsage=critical,keyCertSign,digitalSignature";
        let key = if more.contains("-newkey") || more.contains("-key ") {
            ""
        } else {
            EC
        };
        let keyout = if more.contains("-key ") {
            String::new()
        } else {
            format!("-keyout {name}.key")
        };
        let subject = if more.contains("-subj") {
            String::new()
        } else {
            format!("-subj /CN={}", name.replace('/', "."))
        };
        let days = if more.contains("-days") { "" } else { "-days 3650" };
        self.run(&format!(
            "req -x509 {key} -nodes {keyout} -out {name}.crt {subject} {days} {usage} {more}"
        ));
    }

    /// `NAME.crt` and `NAME.key`, signed by the authority `signer`.
    pub(crate) fn leaf(&self, name: &str, signer: &str, subject: &str, more: &str) {
        self.folder_of(name);
        let key = if more.contains("-newkey") || more.contains("-key ") {
            ""
        } else {
            EC
        };
        let keyout = if more.contains("-key ") {
            String::new()
        } else {
            format!("-keyout {name}.key")
        };
        let days = if more.contains("-days") { "" } else { "-days 365" };
        self.run(&format!(
            "req -x509 -CA {signer}.crt -CAkey {signer}.key {key} -nodes {keyout} -out {name}.crt -subj {subject} {days} \
             -addext basicConstraints=critical,CA:FALSE -addext keyUsage=critical,digitalSignature {more}"
        ));
    }

    /// A kubeconfig as kubeadm writes it, of the pair `pair` and the authority `signer`.
    pub(crate) fn kubeconfig(&self, name: &str, signer: &str, pair: &str) {
        let data = |file: String| STANDARD.encode(self.read(&file));
        let text = format!(
            "apiVersion: v1\nclusters:\n- cluster:\n    certificate-authority-data: {}\n    server: \
             https://10.0.0.1:6443\n  name: kubernetes\ncontexts:\n- context:\n    cluster: kubernetes\n    user: u\n  name: \
             c\ncurrent-context: c\nkind: Config\nusers:\n- name: u\n  user:\n    client-certificate-data: {}\n    \
             client-key-data: {}\n",
            data(format!("{signer}.crt")),
            data(format!("{pair}.crt")),
            data(format!("{pair}.key"))
        );
        self.write(name, text);
    }

    pub(crate) fn read(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.path().join(name)).unwrap()
    }

    pub(crate) fn text(&self, name: &str) -> String {
        String::from_utf8(self.read(name)).unwrap()
    }

    pub(crate) fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.folder_of(name);
        atomic_file::write(&path, bytes.as_ref(), Access::Secret).unwrap();
        path
    }

    pub(crate) fn remove(&self, name: &str) {
        assert!(atomic_file::remove(&self.path().join(name)).unwrap(), "{name}");
    }

    fn folder_of(&self, name: &str) -> PathBuf {
        let path = self.path().join(name);
        atomic_file::create_folder(path.parent().unwrap(), Access::Public).unwrap();
        path
    }

    pub(crate) fn kubeadm(&self) -> Layout {
        Layout::kubeadm(self.path())
    }

    /// Everything of a controller that kubeadm made, on address 10.0.0.1.
    pub(crate) fn kubeadm_controller() -> Self {
        let made = Self::new();
        let pki = "etc/kubernetes/pki";
        made.authority(&format!("{pki}/ca"), "-subj /CN=kubernetes");
        made.authority(&format!("{pki}/etcd/ca"), "-subj /CN=etcd-ca");
        made.authority(&format!("{pki}/front-proxy-ca"), "-subj /CN=front-proxy-ca");
        let root = format!("{pki}/ca");
        let etcd = format!("{pki}/etcd/ca");
        let names = "-addext subjectAltName=DNS:alpha,DNS:localhost,IP:127.0.0.1,IP:10.0.0.1";
        let leaf = |name: &str, signer: &str, subject: &str, more: &str| {
            made.leaf(&format!("{pki}/{name}"), signer, subject, more);
        };
        leaf("apiserver", &root, "/CN=kube-apiserver", &format!("{SERVER} {names}"));
        leaf(
            "apiserver-kubelet-client",
            &root,
            "/O=kubeadm:cluster-admins/CN=kube-apiserver-kubelet-client",
            CLIENT,
        );
        leaf("apiserver-etcd-client", &etcd, "/CN=kube-apiserver-etcd-client", CLIENT);
        leaf("etcd/server", &etcd, "/CN=alpha", &format!("{BOTH} {names}"));
        leaf("etcd/peer", &etcd, "/CN=alpha", &format!("{BOTH} {names}"));
        leaf(
            "etcd/healthcheck-client",
            &etcd,
            "/CN=kube-etcd-healthcheck-client",
            CLIENT,
        );
        leaf(
            "front-proxy-client",
            &format!("{pki}/front-proxy-ca"),
            "/CN=front-proxy-client",
            CLIENT,
        );
        for (name, subject) in [
            ("admin", "/O=kubeadm:cluster-admins/CN=kubernetes-admin"),
            ("super-admin", "/O=system:masters/CN=kubernetes-super-admin"),
            ("controller-manager", "/CN=system:kube-controller-manager"),
            ("scheduler", "/CN=system:kube-scheduler"),
        ] {
            made.leaf(&format!("made/{name}"), &root, subject, CLIENT);
            made.kubeconfig(&format!("etc/kubernetes/{name}.conf"), &root, &format!("made/{name}"));
        }
        made.kubelet(&root);
        made.manifest(
            "etcd",
            &[
                "--listen-client-urls=https://127.0.0.1:2379,https://10.0.0.1:2379",
                "--listen-peer-urls=https://10.0.0.1:2380",
            ],
        );
        made.manifest(
            "kube-apiserver",
            &["--advertise-address=10.0.0.1", "--secure-port=6443"],
        );
        made
    }

    /// What a kubelet of kubeadm's has, as a client and as a server.
    pub(crate) fn kubelet(&self, root: &str) {
        self.leaf("made/kubelet", root, "/O=system:nodes/CN=system:node:alpha", CLIENT);
        let both = format!("{}{}", self.text("made/kubelet.crt"), self.text("made/kubelet.key"));
        self.write("var/lib/kubelet/pki/kubelet-client-2026.pem", both);
        let link = self.path().join("var/lib/kubelet/pki/kubelet-client-current.pem");
        std::os::unix::fs::symlink("kubelet-client-2026.pem", &link).unwrap();
        let conf = self.path().join("etc/kubernetes/kubelet.conf");
        let ca = STANDARD.encode(self.read(&format!("{root}.crt")));
        let text = format!(
            "clusters:\n- cluster:\n    certificate-authority-data: {ca}\n    server: https://10.0.0.1:6443\n  name: k\n\
             contexts:\n- context:\n    cluster: k\n    user: u\n  name: c\ncurrent-context: c\nusers:\n- name: u\n  \
             user:\n    client-certificate: {0}\n    client-key: {0}\n",
            link.display()
        );
        self.write("etc/kubernetes/kubelet.conf", text);
        assert!(conf.exists());
        self.authority("made/kubelet-ca", "");
        self.leaf(
            "var/lib/kubelet/pki/kubelet",
            "made/kubelet-ca",
            "/CN=alpha@1",
            &format!("{SERVER} -addext subjectAltName=DNS:alpha"),
        );
    }

    /// A static pod with these arguments.
    pub(crate) fn manifest(&self, component: &str, arguments: &[&str]) {
        let mut text = format!("spec:\n  containers:\n  - name: {component}\n    command:\n    - {component}\n");
        for argument in arguments {
            let _ = writeln!(text, "    - {argument}");
        }
        self.write(&format!("etc/kubernetes/manifests/{component}.yaml"), text);
    }
}
