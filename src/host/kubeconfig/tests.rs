//! Kubeconfigs as kube reads them, and those of others.

use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;

use super::*;

#[test]
fn kube_reads_what_was_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("admin.conf");
    let kubeconfig = Kubeconfig {
        server: "https://127.0.0.1:6443".into(),
        user: "admin".into(),
        certificate_authority: "/pki/ca: #1.crt".into(),
        client_certificate: "/pki/admin.crt".into(),
        client_key: "/pki/admin.key".into(),
    };
    assert!(kubeconfig.write(&path).unwrap());
    assert!(!kubeconfig.write(&path).unwrap(), "an equal file is left alone");
    let mode = std::fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let read = kube::config::Kubeconfig::read_from(&path).unwrap();
    assert_eq!(read.current_context.as_deref(), Some("admin"));
    let context = read.contexts[0].context.as_ref().unwrap();
    assert_eq!(read.contexts[0].name, "admin");
    assert_eq!(context.user.as_deref(), Some("admin"));
    assert_eq!(context.cluster, read.clusters[0].name);
    let cluster = read.clusters[0].cluster.as_ref().unwrap();
    assert_eq!(cluster.server.as_deref(), Some("https://127.0.0.1:6443"));
    assert_eq!(cluster.certificate_authority.as_deref(), Some("/pki/ca: #1.crt"));
    assert_eq!(read.auth_infos[0].name, "admin");
    let user = read.auth_infos[0].auth_info.as_ref().unwrap();
    assert_eq!(user.client_certificate.as_deref(), Some("/pki/admin.crt"));
    assert_eq!(user.client_key.as_deref(), Some("/pki/admin.key"));
    let refused = |change: fn(&mut Kubeconfig)| {
        let mut other = kubeconfig.clone();
        change(&mut other);
        assert!(matches!(other.write(&path), Err(Error::Path { .. })), "{other:?}");
    };
    refused(|other| other.certificate_authority = "ca.crt".into());
    refused(|other| other.client_certificate = "admin.crt".into());
    refused(|other| other.client_key = "admin.key".into());
    refused(|other| other.client_key = std::ffi::OsStr::from_bytes(b"/pki/\xff.key").into());
}

/// As kubeadm writes one.
fn embedded(certificate: &str, key: &str) -> String {
    format!(
        "apiVersion: v1\nclusters:\n- cluster:\n    certificate-authority-data: Q0E=\n    server: https://[2001:db8::1]:6443\n  \
         name: kubernetes\ncontexts:\n- context:\n    cluster: kubernetes\n    user: kubernetes-admin\n  name: \
         kubernetes-admin@kubernetes\n- context:\n    cluster: kubernetes\n    user: somebody\n  name: other\n\
         current-context: kubernetes-admin@kubernetes\nkind: Config\nusers:\n# kept\n- name: somebody\n  user:\n    \
         token: secret\n- name: kubernetes-admin\n  user:\n    client-certificate-data: {certificate}\n    \
         client-key-data: {key}\n"
    )
}

fn view(text: &str) -> Result<View, Error> {
    View::parse(Path::new("/etc/kubernetes/admin.conf"), text)
}

#[test]
fn the_user_of_the_current_context_is_read() {
    let read = view(&embedded("Q0VSVA==", "S0VZ")).unwrap();
    assert_eq!(read.server.as_deref(), Some("https://[2001:db8::1]:6443"));
    assert_eq!(read.authorities.unwrap().read().unwrap().as_slice(), b"CA");
    assert_eq!(read.client_certificate.unwrap().read().unwrap().as_slice(), b"CERT");
    assert_eq!(read.client_key.unwrap().read().unwrap().as_slice(), b"KEY");
    // Data goes before a path; a path is seen from the kubeconfig's folder; base64 may be broken into lines.
    let named = embedded("Q0VSVA==", "S0VZ")
        .replace("    client-key-data: S0VZ", "    client-key: pki/a.key")
        .replace(
            "client-certificate-data: Q0VSVA==",
            "client-certificate: /x.crt\n    client-certificate-data: |\n      Q0V\n      SVA==",
        );
    let read = view(&named).unwrap();
    assert_eq!(read.client_certificate.unwrap().read().unwrap().as_slice(), b"CERT");
    assert_eq!(read.client_key, Some(Source::File("/etc/kubernetes/pki/a.key".into())));
    // Only one context needs no name.
    let one = view("contexts: [{name: a, context: {user: u}}]\nusers: [{name: u, user: {token: t}}]\n").unwrap();
    assert_eq!((one.client_certificate, one.server), (None, None));
}

