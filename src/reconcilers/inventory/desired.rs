//! Which set of bundled stacks was staged last (the desired generation), and the cluster inputs staged with it.
//!
//! The record is in cluster state, so that who may change it is decided by RBAC, and apart from the version of any
//! binary: a folder that does not match it is not what was staged, and is not applied.

use std::net::IpAddr;

use jiff::Timestamp;
use semver::Version;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest, Sha256};

use crate::pki::hexadecimal;
use crate::reconcilers::object::StackName;

/// The document under the key `desired`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Desired {
    /// Grows with every changed set, and never shrinks.
    pub generation: u64,
    /// [`digest`] of the files of `stacks`.
    pub digest: String,
    /// Who staged it.
    pub provenance: Provenance,
    /// The bundled stacks, sorted. Empty: no bundled stack is wanted at all, and the objects of the last are pruned.
    pub stacks: Vec<StackName>,
}

/// Who staged a set of bundled stacks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Provenance {
    /// The version of the binary.
    #[serde(serialize_with = "write_version", deserialize_with = "read_version")]
    pub version: Version,
    /// The node.
    pub node: String,
    /// When.
    pub at: Timestamp,
}

fn write_version<S: Serializer>(version: &Version, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(version)
}

fn read_version<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Version, D::Error> {
    String::deserialize(deserializer)?
        .parse()
        .map_err(serde::de::Error::custom)
}

/// The document under the key `cluster-inputs`: what bundled manifests are filled in with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct ClusterInputs {
    /// The address of the cluster's DNS Service.
    #[serde(rename = "clusterDNS")]
    pub cluster_dns: IpAddr,
    /// The domain of Services, such as `cluster.local`.
    pub cluster_domain: String,
    /// Whether Services and Pods have IPv4 and IPv6 addresses.
    pub dual_stack: bool,
    /// Whether the bundled storage class is the default one.
    pub storage_default: bool,
}

/// SHA-256, in lower-case hexadecimal, over files sorted by path; path and bytes are each preceded by their length
/// (8 bytes, big-endian), so that no two sets run together to the same text.
///
/// Paths are relative to the manifests folder and begin with the stack's name.
pub fn digest<P: AsRef<str>, B: AsRef<[u8]>>(files: impl IntoIterator<Item = (P, B)>) -> String {
    let mut files: Vec<(P, B)> = files.into_iter().collect();
    files.sort_by(|(one, _), (other, _)| one.as_ref().cmp(other.as_ref()));
    let mut hash = Sha256::new();
    for (path, bytes) in &files {
        for part in [path.as_ref().as_bytes(), bytes.as_ref()] {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
    }
    hexadecimal(&hash.finalize())
}

/// Whether the bundled stacks of a folder are the ones that were staged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing was ever staged: apply.
    NoRecord,
    /// No bundled stack is wanted.
    Empty,
    /// They are.
    Matches,
    /// They are not: nothing of them is applied in this pass.
    Mismatch {
        /// The digest on record.
        expected: String,
        /// The digest of what is there.
        found: String,
    },
}

/// Compares the files of a manifests folder with the record. Files outside of the recorded stacks do not count, so all
/// files of the folder may be given.
pub fn verify<P: AsRef<str>, B: AsRef<[u8]>>(
    record: Option<&Desired>,
    files: impl IntoIterator<Item = (P, B)>,
) -> Verdict {
    let Some(record) = record else {
        return Verdict::NoRecord;
    };
    if record.stacks.is_empty() {
        return Verdict::Empty;
    }
    let bundled = |path: &str| {
        path.split_once('/')
            .is_some_and(|(first, _)| record.stacks.iter().any(|stack| stack.as_str() == first))
    };
    let found = digest(files.into_iter().filter(|(path, _)| bundled(path.as_ref())));
    if found == record.digest {
        Verdict::Matches
    } else {
        Verdict::Mismatch {
            expected: record.digest.clone(),
            found,
        }
    }
}

/// What becomes of the record when a set is staged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// This is written.
    Write(Desired),
    /// It already says so.
    Unchanged,
    /// A newer binary staged another set.
    RefusedOlder {
        /// The version on record.
        recorded: Version,
        /// The version of this binary.
        ours: Version,
    },
}

