//! What the profiles bring to the control plane: ordered plain files, the body of an admission configuration, arguments.
//!
//! A registry: a profile is one entry in [`registered`], and nothing else asks which profile a node has. Each file lies in
//! the folder of derived files, is read by the API server at its start only, and is part of a hash on its pod.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::super::node_state::Profile;
use super::{Component, Error};

/// The one admission configuration that the API server takes, merged from the profile's.
pub const ADMISSION_FILE: &str = "admission-webhook.yaml";
/// Which paths need no credential.
pub const AUTHENTICATION_FILE: &str = "authentication-config.yaml";

/// A file the API server is given as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlainFile {
    /// Its name in the folder of derived files.
    pub name: &'static str,
    /// The flag of the API server that names it.
    pub flag: &'static str,
    /// All of it.
    pub text: &'static str,
}

/// What a profile brings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registered {
    /// Files, in the order of the hash over them.
    pub plain: &'static [PlainFile],
    /// An AdmissionConfiguration, YAML.
    pub admission: Option<&'static str>,
    /// Arguments, put in place of ours of the same name.
    pub arguments: &'static [(Component, &'static str, &'static str)],
}

/// What a profile brings.
#[must_use]
pub const fn registered(profile: Profile) -> Registered {
    match profile {
        Profile::Default => Registered {
            plain: &[],
            admission: None,
            arguments: &[],
        },
        Profile::Cis => Registered {
            plain: &[AUDIT_POLICY],
            admission: Some(include_str!("admission-config.yaml")),
            arguments: &CIS_ARGUMENTS,
        },
    }
}

const AUDIT_POLICY: PlainFile = PlainFile {
    name: "audit-policy.yaml",
    flag: AUDIT_POLICY_FLAG,
    text: include_str!("audit-policy.yaml"),
};

const AUDIT_POLICY_FLAG: &str = "audit-policy-file";

/// ECDHE with AEAD only; the suites of TLS 1.3 are not to be chosen.
const CIPHERS: &str = "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,\
TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,\
TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256";

/// What the CIS Kubernetes Benchmark asks for and is not rendered anyway. Left out on purpose: `AlwaysPullImages`, with
/// which a node could not run the images its payload brought, and encryption at rest, whose key is not ours to choose.
const CIS_ARGUMENTS: [(Component, &str, &str); 15] = {
    use Component::{Etcd, KubeApiserver, KubeControllerManager, KubeScheduler};
    [
        (Etcd, "cipher-suites", CIPHERS),
        (Etcd, "tls-min-version", "TLS1.2"),
        (
            KubeApiserver,
            "enable-admission-plugins",
            "NodeRestriction,DenyServiceExternalIPs,EventRateLimit",
        ),
        // Days, files, megabytes.
        (KubeApiserver, "audit-log-maxage", "30"),
        (KubeApiserver, "audit-log-maxbackup", "10"),
        (KubeApiserver, "audit-log-maxsize", "100"),
        (KubeApiserver, "service-account-extend-token-expiration", "false"),
        (KubeApiserver, "service-account-lookup", "true"),
        (KubeApiserver, "tls-cipher-suites", CIPHERS),
        (KubeApiserver, "tls-min-version", "VersionTLS12"),
        (KubeControllerManager, "terminated-pod-gc-threshold", "1000"),
        (KubeControllerManager, "tls-cipher-suites", CIPHERS),
        (KubeControllerManager, "tls-min-version", "VersionTLS12"),
        (KubeScheduler, "tls-cipher-suites", CIPHERS),
        (KubeScheduler, "tls-min-version", "VersionTLS12"),
    ]
};

/// An AdmissionConfiguration. The plugins' own settings are passed on as they are.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct AdmissionConfiguration {
    api_version: String,
    kind: String,
    #[serde(default)]
    plugins: Vec<Plugin>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Plugin {
    name: String,
    configuration: Value,
}

const ADMISSION_KIND: (&str, &str) = ("apiserver.config.k8s.io/v1", "AdmissionConfiguration");

impl Registered {
    /// Whether it keeps an audit log.
    #[must_use]
    pub fn audits(&self) -> bool {
        self.plain.iter().any(|file| file.flag == AUDIT_POLICY_FLAG)
    }

    /// The flags that name the plain files, and those files' names.
    pub fn plain_flags(&self) -> impl Iterator<Item = (&'static str, &'static str)> + use<> {
        self.plain.iter().map(|file| (file.flag, file.name))
    }

    /// SHA-256 over the plain files, in order; `None` without any.
    #[must_use]
    pub fn plain_sha256(&self) -> Option<String> {
        (!self.plain.is_empty()).then(|| sha256(self.plain.iter().map(|file| file.text)))
    }

