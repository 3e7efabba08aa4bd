//! Kubeconfigs, the trust of a worker, and subjects of other releases.

use super::super::kubeconfigs::server;
use super::*;

#[test]
fn controllers_have_six_kubeconfigs_that_name_files() {
    let node = Node::prepared(&controller());
    let written = write_kubeconfigs(&node.layout, &controller()).unwrap();
    assert_eq!(written.len(), 6);
    assert_eq!(
        write_kubeconfigs(&node.layout, &controller()).unwrap(),
        Vec::<PathBuf>::new()
    );
    for (identity, kubeconfig) in kubeconfigs(&node.layout, &controller()) {
        assert_eq!(kubeconfig.server, "https://127.0.0.1:6443");
        assert_eq!(kubeconfig.certificate_authority, node.layout.pki().join(ROOT_BUNDLE));
        // What is named exists, and is of whom the file says.
        let pem = std::fs::read(&kubeconfig.client_certificate).unwrap();
        let certificate = kubelet_client::certificate(&pem).unwrap();
        let key = Key::from_pem(&std::fs::read(&kubeconfig.client_key).unwrap()).unwrap();
        assert_eq!(certificate.public_key_der(), key.public_key_der(), "{identity:?}");
        let expected = subject(identity, "Alpha");
        assert_eq!(
            certificate.details().common_name.as_deref(),
            Some(expected.common_name.as_str())
        );
        assert!(written.contains(&node.layout.kubeconfig(identity)));
    }
    let kubelet = std::fs::read_to_string(node.layout.kubeconfig(Identity::Kubelet)).unwrap();
    assert_eq!(kubelet.matches("kubelet-client-current.pem").count(), 2, "{kubelet}");
}

#[test]
fn a_worker_has_its_kubelets_alone() {
    let node = Node::new();
    let written = write_kubeconfigs(&node.layout, &worker()).unwrap();
    assert_eq!(written, [node.layout.kubeconfig(Identity::Kubelet)]);
    let read = kube::config::Kubeconfig::read_from(&written[0]).unwrap();
    let cluster = read.clusters[0].cluster.as_ref().unwrap();
    assert_eq!(cluster.server.as_deref(), Some("https://API.example.org.:6443"));
}

#[test]
fn whom_a_node_asks() {
    let with = |address: &str, state: NodeState| NodeState {
        addresses: vec![address.parse().unwrap()],
        ..state
    };
    assert_eq!(server(&with("10.0.0.1", controller())), "https://127.0.0.1:6443");
    assert_eq!(server(&with("fd00::1", controller())), "https://[::1]:6443");
    assert_eq!(server(&with("fd00::1", worker())), "https://API.example.org.:6443");
    let six = NodeState {
        endpoint: Endpoint {
            host: "fd00::9".to_owned(),
            port: 443,
        },
        ..worker()
    };
    assert_eq!(server(&six), "https://[fd00::9]:443");
}

#[test]
fn a_worker_trusts_what_its_cluster_told() {
    let (node, one, two) = (
        Node::new(),
        Node::prepared(&controller()),
        Node::prepared(&controller()),
    );
    let trust = |pem: &[u8]| write_trust(&node.layout, pem, clock::now());
    let both = [one.file("ca.crt"), two.file("ca.crt")].concat();
    assert!(trust(&both).unwrap());
    assert_eq!(node.file(ROOT_BUNDLE), both.as_slice()[..].to_vec().as_slice());
    let other_order = [two.file("ca.crt"), one.file("ca.crt"), one.file("ca.crt")].concat();
    assert!(!trust(&other_order).unwrap(), "the same certificates");
    assert!(trust(&two.file("ca.crt")).unwrap());
    assert_eq!(node.file(ROOT_BUNDLE), two.file("ca.crt"));
    for nothing in [&b""[..], b"text", &one.file("ca.key")] {
        trust(nothing).unwrap_err();
    }
    assert_eq!(node.file(ROOT_BUNDLE), two.file("ca.crt"));
}

#[test]
fn a_subject_of_another_release_is_issued_anew() {
    let node = Node::prepared(&controller());
    let now = clock::now();
    let reissue = |name: &str, subject: Subject| {
        let key = Key::from_pem(&node.file(&format!("{name}.key"))).unwrap();
        let request = Request::client(subject);
        let certificate = issue(&node.authority("ca"), &request, &key, Serial::random().unwrap(), now).unwrap();
        node.put(&format!("{name}.crt"), certificate.to_pem().as_bytes());
    };
    reissue("admin", Subject::user("stratum:admin").in_group("system:masters"));
    reissue("operator", Subject::user("stratum:operators"));
    reissue("deployer", subject(Identity::Deployer, "").in_group("system:masters"));
    node.remove("operator.crt");
    assert_eq!(
        node.prepare(&controller()),
        ["admin.crt", "operator.crt", "deployer.crt"]
    );
    assert_eq!(node.prepare(&controller()), [""; 0], "it was done");
}
