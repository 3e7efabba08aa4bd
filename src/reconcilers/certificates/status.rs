//! `stratum certs check`: what was seen of this machine's certificates, and what that means.
//!
//! Certificates are told apart by their DER, keys by their public halves, signers by key id and signature, and addresses by
//! their bytes; never by a common name, a file's name or its time. A file that is not there is not missed: what a node has to
//! have is not decided here.

mod judge;
mod problem;
mod signed;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::pki::certificate::Certificate;
use crate::pki::leaf::{Request, Usage};

pub use judge::judge;
pub use problem::{Kind, Problem};

/// Everything that was seen.
#[derive(Debug)]
pub struct Observed {
    /// The node's name, where it is known.
    pub node: Option<String>,
    /// Whose files it has: `stratum` or `kubeadm`.
    pub layout: String,
    /// What may be there and is.
    pub certificates: Vec<Seen>,
    /// How the last renewal went.
    pub renewal: Renewal,
    /// Whether authorities are being replaced.
    pub rotation: Rotation,
    /// Whether a key for handing authorities over waits in the cluster.
    pub staged_key: StagedKey,
}

/// One certificate that is there.
#[derive(Debug)]
pub struct Seen {
    /// Its name in the roster.
    pub name: String,
    /// What it is for.
    pub part: Part,
    /// Its file.
    pub path: String,
    /// What the file holds.
    pub content: Result<Held, String>,
    /// The name of the authority that should have signed it.
    pub signer: Option<String>,
    /// What it should say, where that is known.
    pub expected: Option<Request>,
    /// What it has to be usable for, where [`Seen::expected`] is not known.
    pub usages: Vec<Usage>,
    /// Addresses it is reached at, where [`Seen::expected`] is not known.
    pub addresses: Vec<IpAddr>,
    /// What its listeners show; those where nothing answers are left out.
    pub served: Vec<Served>,
    /// The kubeconfig that should lead to it, or that it is embedded in.
    pub kubeconfig: Option<KubeconfigSeen>,
    /// The bundle beside it.
    pub bundle: Option<Bundle>,
}

/// What a certificate is for, and who renews it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// An authority with a file of its own.
    Authority,
    /// Authorities that are only trusted here.
    Trust,
    /// A leaf that a rotation renews.
    Leaf,
    /// The kubelet's as a client.
    KubeletClient,
    /// The kubelet's as a server.
    KubeletServer,
}

/// What a certificate's file holds.
#[derive(Debug)]
pub struct Held {
    /// The first certificate.
    pub certificate: Certificate,
    /// Those after it.
    pub more: Vec<Certificate>,
    /// What became of the key.
    pub key: KeySeen,
}

/// A key, as far as it was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeySeen {
    /// The certificate's own.
    Own,
    /// Another certificate's.
    Other,
    /// Not there.
    Absent,
    /// This user may not read it.
    Denied,
    /// Protected by a password.
    Encrypted,
    /// Not usable, because of this.
    Unusable(String),
}

/// What a listener shows.
#[derive(Debug)]
pub struct Served {
    /// The listener.
    pub at: SocketAddr,
    /// Its certificate, or why there is none.
    pub shown: Result<Certificate, String>,
}

/// A kubeconfig.
#[derive(Debug)]
pub struct KubeconfigSeen {
    /// Its file.
    pub path: String,
    /// What it says.
    pub says: KubeconfigSays,
}

/// What a kubeconfig says.
#[derive(Debug)]
pub enum KubeconfigSays {
    /// This user may not read it.
    Denied,
    /// It makes no sense.
    Unusable(String),
    /// Where its client certificate and key are, and whom it trusts.
    Client {
        /// What it should not be; none when it leads to the right files, or has them embedded and should.
        elsewhere: Option<String>,
        /// The certificates it trusts, or why they cannot be read; none when it trusts those of the system.
        trusts: Option<Result<Vec<Certificate>, String>>,
    },
}

/// A file of trusted certificates.
#[derive(Debug)]
pub struct Bundle {
    /// Its file.
    pub path: String,
    /// What it holds, or why that is not known.
    pub content: Result<Vec<Certificate>, String>,
}

/// How the last renewal went.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "state", rename_all = "kebab-case", rename_all_fields = "camelCase")]
pub enum Renewal {
    /// None is recorded.
    None,
    /// It began, and did not end yet or was cut off.
    InProgress {
        /// When it began.
        attempted_at: String,
    },
    /// Everything that was due is new.
    Succeeded {
        /// When it began.
        attempted_at: String,
    },
    /// It did not succeed.
    Failed {
        /// When it began.
        attempted_at: String,
        /// Why.
        result: String,
    },
    /// The record cannot be read.
    Unreadable {
        /// Why.
        reason: String,
    },
}

