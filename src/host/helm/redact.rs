//! Texts without what is secret in them.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use secrecy::{ExposeSecret, SecretString};

/// A shorter one is in every text by chance, and hides nothing.
const SHORTEST: usize = 4;
const HIDDEN: &str = "[redacted]";

/// The text without any of the secrets: neither as they are, nor line by line, nor in base64, as Kubernetes shows them.
#[must_use]
pub fn redact(text: &str, secrets: &[SecretString]) -> String {
    let mut forms: Vec<String> = Vec::new();
    for secret in secrets {
        let whole = secret.expose_secret().trim();
        forms.push(STANDARD.encode(whole));
        forms.push(STANDARD.encode(secret.expose_secret()));
        forms.push(whole.to_owned());
        forms.extend(whole.lines().map(|line| line.trim().to_owned()));
        // What stands behind a name: an error quotes it alone.
        let values = whole
            .lines()
            .filter_map(|line| line.split_once(": "))
            .map(|(_, value)| value);
        forms.extend(values.map(|value| value.trim().trim_matches(['"', '\'']).to_owned()));
    }
    forms.retain(|form| form.len() >= SHORTEST);
    // The longer first, which may hold a shorter one.
    forms.sort_unstable_by_key(|form| std::cmp::Reverse(form.len()));
    forms
        .iter()
        .fold(text.to_owned(), |text, form| text.replace(form.as_str(), HIDDEN))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_form_of_a_secret_is_left() {
        let secrets = [
            "hunter2".into(),
            "user: admin\npassword: \"correct horse\"\nport: 80\n".into(),
        ];
        let hidden = |text: &str| redact(text, &secrets);
        assert_eq!(hidden("login with hunter2 failed"), "login with [redacted] failed");
        assert_eq!(
            hidden(&format!("data: {}", STANDARD.encode("hunter2"))),
            "data: [redacted]"
        );
        assert_eq!(hidden("line 2: password: \"correct horse\""), "line 2: [redacted]");
        assert_eq!(hidden("cannot use correct horse here"), "cannot use [redacted] here");
        assert_eq!(hidden("port 80 is taken"), "port 80 is taken");
        assert_eq!(redact("nothing", &["".into(), "no".into()]), "nothing");
    }
}
