//! The authorities on their way from one controller to another.

use super::*;

fn handed_over(node: &Node, state: &NodeState) -> Files {
    read_authorities(&node.layout, state, clock::now()).unwrap()
}

fn receive(node: &Node, files: &Files) -> Result<Received, Error> {
    let files = files.iter().map(|(name, content)| (name.as_str(), content.as_slice()));
    write_authorities(&node.layout, files, clock::now())
}

fn joining() -> NodeState {
    NodeState {
        node_name: "beta".to_owned(),
        addresses: vec!["10.0.0.2".parse().unwrap()],
        ..with_etcd(|etcd| etcd.initial_cluster_state = InitialClusterState::Existing)
    }
}

#[test]
fn a_joiner_has_the_same_authorities_and_trusts_the_same() {
    let first = Node::prepared(&controller());
    let wide = [first.file("ca.crt"), Node::prepared(&controller()).file("ca.crt")].concat();
    first.put(ROOT_BUNDLE, &wide);
    let files = handed_over(&first, &controller());
    let second = Node::new();
    let received = receive(&second, &files).unwrap();
    assert_eq!(received.etcd, EtcdAuthority::Own);
    assert_eq!(received.changed.len(), 13, "{:?}", received.changed);
    for (name, content) in &files {
        assert_eq!(second.file(name), **content, "{name}");
        let mode = std::fs::metadata(second.layout.pki().join(name))
            .unwrap()
            .permissions()
            .mode()
            & 0o777;
        assert_eq!(mode, if name.ends_with(".key") { 0o600 } else { 0o644 }, "{name}");
    }
    assert_eq!(second.file("sa.pub"), first.file("sa.pub"));
    assert_eq!(receive(&second, &files).unwrap().changed, Vec::<PathBuf>::new());
    second.prepare(&joining());
    second
        .certificate("apiserver")
        .check_issued_by(&first.certificate("ca"))
        .unwrap();
    assert_eq!(second.file(ROOT_BUNDLE), wide);
    // Half of it came before, and what is trusted here stays trusted.
    second.remove("ca.crt");
    second.remove("etcd/ca.key");
    let own = Node::prepared(&controller()).file("ca.crt");
    second.put(ROOT_BUNDLE, &own);
    let changed = receive(&second, &files).unwrap().changed;
    assert_eq!(changed.len(), 3, "{changed:?}");
    assert_eq!(second.file(ROOT_BUNDLE), [own, wide].concat());
}

#[test]
fn what_is_handed_over_says_whose_authority_etcd_is_under() {
    let state = with_etcd(|etcd| etcd.authority = EtcdAuthority::Root);
    let first = Node::prepared(&state);
    let received = receive(&Node::new(), &handed_over(&first, &state)).unwrap();
    assert_eq!(received.etcd, EtcdAuthority::Root);
}

#[test]
fn what_is_not_whole_is_refused_before_the_first_write() {
    let (first, other) = (Node::prepared(&controller()), Node::prepared(&controller()));
    let refused = |change: &dyn Fn(&mut Files), word: &str| {
        let mut files = handed_over(&first, &controller());
        change(&mut files);
        let node = Node::new();
        let error = receive(&node, &files).unwrap_err();
        assert!(node.everything().is_empty());
        let text = error.to_string();
        assert!(text.contains(word) && text.lines().count() == 1, "{text}");
    };
    for name in [
        "ca.crt",
        "ca.key",
        "etcd/ca.key",
        "front-proxy-ca.crt",
        "front-proxy-ca.key",
        "sa.key",
    ] {
        refused(&|files| drop(files.remove(name)), name);
        refused(
            &|files| drop(files.insert(name.into(), b"nothing".to_vec().into())),
            name.split('.').next().unwrap(),
        );
        refused(
            &|files| drop(files.insert(name.into(), first.file("admin.key").into())),
            if name == "sa.key" {
                "sa"
            } else {
                name.split('.').next().unwrap()
            },
        );
    }
    refused(
        &|files| drop(files.insert("ca.key".into(), other.file("ca.key").into())),
        "ca.crt",
    );
    refused(
        &|files| drop(files.insert("sa.pub".into(), other.file("sa.pub").into())),
        "sa.pub",
    );
    refused(
        &|files| drop(files.insert(ROOT_BUNDLE.into(), b"".to_vec().into())),
        ROOT_BUNDLE,
    );
    refused(
        &|files| drop(files.insert("surprise.crt".into(), first.file("ca.crt").into())),
        "surprise.crt",
    );
    // A leaf is no authority.
    refused(
        &|files| {
            files.insert("ca.crt".into(), first.file("admin.crt").into());
            files.insert("ca.key".into(), first.file("admin.key").into());
        },
        "ca.crt",
    );
    let late = clock::now() + SignedDuration::from_hours(24 * 3651);
    let files = handed_over(&first, &controller());
    let files = files.iter().map(|(name, content)| (name.as_str(), content.as_slice()));
    let error = write_authorities(&Node::new().layout, files, late).unwrap_err();
    assert!(matches!(error, Error::ReceivedOutOfDate { .. }), "{error}");
}

#[test]
fn another_clusters_files_are_never_replaced() {
    let (first, other) = (Node::prepared(&controller()), Node::prepared(&controller()));
    let files = handed_over(&first, &controller());
    for name in [
        "ca.crt",
        "ca.key",
        "etcd/ca.crt",
        "front-proxy-ca.key",
        "sa.key",
        "sa.pub",
    ] {
        let node = Node::new();
        atomic_file::create_folder(&node.layout.pki().join("etcd"), Access::Secret).unwrap();
        node.put(name, &other.file(name));
        let before = node.everything();
        let error = receive(&node, &files).unwrap_err();
        assert!(
            matches!(&error, Error::Other { path } if path.ends_with(name)),
            "{error}"
        );
        assert_eq!(node.everything(), before);
        node.put(name, b"damaged");
        receive(&node, &files).unwrap_err();
    }
}

#[test]
fn a_controller_that_lacks_something_hands_nothing_over() {
    for name in ["ca.key", "etcd/ca.crt", "sa.key"] {
        let node = Node::prepared(&controller());
        node.remove(name);
        let error = read_authorities(&node.layout, &controller(), clock::now()).unwrap_err();
        assert!(error.to_string().contains(name), "{error}");
    }
}
