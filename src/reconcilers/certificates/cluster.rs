//! `stratum certs check --cluster`: what a node says of its certificates in few words, and what all of them amount to.
//!
//! A node has 4096 bytes to answer with, the length of a termination message. It tells the worst rows that fit, and how many did
//! not.

#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize, Serializer};

use super::status::{CertStatus, Renewal, Report, Verdict};

/// Bytes of an answer, a little below what a kubelet keeps.
const ROOM: usize = 4000;
/// Characters of one text in it.
const LONGEST_TEXT: usize = 200;

/// The answer of one node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Summary {
    /// The worst of everything.
    pub verdict: Verdict,
    /// The worst certificates, the worst first; when all are fine, the one that ends first.
    pub certificates: Vec<Row>,
    /// How many more are not fine.
    #[serde(default, skip_serializing_if = "is_none")]
    pub more: usize,
    /// What else there is to say: a rotation that is open, a renewal that failed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// One certificate of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Row {
    /// Its name.
    pub name: String,
    /// Last second of its life, where it could be read.
    pub not_after: Option<Timestamp>,
    /// Whole days until then; negative afterwards.
    pub days_left: Option<i64>,
    /// How it is, in words.
    pub state: String,
}

impl Summary {
    /// Of a whole report.
    #[must_use]
    pub fn of(report: &Report) -> Self {
        let mut bad: Vec<&CertStatus> = report.certificates.iter().collect();
        bad.retain(|row| row.verdict() != Verdict::Fine);
        bad.sort_by_key(|row| (Reverse(row.verdict()), row.days_left));
        let mut summary = Self {
            verdict: report.verdict,
            certificates: Vec::new(),
            more: bad.len(),
            notes: notes(report),
        };
        if bad.is_empty() {
            summary.certificates = first_to_end(report).map(Row::of).into_iter().collect();
        }
        for row in bad {
            summary.certificates.push(Row::of(row));
            summary.more -= 1;
            if summary.message().len() > ROOM {
                summary.certificates.pop();
                summary.more += 1;
                break;
            }
        }
        summary
    }

    /// What the node answers: JSON in one line, of at most 4096 bytes when it was made by [`Summary::of`].
    #[must_use]
    pub fn message(&self) -> String {
        // A value of these types always has a form in JSON.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Reads the answer of a node: the exit code of its check, and what that printed.
    ///
    /// # Errors
    /// In one line, why there is no answer.
    pub fn read(code: i32, message: &str) -> Result<Self, String> {
        let words = message.split_whitespace().collect::<Vec<_>>().join(" ");
        match code {
            0 | 20..=23 => serde_json::from_str(message).map_err(|error| {
                let said = cut(&words);
                format!("its answer is not understood, is another version of this program there? {error}: {said}")
            }),
            2 => Err(format!("another version of this program is there: {}", cut(&words))),
            code if words.is_empty() => Err(format!("its check ended with {code} and said nothing")),
            code => Err(format!("its check ended with {code}: {}", cut(&words))),
        }
    }
}

impl Row {
    fn of(row: &CertStatus) -> Self {
        Self {
            name: cut(&row.name),
            not_after: row.not_after,
            days_left: row.days_left,
            state: cut(&row.state()),
        }
    }
}

/// Leaves before authorities, which outlive them.
fn first_to_end(report: &Report) -> Option<&CertStatus> {
    let dated = report.certificates.iter().filter(|row| row.not_after.is_some());
    dated.min_by_key(|row| (row.is_ca, row.not_after))
}

fn notes(report: &Report) -> Vec<String> {
    let rotation = &report.rotation;
    let mut notes = Vec::new();
    if report.verdict == Verdict::RotationOpen || rotation.incomplete {
        let incomplete = if rotation.incomplete { ", incomplete" } else { "" };
        notes.push(cut(&format!("rotation: {}{incomplete}", rotation.phase)));
    }
    match &report.renewal {
        Renewal::Failed { attempted_at, result } => {
            notes.push(cut(&format!("the renewal of {attempted_at} failed: {result}")));
        }
        Renewal::Unreadable { reason } => notes.push(cut(&format!("how the last renewal went is unknown: {reason}"))),
        Renewal::None | Renewal::InProgress { .. } | Renewal::Succeeded { .. } => {}
    }
    notes
}

fn cut(text: &str) -> String {
    match text.char_indices().nth(LONGEST_TEXT) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}...", &text[..end]),
    }
}

fn is_none(number: &usize) -> bool {
    *number == 0
}

/// What all nodes say.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterReport {
    /// When they were asked.
    pub at: Timestamp,
    /// The worst of all nodes; a node that could not be asked counts as `broken`.
    pub verdict: Verdict,
    /// By name.
    pub nodes: Vec<NodeReport>,
}

/// What one node says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeReport {
    /// Its name.
    pub node: String,
    /// All in one word.
    pub verdict: NodeVerdict,
    /// Why it could not be asked.
    pub reason: Option<String>,
    /// The worst certificates.
    pub certificates: Vec<Row>,
    /// How many more are not fine.
    pub more: usize,
    /// What else it says.
    pub notes: Vec<String>,
}

/// How a node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeVerdict {
    /// It said so.
    Told(Verdict),
    /// It could not be asked.
    Unreachable,
}

impl NodeVerdict {
    /// What it counts as: nobody knows whether the certificates of a node that was not asked are any good.
    #[must_use]
    pub fn weight(self) -> Verdict {
        match self {
            Self::Told(verdict) => verdict,
            Self::Unreachable => Verdict::Broken,
        }
    }
}

impl fmt::Display for NodeVerdict {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Told(verdict) => verdict.fmt(formatter),
            Self::Unreachable => formatter.write_str("unreachable"),
        }
    }
}

impl Serialize for NodeVerdict {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl ClusterReport {
    /// Of every node's answer, or why there is none.
    #[must_use]
    pub fn of(at: Timestamp, answers: impl IntoIterator<Item = (String, Result<Summary, String>)>) -> Self {
        let nodes = answers.into_iter().map(|(node, answer)| NodeReport::of(node, answer));
        let mut nodes: Vec<NodeReport> = nodes.collect();
        nodes.sort_by(|one, other| one.node.cmp(&other.node));
        let verdict = nodes.iter().map(|node| node.verdict.weight()).max();
        let verdict = verdict.unwrap_or_default();
        Self { at, verdict, nodes }
    }
}

impl NodeReport {
    fn of(node: String, answer: Result<Summary, String>) -> Self {
        match answer {
            Ok(Summary {
                verdict,
                certificates,
                more,
                notes,
            }) => Self {
                node,
                verdict: NodeVerdict::Told(verdict),
                reason: None,
                certificates,
                more,
                notes,
            },
            Err(reason) => Self {
                node,
                verdict: NodeVerdict::Unreachable,
                reason: Some(reason),
                certificates: Vec::new(),
                more: 0,
                notes: Vec::new(),
            },
        }
    }
}
