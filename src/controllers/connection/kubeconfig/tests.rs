use super::*;

fn read(text: &str) -> Result<Endpoint, KubeconfigError> {
    parse(Path::new("/etc/x/admin.conf"), text)
}

fn kubeconfig(cluster: &str, user: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{{name: c, context: {{cluster: k, user: u}}}}]\n\
         clusters: [{{name: k, cluster: {{{cluster}}}}}]\nusers: [{{name: u, user: {{{user}}}}}]\n"
    )
}

#[test]
fn files_are_beside_the_kubeconfig() {
    let endpoint = read(&kubeconfig(
        "server: 'https://[::1]:6443', certificate-authority: ca.crt",
        "client-certificate: /abs/op.crt, client-key: op.key",
    ))
    .unwrap();
    assert_eq!(endpoint.server_name, "::1");
    assert_eq!(endpoint.authority, Some(Source::File("/etc/x/ca.crt".into())));
    let (certificate, key) = endpoint.identity.unwrap();
    assert_eq!(certificate, Source::File("/abs/op.crt".into()));
    assert_eq!(key, Source::File("/etc/x/op.key".into()));
    assert_eq!(endpoint.namespace, "default");
}

#[test]
fn inline_data_wins_over_files_and_tokens_may_be_either() {
    let endpoint = read(&kubeconfig(
        "server: 'https://a:1', certificate-authority: ca.crt, certificate-authority-data: aGVsbG8=",
        "token: secret, tokenFile: t",
    ))
    .unwrap();
    let hello = |text: &str| Source::Inline(Zeroizing::new(text.as_bytes().to_vec()));
    assert_eq!(endpoint.authority, Some(hello("hello")));
    assert_eq!(endpoint.token, Some(hello("secret")));
    let endpoint = read(&kubeconfig("server: 'http://a:1'", "tokenFile: t")).unwrap();
    assert_eq!(endpoint.token, Some(Source::File("/etc/x/t".into())));
    assert_eq!(endpoint.authority, None);
}

#[test]
fn what_is_not_supported_is_refused_by_name() {
    let good = "server: 'https://a:1', certificate-authority: ca.crt";
    for (cluster, user, word) in [
        (good, "exec: {command: aws, apiVersion: v1}", "exec"),
        (good, "auth-provider: {name: gcp}", "auth-provider"),
        (good, "username: a, password: b", "username and password"),
        (good, "as: somebody", "impersonation"),
        (good, "client-certificate: a.crt", "client-key is missing"),
        (
            good,
            "client-certificate-data: '%%', client-key: k",
            "client-certificate-data is not valid",
        ),
        ("certificate-authority: ca.crt", "", "server is missing"),
        ("server: 'https://a:1'", "", "certificate-authority is missing"),
        ("server: 'a:1'", "", "server is not valid"),
        ("server: 'ftp://a'", "", "server is not valid"),
        (
            "server: 'https://a', insecure-skip-tls-verify: true",
            "",
            "insecure-skip-tls-verify",
        ),
        ("server: 'https://a', proxy-url: 'http://p'", "", "proxy-url"),
    ] {
        let error = read(&kubeconfig(cluster, user)).err().unwrap().to_string();
        assert!(error.contains(word), "{word}: {error}");
        assert!(error.contains("/etc/x/admin.conf"), "{error}");
    }
}

#[test]
fn a_context_must_be_clear_and_defined() {
    for (text, word) in [
        ("contexts: []", "no current-context"),
        ("current-context: x\ncontexts: []", "context \"x\""),
        ("contexts: [{name: c, context: {cluster: k}}]", "cluster \"k\""),
        ("current-context: [", "cannot be read: line 1, column "),
    ] {
        let error = read(text).err().unwrap().to_string();
        assert!(error.contains(word), "{word}: {error}");
    }
}

#[test]
fn what_stands_in_a_kubeconfig_that_cannot_be_read_is_not_told() {
    let whole = "users: [{name: u, user: {token: super-secret}}]\n";
    for (text, fault) in [
        (format!("{whole}contexts: ["), "line 2, column "),
        (whole.replace("super-secret", "\"super-secret"), "is no YAML"),
        (
            whole.replace("{token: super-secret}", "super-secret"),
            "not of the form",
        ),
        (whole.replace("super-secret", "[super-secret]"), "not of the form"),
        (
            whole.replace("[{name", "{super-secret: [], name").replace("}}]", "}}"),
            "not of the form",
        ),
    ] {
        let error = read(&text).err().unwrap();
        let told = format!("{error} {error:?} {}", crate::controllers::concern::chain(&error));
        assert!(told.contains(fault), "{fault}: {told}");
        assert!(!told.contains("super-secret") && !told.contains('\n'), "{told}");
    }
}