#[test]
fn what_is_no_kubeconfig_is_told_without_its_content() {
    let long = embedded("Q0VSVA==", "hunter2!");
    for (text, expected) in [
        ("", "empty"),
        ("current-context: x\n", "context \"x\""),
        ("contexts: []\n", "current-context"),
        ("users: hunter2\n", "line 1"),
        ("a: [hunter2\n", "line"),
        (&*long, "client-key-data is not base64"),
        (
            &*embedded("Q0VSVA==", "S0VZ").replace("- name: kubernetes-admin", "- name: nobody"),
            "user \"kubernetes-admin\"",
        ),
    ] {
        let error = view(text).unwrap_err().to_string();
        assert!(
            error.contains(expected) && !error.contains("hunter2"),
            "{text}: {error}"
        );
    }
}

#[test]
fn a_pair_is_replaced_and_nothing_else_changes() {
    let path = Path::new("/etc/kubernetes/admin.conf");
    let old = embedded("Q0VSVA==", "S0VZ");
    let new = Client::Embedded {
        certificate: b"NEW\n",
        key: b"NEWKEY\n",
    };
    let text = with_client(path, &old, &new).unwrap();
    assert_eq!(*text, embedded("TkVXCg==", "TkVXS0VZCg=="), "comments, order and all");
    assert_eq!(
        with_client(path, &text, &new).unwrap(),
        text,
        "the same again changes nothing"
    );

    // The same text as somebody else's: only the current user's may change.
    let twins = old.replace("    token: secret", "    client-certificate-data: Q0VSVA==");
    let text = with_client(path, &twins, &new).unwrap();
    let read = kube::config::Kubeconfig::from_yaml(&text).unwrap();
    let data = |index: usize| {
        read.auth_infos[index]
            .auth_info
            .clone()
            .unwrap()
            .client_certificate_data
    };
    assert_eq!(
        (data(0).as_deref(), data(1).as_deref()),
        (Some("Q0VSVA=="), Some("TkVXCg=="))
    );

    // Paths instead of data, and data instead of paths: never both, for data would win.
    let files = Client::Files {
        certificate: Path::new("/var/lib/kubelet/pki/kubelet-client-current.pem"),
        key: Path::new("/var/lib/kubelet/pki/kubelet-client-current.pem"),
    };
    let text = with_client(path, &old, &files).unwrap();
    assert!(
        !text.contains("client-key-data") && text.contains("token: secret"),
        "{}",
        *text
    );
    let read = view(&text).unwrap();
    assert_eq!(read.client_key, read.client_certificate);
    assert_eq!(read.server.as_deref(), Some("https://[2001:db8::1]:6443"));
    let text = with_client(path, &text, &new).unwrap();
    assert!(!text.contains("kubelet-client-current"), "{}", *text);
    assert_eq!(
        view(&text).unwrap().client_key.unwrap().read().unwrap().as_slice(),
        b"NEWKEY\n"
    );
    assert!(matches!(
        with_client(
            path,
            &old,
            &Client::Files {
                certificate: Path::new("a.crt"),
                key: Path::new("/a")
            }
        ),
        Err(Error::Path { .. })
    ));
}

#[test]
fn a_link_stays_one_when_its_file_is_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let (file, link) = (folder.path().join("real.conf"), folder.path().join("admin.conf"));
    atomic_file::write(&file, embedded("Q0VSVA==", "S0VZ").as_bytes(), Access::Secret).unwrap();
    std::os::unix::fs::symlink("real.conf", &link).unwrap();
    let new = Client::Embedded {
        certificate: b"NEW",
        key: b"NEWKEY",
    };
    assert!(replace_client(&link, &new).unwrap());
    assert!(!replace_client(&link, &new).unwrap());
    assert!(link.is_symlink());
    let read = View::load(&file).unwrap().unwrap();
    assert_eq!(read.client_certificate.unwrap().read().unwrap().as_slice(), b"NEW");
    assert_eq!(View::load(&folder.path().join("other.conf")).unwrap(), None);
}
