//! Pins: which authority a joining machine has to find, told to it by a way that nobody in between can change.
//!
//! Of kubeadm's form: `sha256:` and the hexadecimal SHA-256 of the DER `SubjectPublicKeyInfo` (RFC 7469, section 2.4). It is
//! the key that is pinned, so a renewed certificate of the same key keeps its pin.

use std::fmt;
use std::str::FromStr;

use sha2::{Digest, Sha256};

use super::certificate::Certificate;
use super::hexadecimal;

const PREFIX: &str = "sha256:";
const DIGITS: usize = 64;

/// The pin of one public key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pin([u8; DIGITS / 2]);

/// A text that is no pin.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotAPin {
    /// Another kind of hash, or none.
    #[error("{0:?} is no hash of a CA: it begins with {PREFIX:?}, as 'stratum token create' prints it")]
    Kind(String),
    /// Too short, too long, or no digits.
    #[error("{0:?} is no hash of a CA: behind {PREFIX:?} stand {DIGITS} hexadecimal digits, copy all of them")]
    Digits(String),
}

impl Pin {
    /// The pin of a certificate's key.
    #[must_use]
    pub fn of(certificate: &Certificate) -> Self {
        Self(Sha256::digest(certificate.public_key_der()).into())
    }
}

/// The pins of all keys in a bundle, in its order, each once.
#[must_use]
pub fn pins(bundle: &[Certificate]) -> Vec<Pin> {
    let mut pins: Vec<Pin> = Vec::new();
    for pin in bundle.iter().map(Pin::of) {
        if !pins.contains(&pin) {
            pins.push(pin);
        }
    }
    pins
}

/// The certificates of a bundle whose key is pinned, whatever the order of either. Empty when no pin fits.
#[must_use]
pub fn pinned(bundle: &[Certificate], pins: &[Pin]) -> Vec<Certificate> {
    let fits = |certificate: &&Certificate| pins.contains(&Pin::of(certificate));
    bundle.iter().filter(fits).cloned().collect()
}

impl FromStr for Pin {
    type Err = NotAPin;

    fn from_str(text: &str) -> Result<Self, NotAPin> {
        let Some(digits) = text.strip_prefix(PREFIX) else {
            return Err(NotAPin::Kind(text.to_owned()));
        };
        let refused = || NotAPin::Digits(text.to_owned());
        if digits.chars().count() != DIGITS {
            return Err(refused());
        }
        let mut bytes = [0; DIGITS / 2];
        for (index, digit) in digits.chars().enumerate() {
            let value = digit.to_digit(16).and_then(|value| u8::try_from(value).ok());
            bytes[index / 2] = bytes[index / 2] << 4 | value.ok_or_else(refused)?;
        }
        Ok(Self(bytes))
    }
}

impl fmt::Display for Pin {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{PREFIX}{}", hexadecimal(&self.0))
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::pki::authority::Authority;
    use crate::pki::key::{Key, KeyKind, Serial};

    fn authority() -> Certificate {
        let key = Key::generate(KeyKind::default()).unwrap();
        let authority = Authority::make("ca", key, Serial::random().unwrap(), Timestamp::UNIX_EPOCH);
        authority.unwrap().certificate().clone()
    }

    /// Made with `openssl x509 -pubkey -noout | openssl pkey -pubin -outform der | openssl dgst -sha256 -hex`, which is
    /// what kubeadm's manual says to do.
    #[test]
    fn it_is_what_openssl_makes() {
        let pem = "-----BEGIN CERTIFICATE-----\n\
                   MIIBfzCCASWgAwIBAgIUev4kNj8R/mI+OVbuEKi7j2HMsdUwCgYIKoZIzj0EAwIw\n\
                   DTELMAkGA1UEAwwCY2EwHhcNMjYxMTMwMTUwNjQ1WhcNMzYxMTI3MTUwNjQ1WjAN\n\
                   MQswCQYDVQQDDAJjYTBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABFZQ2KcDQGhp\n\
                   EHT/vTtzgnlUklc9jc9of3ativqVDd75wALJvszdZ1hIueB7Qo+VpEN54rWtKLwq\n\
                   t+5UzHPrW8WjYzBhMB0GA1UdDgQWBBROVl2V6MEYN6xhdOq5l5lGxc1jxDAfBgNV\n\
                   HSMEGDAWgBROVl2V6MEYN6xhdOq5l5lGxc1jxDAPBgNVHRMBAf8EBTADAQH/MA4G\n\
                   A1UdDwEB/wQEAwICBDAKBggqhkjOPQQDAgNIADBFAiEAyomwfNYsyZwGvCDuIkWs\n\
                   gqxsQrWxlfvyUw/GmoeDpN8CIHC7ZkRMsIEkpIY+0iojuSULZuHnO5lk7Az5g15q\n\
                   2EIg\n\
                   -----END CERTIFICATE-----\n";
        let certificate = Certificate::from_pem(pem.as_bytes()).unwrap();
        assert_eq!(
            Pin::of(&certificate).to_string(),
            "sha256:59f3a4119868e33fa44d0616e401941ce6d683ea44a0f7b48130f02a0837451d"
        );
    }

    #[test]
    fn a_pin_reads_back_in_either_case_and_nothing_else_does() {
        let text = format!("sha256:{}", "0123456789abcdef".repeat(4));
        let pin: Pin = text.parse().unwrap();
        assert_eq!(pin.to_string(), text);
        let upper = text.to_uppercase().replace("SHA256", "sha256");
        assert_eq!(upper.parse::<Pin>().unwrap(), pin);
        let digits = &text["sha256:".len()..];
        for kind in ["", digits, "SHA256:00", "md5:00"] {
            assert_eq!(kind.parse::<Pin>(), Err(NotAPin::Kind(kind.to_owned())));
        }
        for digits in [
            "sha256:".to_owned(),
            text[..text.len() - 1].to_owned(),
            format!("{text}0"),
            text.replace('f', "g"),
            text.replace('f', "ü"),
            format!("sha256: {}", &digits[1..]),
        ] {
            assert_eq!(digits.parse::<Pin>(), Err(NotAPin::Digits(digits.clone())));
        }
    }

    #[test]
    fn any_pin_in_any_order_finds_its_authority() {
        let [old, new, other] = [authority(), authority(), authority()];
        let bundle = [old.clone(), new.clone()];
        let [o, n, x] = [&old, &new, &other].map(Pin::of);
        assert_eq!(pins(&[old.clone(), new.clone(), old.clone()]), [o, n]);
        for both in [[o, n], [n, o]] {
            assert_eq!(pinned(&bundle, &both), bundle);
        }
        for old_alone in [&[o][..], &[o, x], &[x, o]] {
            assert_eq!(pinned(&bundle, old_alone), bundle[..1]);
        }
        assert_eq!(pinned(&bundle, &[x, n]), [new]);
        assert_eq!(pinned(&bundle, &[x]), []);
        assert_eq!(pinned(&bundle, &[]), []);
    }
}
