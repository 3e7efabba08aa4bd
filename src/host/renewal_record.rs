//! What is remembered of the last renewal of this node's certificates: when it was tried, and how it went. Without it
//! nobody could tell a loop that fails from one with nothing to do before the certificates end.
//!
//! One JSON object, `renewal.json` beside `node.yaml`:
//!
//! | the attempt | `attemptedAt` | `state` | `result` | `finishedAt` | `failures` |
//! |---|---|---|---|---|---|
//! | began, and did not end or was cut off | when it began | `in progress` | `in progress` | | those before it and it |
//! | failed | when it began | | why | when it ended | those in a row |
//! | succeeded | when it began | | | when it ended | |
//!
//! An empty field is left out. Whoever reads `attemptedAt` and `result` alone, where no `result` is a success, takes no
//! attempt for a success that was none: not one that was cut off either, because the record is written before it begins.

#[cfg(test)]
mod tests;

use std::io;
use std::path::PathBuf;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::atomic_file::{self, Access, read_record};
use super::layout::Layout;

/// No record is longer, in bytes: an error is told in a few lines.
const LIMIT: u64 = 64 * 1024;
/// An error is cut to this many bytes, which stay below [`LIMIT`] also when each has to be escaped.
const LONGEST_RESULT: usize = 4096;
const IN_PROGRESS: &str = "in progress";

/// The last attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RenewalRecord {
    /// When it began.
    pub attempted_at: Timestamp,
    /// When it ended; none while it is in progress, and in what other programs wrote.
    pub finished_at: Option<Timestamp>,
    /// How it went.
    pub result: RenewalResult,
    /// How many attempts in a row did not succeed, this one among them unless it was asked to stop.
    pub failures: u32,
}

/// How an attempt went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RenewalResult {
    /// It runs, or it was cut off: whoever reads this cannot tell, and neither is a success.
    InProgress,
    /// Everything that was due is new.
    Succeeded,
    /// It did not succeed, because of this.
    Failed(String),
}

impl RenewalRecord {
    /// The record of an attempt that begins, after so many in a row that failed.
    #[must_use]
    pub fn begun(at: Timestamp, failures_before: u32) -> Self {
        Self {
            attempted_at: at,
            finished_at: None,
            result: RenewalResult::InProgress,
            failures: failures_before.saturating_add(1),
        }
    }

    /// The same attempt, done.
    #[must_use]
    pub fn succeeded(self, at: Timestamp) -> Self {
        Self {
            finished_at: Some(at),
            result: RenewalResult::Succeeded,
            failures: 0,
            ..self
        }
    }

    /// The same attempt, failed.
    #[must_use]
    pub fn failed(self, at: Timestamp, why: impl Into<String>) -> Self {
        Self {
            finished_at: Some(at),
            result: RenewalResult::Failed(why.into()),
            ..self
        }
    }

    /// What stands in `result`: nothing after a success.
    #[must_use]
    pub fn text(&self) -> &str {
        match &self.result {
            RenewalResult::InProgress => IN_PROGRESS,
            RenewalResult::Succeeded => "",
            // Nothing would be a success to whoever reads `result` alone.
            RenewalResult::Failed(why) if why.trim().is_empty() => "failed, and did not say why",
            RenewalResult::Failed(why) => why,
        }
    }

    /// Whether it succeeded.
    #[must_use]
    pub fn is_success(&self) -> bool {
        self.result == RenewalResult::Succeeded
    }
}

/// A record that cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The system does not give it, or what is there is no file.
    #[error("cannot read the renewal record {}", path.display())]
    Read {
        /// The record.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// It is there and says something else.
    #[error("{} is no renewal record", path.display())]
    Parse {
        /// The record.
        path: PathBuf,
        /// Where it is not.
        #[source]
        source: serde_json::Error,
    },
    /// It cannot be written; the last one, if there is one, is still there.
    #[error("cannot write the renewal record")]
    Write(#[source] atomic_file::Error),
}

/// Where it is: beside `node.yaml`.
#[must_use]
pub fn renewal_record_path(layout: &Layout) -> PathBuf {
    layout.renewal_record()
}

/// Reads it; none when no attempt was ever recorded.
///
/// # Errors
/// When something is there that is not a record. What it would say is unknown, which is not "never tried".
pub fn load_renewal_record(layout: &Layout) -> Result<Option<RenewalRecord>, Error> {
    let path = renewal_record_path(layout);
    let bytes = match atomic_file::if_there(read_record(&path, LIMIT)) {
        Ok(Some(bytes)) => bytes,
        Ok(None) => return Ok(None),
        Err(source) => return Err(Error::Read { path, source }),
    };
    match serde_json::from_slice::<Document>(&bytes) {
        Ok(document) => Ok(Some(document.into())),
        Err(source) => Err(Error::Parse { path, source }),
    }
}

/// Writes it, durably and in one step: whoever reads it at any moment, also after a crash, finds the last one or this one.
///
/// # Errors
/// When it cannot be written; the last one stays.
pub fn save_renewal_record(layout: &Layout, record: &RenewalRecord) -> Result<(), Error> {
    let document = Document::from(record);
    // Text, numbers and times always have a form in JSON.
    let mut json = serde_json::to_vec_pretty(&document).unwrap_or_default();
    json.push(b'\n');
    atomic_file::create_folder(&layout.state(), Access::Secret).map_err(Error::Write)?;
    atomic_file::write(&renewal_record_path(layout), &json, Access::Public).map_err(Error::Write)
}

/// As it is in the file. Fields that a later release adds are skipped.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Document {
    attempted_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    state: Option<State>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    result: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    finished_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "is_zero")]
    failures: u32,
}

/// A state that this release does not know makes the record unreadable, not a success.
#[derive(Serialize, Deserialize)]
enum State {
    #[serde(rename = "in progress")]
    InProgress,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands over a reference")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl From<&RenewalRecord> for Document {
    fn from(record: &RenewalRecord) -> Self {
        let in_progress = record.result == RenewalResult::InProgress;
        Self {
            attempted_at: record.attempted_at,
            state: in_progress.then_some(State::InProgress),
            result: shortened(record.text()),
            finished_at: record.finished_at.filter(|_| !in_progress),
            failures: record.failures,
        }
    }
}

impl From<Document> for RenewalRecord {
    fn from(document: Document) -> Self {
        let result = match document.state {
            Some(State::InProgress) => RenewalResult::InProgress,
            None if document.result.is_empty() => RenewalResult::Succeeded,
            None => RenewalResult::Failed(document.result),
        };
        Self {
            attempted_at: document.attempted_at,
            finished_at: document.finished_at,
            result,
            failures: document.failures,
        }
    }
}

/// The longest beginning of a text that fits.
fn shortened(text: &str) -> String {
    let end = text.floor_char_boundary(LONGEST_RESULT);
    text.get(..end).unwrap_or_default().to_owned()
}
