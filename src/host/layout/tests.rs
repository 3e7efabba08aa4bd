//! The paths themselves, and which form a machine has.

use std::path::Path;

use strum::IntoEnumIterator;

use super::*;
use crate::host::atomic_file::{self, Access};

#[test]
fn paths_of_a_node_and_of_a_moved_root() {
    let paths = |layout: &Layout| {
        let kubeconfigs = Identity::iter().map(|identity| layout.kubeconfig(identity));
        let mut paths = vec![
            layout.config_file(),
            layout.manifests(),
            layout.state(),
            layout.pki(),
            layout.etcd_data(),
            layout.run(),
            layout.node_lock(),
            layout.node_state(),
            layout.static_pods(),
            layout.static_pod_files(),
            layout.payload(),
            layout.registries(),
            layout.containerd(),
            layout.containerd_socket(),
            layout.kubelet_config(),
            layout.kubelet_root(),
            layout.kubelet_pki(),
            layout.kubelet_client(),
            layout.coredns(),
            layout.control_socket(),
            layout.up_lock(),
            layout.fence_lock(),
            layout.logs(),
            layout.pod_logs(),
            layout.audit_logs(),
            layout.joining(),
            layout.claim_key(),
            layout.renewal_record(),
            layout.rotation_incomplete(),
            layout.kubelet_server(),
        ];
        paths.extend(kubeconfigs);
        paths
    };
    let expected = [
        "etc/stratum/config.yaml",
        "etc/stratum/manifests",
        "var/lib/stratum",
        "var/lib/stratum/pki",
        "var/lib/stratum/etcd",
        "run/stratum",
        "run/stratum/node.lock",
        "var/lib/stratum/node.yaml",
        "var/lib/stratum/static-pods",
        "var/lib/stratum/static-pod-files",
        "var/lib/stratum/payload",
        "etc/stratum/registries.yaml",
        "var/lib/stratum/containerd",
        "run/stratum/containerd/containerd.sock",
        "var/lib/stratum/kubelet/kubelet.conf",
        "var/lib/kubelet",
        "var/lib/kubelet/pki",
        "var/lib/kubelet/pki/kubelet-client-current.pem",
        "var/lib/stratum/coredns",
        "run/stratum/up.sock",
        "run/stratum/up.lock",
        "run/stratum/fence.lock",
        "var/log/stratum",
        "var/log/pods",
        "var/log/kubernetes/audit",
        "var/lib/stratum/joining",
        "var/lib/stratum/claim.key",
        "var/lib/stratum/renewal.json",
        "var/lib/stratum/rotation-incomplete.json",
        "var/lib/kubelet/pki/kubelet-server-current.pem",
        "var/lib/stratum/kubeconfig/admin.conf",
        "var/lib/stratum/kubeconfig/operator.conf",
        "var/lib/stratum/kubeconfig/deployer.conf",
        "var/lib/stratum/kubeconfig/controller-manager.conf",
        "var/lib/stratum/kubeconfig/scheduler.conf",
        "var/lib/stratum/kubeconfig/kubelet.conf",
    ];
    for (layout, root) in [(Layout::system(), "/"), (Layout::under("/tmp/x"), "/tmp/x")] {
        assert_eq!(layout.root(), Path::new(root));
        let expected: Vec<PathBuf> = expected.iter().map(|path| Path::new(root).join(path)).collect();
        assert_eq!(paths(&layout), expected);
    }
}

#[test]
fn paths_of_a_node_that_kubeadm_made() {
    let layout = Layout::kubeadm("/x");
    let paths = [
        (layout.pki(), "etc/kubernetes/pki"),
        (layout.static_pods(), "etc/kubernetes/manifests"),
        (layout.kubeconfig(Identity::Admin), "etc/kubernetes/admin.conf"),
        (layout.kubeconfig(Identity::Kubelet), "etc/kubernetes/kubelet.conf"),
        (layout.etcd_data(), "var/lib/etcd"),
        (layout.kubelet_config(), "var/lib/kubelet/config.yaml"),
        (
            layout.kubelet_client(),
            "var/lib/kubelet/pki/kubelet-client-current.pem",
        ),
        (layout.renewal_record(), "var/lib/stratum/renewal.json"),
        (layout.rotation_incomplete(), "var/lib/stratum/rotation-incomplete.json"),
        (layout.node_lock(), "run/stratum/node.lock"),
    ];
    for (path, expected) in paths {
        assert_eq!(path, Path::new("/x").join(expected));
    }
    assert_eq!(layout.clone().with_form(Form::Stratum), Layout::under("/x"));
    assert_eq!((layout.form(), Layout::system().form()), (Form::Kubeadm, Form::Stratum));
}

#[test]
fn a_machine_says_whose_it_is() {
    let with = |files: &[&str]| {
        let folder = tempfile::tempdir().unwrap();
        for file in files {
            let path = folder.path().join(file);
            atomic_file::create_folder(path.parent().unwrap(), Access::Public).unwrap();
            atomic_file::write(&path, b"", Access::Public).unwrap();
        }
        let found = Layout::detect(folder.path()).map(|layout| layout.form());
        found.map_err(|error| error.to_string().replace(&folder.path().display().to_string(), ""))
    };
    assert_eq!(with(&["var/lib/stratum/node.yaml"]), Ok(Form::Stratum));
    for file in ["manifests/kube-apiserver.yaml", "pki/ca.crt", "kubelet.conf"] {
        assert_eq!(with(&[&format!("etc/kubernetes/{file}")]), Ok(Form::Kubeadm), "{file}");
    }
    // What this program remembers of a node of kubeadm's does not make it its own.
    assert_eq!(
        with(&["var/lib/stratum/renewal.json", "etc/kubernetes/pki/ca.crt"]),
        Ok(Form::Kubeadm)
    );
    let both = with(&["var/lib/stratum/node.yaml", "etc/kubernetes/kubelet.conf"]).unwrap_err();
    assert!(both.contains("--layout"), "{both}");
    let none = with(&["etc/kubernetes/elsewhere"]).unwrap_err();
    assert!(none.contains("no node") && none.contains("/etc/kubernetes"), "{none}");
}