    /// SHA-256 of the admission configuration as the profile brings it; `None` without one.
    #[must_use]
    pub fn admission_sha256(&self) -> Option<String> {
        self.admission.map(|text| sha256([text]))
    }

    /// Every derived file of a node with this profile: name and text, in the order they are written.
    ///
    /// # Errors
    /// When the profile's admission configuration is none.
    pub fn derived_files(&self) -> Result<Vec<(&'static str, String)>, Error> {
        let plain = self.plain.iter().map(|file| (file.name, file.text.to_owned()));
        let mut files: Vec<(&'static str, String)> = plain.collect();
        files.push((AUTHENTICATION_FILE, AUTHENTICATION.to_owned()));
        if let Some(body) = self.admission {
            files.push((ADMISSION_FILE, merge_admission(&[body])?));
        }
        Ok(files)
    }
}

const AUTHENTICATION: &str = include_str!("authentication-config.yaml");

/// SHA-256 of the file that says which paths need no credential.
#[must_use]
pub fn authentication_sha256() -> String {
    sha256([AUTHENTICATION])
}

/// One AdmissionConfiguration out of several, since the API server takes one file: their plugins in order. A plugin in two
/// of them is an error, for the API server would take one and nobody could say which.
fn merge_admission(bodies: &[&str]) -> Result<String, Error> {
    let refuse = |reason: String| Error::Admission { reason };
    let (api_version, kind) = ADMISSION_KIND;
    let mut merged = AdmissionConfiguration {
        api_version: api_version.to_owned(),
        kind: kind.to_owned(),
        plugins: Vec::new(),
    };
    for body in bodies {
        let read: AdmissionConfiguration =
            serde_saphyr::from_str(body).map_err(|error| refuse(error.without_snippet().to_string()))?;
        if (read.api_version.as_str(), read.kind.as_str()) != ADMISSION_KIND {
            return Err(refuse(format!("it is a {} of {}", read.kind, read.api_version)));
        }
        for plugin in read.plugins {
            if merged.plugins.iter().any(|other| other.name == plugin.name) {
                return Err(refuse(format!("the plugin {} is in it twice", plugin.name)));
            }
            merged.plugins.push(plugin);
        }
    }
    let yaml = serde_saphyr::to_string(&merged).map_err(|error| refuse(error.to_string()))?;
    Ok(format!(
        "# Written by stratum; what is edited here does not last.\n{yaml}"
    ))
}

fn sha256<'a>(texts: impl IntoIterator<Item = &'a str>) -> String {
    let mut digest = Sha256::new();
    for text in texts {
        digest.update(text);
    }
    digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const BODY: &str = "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nplugins:\n";

    #[test]
    fn admission_bodies_become_one_file() {
        let one = format!("{BODY}- name: A\n  configuration: {{x: 1}}\n");
        let two = format!("{BODY}- name: B\n  configuration: {{y: \"true\"}}\n");
        let merged = merge_admission(&[&one, &two]).unwrap();
        let read: Value = serde_saphyr::from_str(&merged).unwrap();
        let wanted = serde_json::json!([
            {"name": "A", "configuration": {"x": 1}},
            {"name": "B", "configuration": {"y": "true"}},
        ]);
        assert_eq!(read["plugins"], wanted);
        let refused = |bodies: &[&str]| merge_admission(bodies).unwrap_err().to_string();
        assert!(refused(&[&one, &one]).contains("plugin A is in it twice"));
        assert!(refused(&[&one.replace("AdmissionConfiguration", "Pod")]).contains("a Pod of"));
        assert!(refused(&[&format!("{one}  path: elsewhere.yaml\n")]).contains("path"));
    }

    /// Each hash covers its own files: a changed admission body leaves the other annotation as it was.
    #[test]
    fn hashes_are_of_the_files_in_order() {
        let cis = registered(Profile::Cis);
        let digest = |text: &str| -> String {
            let digest = Sha256::digest(text);
            digest.iter().map(|byte| format!("{byte:02x}")).collect()
        };
        let joined: String = cis.plain.iter().map(|file| file.text).collect();
        assert_eq!(cis.plain_sha256(), Some(digest(&joined)));
        assert_eq!(cis.admission_sha256(), cis.admission.map(digest));
        let other = Registered {
            admission: Some("other"),
            ..cis
        };
        assert_eq!(other.plain_sha256(), cis.plain_sha256());
        assert_ne!(other.admission_sha256(), cis.admission_sha256());
        let default = registered(Profile::Default);
        assert_eq!((default.plain_sha256(), default.admission_sha256()), (None, None));
    }
}
