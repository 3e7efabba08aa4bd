//! Detached signatures with a shared secret: JSON Web Signatures (RFC 7515, compact form, appendix F) with HMAC-SHA-256
//! (RFC 7518, section 3.2), whose content is left out because it stands beside them.
//!
//! Byte for byte what Kubernetes writes into ConfigMap `cluster-info` (`cluster-bootstrap/token/jws`), so that either may
//! write it and neither undoes what the other wrote.

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::hmac;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

/// The signature of `content` under `secret`, saying that the key is `key_id`: header, nothing, signature, with dots in
/// between. `key_id` has to be plain text without quotes and backslashes, as a token's id is.
#[must_use]
pub fn detached(secret: &[u8], key_id: &str, content: &[u8]) -> String {
    let header = URL_SAFE_NO_PAD.encode(format!(r#"{{"alg":"HS256","kid":"{key_id}"}}"#));
    let mut context = hmac::Context::with_key(&hmac::Key::new(hmac::HMAC_SHA256, secret));
    context.update(header.as_bytes());
    context.update(b".");
    context.update(URL_SAFE_NO_PAD.encode(content).as_bytes());
    format!("{header}..{}", URL_SAFE_NO_PAD.encode(context.sign()))
}

/// Whether `signature` is exactly the one of `content`. How long it takes does not depend on where they differ.
#[must_use]
pub fn is_valid(signature: &str, secret: &[u8], key_id: &str, content: &[u8]) -> bool {
    let expected = detached(secret, key_id, content);
    verify_slices_are_equal(expected.as_bytes(), signature.as_bytes()).is_ok()
}

/// Which key a signature says it was made with; none when it is no signature. Says nothing about whether it is valid.
#[must_use]
pub fn key_id(signature: &str) -> Option<String> {
    let (header, _) = signature.split_once("..")?;
    let header: serde_json::Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(header).ok()?).ok()?;
    Some(header.get("kid")?.as_str()?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONTENT: &[u8] = b"apiVersion: v1\nkind: Config\n";
    const SECRET: &[u8] = b"0123456789abcdef";

    /// Made with `openssl dgst -sha256 -hmac 0123456789abcdef -binary`, and `openssl base64` with `+/=` turned into `-_` and
    /// nothing, over the two encoded parts with a dot in between.
    #[test]
    fn it_is_what_openssl_makes() {
        assert_eq!(
            detached(SECRET, "abcdef", CONTENT),
            "eyJhbGciOiJIUzI1NiIsImtpZCI6ImFiY2RlZiJ9..vH_kT4yiol-nrAWgjfCYqvum5wsKETXe0S7OOp1VgnE"
        );
    }

    #[test]
    fn every_part_counts() {
        let signature = detached(SECRET, "abcdef", CONTENT);
        assert!(is_valid(&signature, SECRET, "abcdef", CONTENT));
        assert!(!is_valid(&signature, b"0123456789abcdeg", "abcdef", CONTENT));
        assert!(!is_valid(&signature, SECRET, "abcdeg", CONTENT));
        assert!(!is_valid(&signature, SECRET, "abcdef", &CONTENT[1..]));
        for length in 0..signature.len() {
            assert!(
                !is_valid(&signature[..length], SECRET, "abcdef", CONTENT),
                "{length} bytes of it"
            );
        }
        assert!(!is_valid(&format!("{signature}="), SECRET, "abcdef", CONTENT));
    }

    #[test]
    fn it_says_which_key_made_it() {
        let signature = detached(SECRET, "abcdef", CONTENT);
        assert_eq!(key_id(&signature).as_deref(), Some("abcdef"));
        for none in ["", "..", "abc", "e30..x", "bnVsbA..", "not base64..x"] {
            assert_eq!(key_id(none), None, "{none}");
        }
    }
}
