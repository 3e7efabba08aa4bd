//! The line that a person carries from a controller to the machine that joins.

use ipnet::IpNet;
use zeroize::Zeroizing;

use super::token::Kind;
use crate::pki::pin::Pin;
use crate::pki::seal::CertificateKey;
use crate::reconcilers::bootstrap_token::BootstrapToken;

/// The range of Services that a node assumes when it is told none, kubeadm's.
pub const DEFAULT_SERVICE_RANGE: &str = "10.96.0.0/12";

/// What a machine has to be told to join.
#[derive(Clone, Copy, Debug)]
pub struct Join<'a> {
    /// `HOST:PORT` of the API servers.
    pub endpoint: &'a str,
    /// The token.
    pub token: &'a BootstrapToken,
    /// The authorities it has to find; more than one while one takes over from another.
    pub pins: &'a [Pin],
    /// What opens the grant of a controller.
    pub certificate_key: Option<&'a CertificateKey>,
    /// The cluster's ranges of Services.
    pub service_ranges: &'a [IpNet],
    /// What else a worker cannot know and would assume otherwise, as flags: a controller has it from its grant.
    pub worker_flags: &'a [String],
}

impl Join<'_> {
    /// What the token admits.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match self.certificate_key {
            Some(_) => Kind::Controller,
            None => Kind::Worker,
        }
    }

    /// The command as a vector, the program first. Holds both secrets.
    #[must_use]
    pub fn arguments(&self) -> Vec<String> {
        let words = ["stratum", "join", self.endpoint, "--token"];
        let mut arguments: Vec<String> = words.map(str::to_owned).into();
        arguments.push(self.token.expose().to_string());
        for pin in self.pins {
            arguments.extend(["--ca-cert-hash".to_owned(), pin.to_string()]);
        }
        if let Some(key) = self.certificate_key {
            let words = ["--control-plane", "--certificate-key"];
            arguments.extend(words.map(str::to_owned));
            arguments.push(key.expose().to_string());
        }
        if let Some(ranges) = told_ranges(self.service_ranges) {
            arguments.extend(["--service-cidr".to_owned(), ranges]);
        }
        if self.kind() == Kind::Worker {
            arguments.extend_from_slice(self.worker_flags);
        }
        arguments
    }

    /// The command for a shell, on one line without its end. Holds both secrets.
    #[must_use]
    pub fn line(&self) -> Zeroizing<String> {
        let words: Vec<String> = self.arguments().iter().map(|word| quoted(word)).collect();
        Zeroizing::new(words.join(" "))
    }
}

/// The ranges as the flag takes them; none when a node assumes them anyway, or when they are not known.
fn told_ranges(ranges: &[IpNet]) -> Option<String> {
    let text: Vec<String> = ranges.iter().map(ToString::to_string).collect();
    (!text.is_empty() && text != [DEFAULT_SERVICE_RANGE]).then(|| text.join(","))
}

/// An address of IPv6 stands in brackets, which a shell takes for a pattern.
fn quoted(word: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:/,=".contains(&byte);
    if word.bytes().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_says_everything_that_is_not_assumed() {
        let token = "abc123.0123456789abcdef".parse().unwrap();
        let pins = ['a', 'b'].map(|digit| {
            let text = format!("sha256:{}", digit.to_string().repeat(64));
            text.parse::<Pin>().unwrap()
        });
        let key = CertificateKey::new([7; 32]);
        let ranges = |text: &[&str]| -> Vec<IpNet> { text.iter().map(|range| range.parse().unwrap()).collect() };
        let usual = ranges(&[DEFAULT_SERVICE_RANGE]);
        let worker = Join {
            endpoint: "10.0.0.1:6443",
            token: &token,
            pins: &pins[..1],
            certificate_key: None,
            service_ranges: &usual,
            worker_flags: &[],
        };
        let (a, b) = ("a".repeat(64), "b".repeat(64));
        let expected = format!("stratum join 10.0.0.1:6443 --token abc123.0123456789abcdef --ca-cert-hash sha256:{a}");
        assert_eq!(*worker.line(), expected);
        assert_eq!(worker.kind(), Kind::Worker);
        let unknown = Join {
            service_ranges: &[],
            ..worker
        };
        assert_eq!(*unknown.line(), expected);
        let flags = ["--cluster-domain".to_owned(), "corp.example".to_owned()];
        let elsewhere = Join {
            worker_flags: &flags,
            ..worker
        };
        assert_eq!(*elsewhere.line(), format!("{expected} --cluster-domain corp.example"));
        let other = ranges(&["10.96.0.0/16", "fd00:10::/112"]);
        let controller = Join {
            endpoint: "[fd00::1]:6443",
            pins: &pins,
            certificate_key: Some(&key),
            service_ranges: &other,
            worker_flags: &flags,
            ..worker
        };
        let expected = format!(
            "stratum join '[fd00::1]:6443' --token abc123.0123456789abcdef --ca-cert-hash sha256:{a} --ca-cert-hash sha256:{b} --control-plane --certificate-key {} --service-cidr 10.96.0.0/16,fd00:10::/112",
            "07".repeat(32)
        );
        assert_eq!(*controller.line(), expected);
        assert_eq!(controller.kind(), Kind::Controller);
        assert_eq!(controller.arguments()[2], "[fd00::1]:6443");
        assert!(!format!("{controller:?}").contains("0123") && !format!("{controller:?}").contains("0707"));
        assert_eq!(quoted("it's"), r"'it'\''s'");
    }
}