/// Decides the record for a set that is being staged; `provenance` is this staging's.
///
/// The same set staged by a newer binary keeps its generation and takes the newer provenance: else a binary between
/// the two could later overwrite what the newest one wanted.
#[must_use]
pub fn next(previous: Option<&Desired>, mut stacks: Vec<StackName>, digest: String, provenance: Provenance) -> Next {
    stacks.sort();
    stacks.dedup();
    let generation = match previous {
        None => 1,
        Some(previous) => {
            let order = provenance.version.cmp_precedence(&previous.provenance.version);
            let same = previous.stacks == stacks && previous.digest == digest;
            match (same, order) {
                (true, std::cmp::Ordering::Greater) => previous.generation,
                (true, std::cmp::Ordering::Equal | std::cmp::Ordering::Less) => return Next::Unchanged,
                (false, std::cmp::Ordering::Less) => {
                    return Next::RefusedOlder {
                        recorded: previous.provenance.version.clone(),
                        ours: provenance.version,
                    };
                }
                (false, std::cmp::Ordering::Equal | std::cmp::Ordering::Greater) => {
                    previous.generation.saturating_add(1)
                }
            }
        }
    };
    Next::Write(Desired {
        generation,
        digest,
        provenance,
        stacks,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reconcilers::inventory::document::tests::stack;

    fn by(version: &str) -> Provenance {
        Provenance {
            version: version.parse().unwrap(),
            node: "a".into(),
            at: Timestamp::UNIX_EPOCH,
        }
    }

    fn record(generation: u64, digest: &str, version: &str) -> Desired {
        Desired {
            generation,
            digest: digest.into(),
            provenance: by(version),
            stacks: vec![stack("s")],
        }
    }

    #[test]
    fn the_digest_goes_by_paths_and_bytes_and_not_by_order() {
        let one = digest([("s/a", "1"), ("s/b", "2")]);
        assert_eq!(one, digest([("s/b", "2"), ("s/a", "1")]));
        assert_ne!(one, digest([("s/a", "1s/b2")]));
        assert_ne!(one, digest([("s/a", "1"), ("s/b", "3")]));
        assert_ne!(digest([("s/a", "b")]), digest([("s/ab", "")]));
        assert_eq!(one.len(), 64);
    }

    #[test]
    fn only_recorded_stacks_are_compared() {
        let files = [("s/a", "1"), ("mine/x", "2"), ("loose.yaml", "3")];
        let staged = record(1, &digest([("s/a", "1")]), "1.0.0");
        assert_eq!(verify(None, files), Verdict::NoRecord);
        assert_eq!(verify(Some(&staged), files), Verdict::Matches);
        assert!(matches!(
            verify(Some(&staged), [("s/a", "9")]),
            Verdict::Mismatch { .. }
        ));
        assert!(
            matches!(verify(Some(&staged), [("mine/x", "2")]), Verdict::Mismatch { .. }),
            "a missing stack is not what was staged"
        );
        let empty = Desired {
            stacks: Vec::new(),
            ..staged
        };
        assert_eq!(verify(Some(&empty), files), Verdict::Empty);
    }

    #[test]
    fn the_generation_grows_and_an_older_binary_does_not_overwrite() {
        let stage = |previous: Option<&Desired>, digest: &str, version: &str| {
            next(previous, vec![stack("s"), stack("s")], digest.into(), by(version))
        };
        assert_eq!(stage(None, "d", "1.0.0"), Next::Write(record(1, "d", "1.0.0")));
        let known = record(7, "d", "1.10.0");
        assert_eq!(stage(Some(&known), "d", "1.10.0"), Next::Unchanged);
        assert_eq!(stage(Some(&known), "d", "1.9.0"), Next::Unchanged);
        assert_eq!(
            stage(Some(&known), "d", "1.11.0"),
            Next::Write(record(7, "d", "1.11.0"))
        );
        assert_eq!(
            stage(Some(&known), "e", "1.10.0"),
            Next::Write(record(8, "e", "1.10.0"))
        );
        for older in ["1.9.0", "1.10.0-rc.1"] {
            assert_eq!(
                stage(Some(&known), "e", older),
                Next::RefusedOlder {
                    recorded: "1.10.0".parse().unwrap(),
                    ours: older.parse().unwrap()
                },
                "numbers are compared as numbers"
            );
        }
        assert_eq!(
            stage(Some(&record(7, "d", "1.10.0+a")), "d", "1.10.0+b"),
            Next::Unchanged,
            "a build is no version"
        );
        let Next::Write(sorted) = next(None, vec![stack("t"), stack("s")], "d".into(), by("1.0.0")) else {
            panic!("the first set is written")
        };
        assert_eq!(sorted.stacks, [stack("s"), stack("t")]);
        let to_empty = next(Some(&known), Vec::new(), "d".into(), by("1.10.0"));
        assert!(matches!(to_empty, Next::Write(Desired { generation: 8, .. })));
    }
}
