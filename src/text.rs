//! What texts have to look like: rules and spellings that every layer keeps, and none owns. They name nothing of this
//! program.

use std::fmt;
use std::str::FromStr;

/// Whether it is a DNS name as Kubernetes wants them (RFC 1123): lower-case labels of 1 to 63 letters, digits and '-',
/// separated by '.', 253 characters at the most. Nothing in one can change the structure of a path, a URL or a document.
#[must_use]
pub fn is_dns_name(text: &str) -> bool {
    let edge = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let label = |label: &str| {
        let bytes = label.as_bytes();
        bytes.len() <= 63
            && bytes.first().is_some_and(edge)
            && bytes.last().is_some_and(edge)
            && bytes.iter().all(|byte| edge(byte) || *byte == b'-')
    };
    text.len() <= 253 && text.split('.').all(label)
}

/// Whether a Node can have this name.
#[must_use]
pub fn is_node_name(text: &str) -> bool {
    is_dns_name(text)
}

/// What tells one machine from another: the content of `/etc/machine-id` (machine-id(5)), which a kubelet reports as
/// `status.nodeInfo.machineID`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MachineId(String);

impl MachineId {
    /// The id as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for MachineId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// A text that is no machine id.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no machine id: 32 digits of 0-9 and a-f, not all 0, as in /etc/machine-id")]
pub struct NotAMachineId(String);

impl FromStr for MachineId {
    type Err = NotAMachineId;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let digits = text.len() == 32 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        // systemd refuses the id of nothing but zeros, too: an image that was never started has it.
        if digits && text.bytes().any(|byte| byte != b'0') {
            Ok(Self(text.to_owned()))
        } else {
            Err(NotAMachineId(text.chars().take(100).collect()))
        }
    }
}

/// A text on one line, its words separated by one space.
#[must_use]
pub fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// What is wrong with a YAML document, on one line, and nothing of what stands in it: that may be a secret.
#[must_use]
pub fn yaml_fault(error: &serde_saphyr::Error) -> String {
    one_line(&error.without_snippet().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        let label = "a".repeat(63);
        let longest = format!("{label}.{label}.{label}.{}", "a".repeat(61));
        for good in ["a", "1", "n-1.example.com", "0.0", &label, &longest] {
            assert!(is_dns_name(good) && is_node_name(good), "{good:?}");
        }
        for bad in [
            "",
            ".",
            "a.",
            ".a",
            "a..b",
            "-a",
            "a-",
            "a.-b",
            "A",
            "a_b",
            "a/b",
            "a b",
            "a\n",
            "ä",
            &format!("{label}a"),
            &format!("{longest}a"),
        ] {
            assert!(!is_dns_name(bad) && !is_node_name(bad), "{bad:?}");
        }
    }

    #[test]
    fn what_is_wrong_with_a_document_says_nothing_of_what_stands_in_it() {
        #[derive(Debug, serde::Deserialize)]
        struct Secret {
            #[expect(dead_code, reason = "it is read by nobody")]
            number: u8,
        }
        let error = serde_saphyr::from_str::<Secret>("other: hunter2\nnumber: [\n").unwrap_err();
        let fault = yaml_fault(&error);
        assert!(!fault.contains("hunter2") && !fault.contains('\n'), "{fault}");
        assert!(error.to_string().contains("hunter2"), "the error itself does");
    }
}