/// Whether authorities are being replaced, and whether leaves were and not everything runs on them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Rotation {
    /// The phase, `idle` when none is open.
    pub phase: String,
    /// What there is to say about it.
    pub detail: Vec<String>,
    /// Leaves are new, and not every component runs on them.
    pub incomplete: bool,
    /// That rotation began when leaves had expired already.
    pub incomplete_from_expired: bool,
}

/// Whether a key for handing authorities over waits in the cluster (Secret `kube-system/stratum-carotate`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, strum::Display)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum StagedKey {
    /// One waits.
    Present,
    /// None does.
    Absent,
    /// Nobody could be asked.
    Unknown,
}

/// One row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CertStatus {
    /// Its name.
    pub name: String,
    /// Last second of its life; none when it cannot be read.
    pub not_after: Option<Timestamp>,
    /// Whole days until then, rounded down; negative afterwards.
    pub days_left: Option<i64>,
    /// An authority.
    #[serde(rename = "isCA")]
    pub is_ca: bool,
    /// Less is left than the window in which it is renewed, or than the administrator wants to be warned of.
    pub expiring: bool,
    /// A leaf that a rotation renews.
    pub rotatable: bool,
    /// The kubelet's, which the kubelet renews.
    pub kubelet: bool,
    /// The kubelet's, and past the latest moment at which the kubelet would have renewed it.
    pub renewal_overdue: bool,
    /// First second of its life.
    pub not_before: Option<Timestamp>,
    /// Whom it stands for.
    pub subject: Option<String>,
    /// The name of the authority that should have signed it.
    pub signer: Option<String>,
    /// The key of that authority is not on this machine.
    pub externally_managed: bool,
    /// The key id of its signer, as it says.
    pub issuer_key_id: Option<String>,
    /// Its serial number.
    pub serial: Option<String>,
    /// Its file.
    pub path: String,
    /// The listeners that were asked and show it.
    pub served_at: Vec<String>,
    /// What is wrong, and what could not be told.
    pub problems: Vec<Problem>,
}

/// What `certs check` has to say.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// The node's name, where it is known.
    pub node: Option<String>,
    /// Whose files it has.
    pub layout: String,
    /// The time that everything was compared with.
    pub at: Timestamp,
    /// All in one word.
    pub verdict: Verdict,
    /// A row for each certificate.
    pub certificates: Vec<CertStatus>,
    /// How the last renewal went.
    pub renewal: Renewal,
    /// Whether authorities are being replaced.
    pub rotation: Rotation,
    /// Whether a key for handing authorities over waits in the cluster.
    pub staged_key: StagedKey,
    /// The leaves whose subject is not the one this release gives them.
    pub subject_drift: Vec<String>,
}

/// The worst that was found. The order is that of severity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, strum::Display)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum Verdict {
    /// Nothing.
    #[default]
    Fine,
    /// Something ends soon, or was not renewed when it should have been.
    Expiring,
    /// A rotation is open or incomplete.
    RotationOpen,
    /// Something has expired, or is not valid yet.
    Expired,
    /// Something cannot be read, does not fit together, or was signed by somebody else.
    Broken,
}

impl CertStatus {
    /// What this row alone amounts to.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        // The kubelet renews its own when it sees fit, and is late only past its last moment for that.
        let expiring = self.renewal_overdue || (self.expiring && !self.kubelet);
        let worst = self.problems.iter().map(|problem| problem.kind.verdict()).max();
        let own = if expiring { Verdict::Expiring } else { Verdict::Fine };
        worst.unwrap_or_default().max(own)
    }
}

impl CertStatus {
    /// Everything about it in a few words.
    #[must_use]
    pub fn state(&self) -> String {
        let of = |bad: bool| {
            let problems = self.problems.iter().map(|problem| problem.kind);
            problems
                .filter(move |kind| (kind.verdict() != Verdict::Fine) == bad)
                .map(Kind::words)
        };
        let mut words: Vec<&str> = of(true).collect();
        words.dedup();
        if self.renewal_overdue {
            words.push("renewal overdue");
        } else if self.expiring && self.days_left.is_some_and(|days| days >= 0) {
            words.push(if self.kubelet {
                "renewed by the kubelet"
            } else {
                "expiring"
            });
        }
        if words.is_empty() {
            words.push("fine");
        }
        words.extend(of(false));
        if self.is_ca && self.externally_managed {
            words.push("no key here");
        }
        words.join(", ")
    }
}

/// Every authority that was read, by its name.
type Authorities<'a> = BTreeMap<&'a str, Vec<&'a Certificate>>;
