//! A kubeconfig that holds all it needs, for a person who carries it away.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use zeroize::Zeroizing;

use crate::pki::key::SecretPem;

/// Whoever has a certificate of this group may do everything, past every binding, and it can never be taken back: there
/// are no revocation lists in Kubernetes.
pub const MASTERS: &str = "system:masters";

/// The kubeconfig of `user` on `server` (a URL) that trusts `authorities`, as YAML with one cluster, one user and one context
/// that is the current one. Certificates are PEM.
#[must_use]
pub fn render(
    server: &str,
    authorities: &str,
    user: &str,
    (certificate, key): (&str, &SecretPem),
) -> Zeroizing<String> {
    let (server, user, context) = (text(server), text(user), text(&format!("{user}@{CLUSTER}")));
    let key = Zeroizing::new(STANDARD.encode(key.expose()));
    Zeroizing::new(format!(
        "apiVersion: v1\nkind: Config\nclusters:\n- name: {CLUSTER}\n  cluster:\n    server: {server}\n    certificate-authority-data: {}\nusers:\n- name: {user}\n  user:\n    client-certificate-data: {}\n    client-key-data: {}\ncontexts:\n- name: {context}\n  context:\n    cluster: {CLUSTER}\n    user: {user}\ncurrent-context: {context}\n",
        STANDARD.encode(authorities),
        STANDARD.encode(certificate),
        *key,
    ))
}

/// What of a user or group cannot stand in a certificate that people are given.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SubjectRefusal {
    /// The one group that no binding limits.
    #[error(
        "no certificate is made for group {MASTERS}: it may do everything, no binding limits it, and it stays so until it ends, since a certificate cannot be revoked; take a group that a ClusterRoleBinding names, such as stratum:cluster-admins, which can be unbound"
    )]
    Masters,
    /// Empty, too long, or with something in it that no log shows.
    #[error("{0:?} is no name of a user or group: 1 to 64 characters without control characters or surrounding spaces")]
    Name(String),
}

/// Checks a user and the groups it shall be in.
///
/// # Errors
/// Names the first that is refused.
pub fn check_subject(user: &str, groups: &[String]) -> Result<(), SubjectRefusal> {
    for name in groups.iter().map(String::as_str).chain([user]) {
        // 64 is what a common name may have (RFC 5280, appendix A, ub-common-name and ub-organization-name).
        let fits = (1..=64).contains(&name.chars().count());
        if !fits || name.trim() != name || name.chars().any(char::is_control) {
            return Err(SubjectRefusal::Name(name.to_owned()));
        }
    }
    if groups.iter().any(|group| group == MASTERS) {
        return Err(SubjectRefusal::Masters);
    }
    Ok(())
}

const CLUSTER: &str = "stratum";

/// A string of JSON is one of YAML, whatever stands in it.
fn text(text: &str) -> Value {
    json!(text)
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::pki::authority::Authority;
    use crate::pki::key::{Key, KeyKind, Serial};
    use secrecy::ExposeSecret;

    #[test]
    fn kube_reads_what_was_rendered() {
        let key = Key::generate(KeyKind::default()).unwrap();
        let pem = key.to_pem();
        let authority = Authority::make("ca", key, Serial::random().unwrap(), Timestamp::UNIX_EPOCH).unwrap();
        let certificate = authority.certificate();
        let bundle = certificate.to_pem().repeat(2);
        let user = "jane: \"doe\" #1";
        let yaml = render("https://[::1]:6443", &bundle, user, (&certificate.to_pem(), &pem));
        let read = kube::config::Kubeconfig::from_yaml(&yaml).unwrap();
        assert_eq!(read.current_context.as_deref(), Some("jane: \"doe\" #1@stratum"));
        assert_eq!(read.contexts[0].name, "jane: \"doe\" #1@stratum");
        let context = read.contexts[0].context.clone().unwrap();
        assert_eq!(
            (context.cluster.as_str(), context.user.as_deref()),
            ("stratum", Some(user))
        );
        let cluster = read.clusters[0].cluster.clone().unwrap();
        assert_eq!(cluster.server.as_deref(), Some("https://[::1]:6443"));
        let data = |text: Option<String>| String::from_utf8(STANDARD.decode(text.unwrap()).unwrap()).unwrap();
        assert_eq!(data(cluster.certificate_authority_data), certificate.to_pem().repeat(2));
        assert_eq!(read.auth_infos[0].name, user);
        let found = read.auth_infos[0].auth_info.clone().unwrap();
        assert_eq!(data(found.client_certificate_data), certificate.to_pem());
        assert_eq!(
            data(found.client_key_data.map(|key| key.expose_secret().to_owned())),
            pem.expose()
        );
    }

    #[test]
    fn what_must_not_stand_in_a_certificate_is_refused() {
        let groups = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
        check_subject("jane", &groups(&["dev", "ops"])).unwrap();
        check_subject("jane", &[]).unwrap();
        let masters = check_subject("jane", &groups(&["dev", MASTERS])).unwrap_err();
        assert_eq!(masters, SubjectRefusal::Masters);
        let long = "x".repeat(65);
        for bad in ["", " ", " jane", "jane ", "a\nb", "a\0", &long] {
            let expected = Err(SubjectRefusal::Name(bad.to_owned()));
            assert_eq!(check_subject(bad, &[]), expected);
            assert_eq!(check_subject("jane", &groups(&[bad])), expected);
        }
    }
}
