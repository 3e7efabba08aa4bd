//! Bytes of a file -> declared objects, read as kubectl reads them.
//!
//! Everything here is pure: bytes in, [`Declared`] or one [`SourceError`] out. What kubectl would change in silence (a
//! duplicate key, an unquoted value that tools read differently, a half-written tail) is an error that names file and
//! line; the one thing it drops in silence, documents after `...`, is read.
//!
//! - [`documents`]: where a file's documents start and end.
//! - [`value`], [`scalar`] and [`json`]: a document's text as a JSON value.
//! - [`object`]: a value as Kubernetes objects.
//! - [`sentinels`]: the tokens that stand for a value of the cluster.
//! - [`cut`]: whether a file was cut short since the last look.
//! - [`line`]: the line of a field the API server complains about.

pub mod cut;
mod documents;
mod json;
pub mod line;
mod object;
mod scalar;
pub mod sentinels;
mod value;

use serde_json::Value;
use strum::IntoStaticStr;

pub use self::sentinels::{SentinelValues, sentinels_in};

/// Where an object is declared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The file, relative to the manifests folder.
    pub file: String,
    /// The document in it, counted from 1.
    pub document: usize,
    /// The first line of the document, counted from 1.
    pub line: usize,
}

/// One declared object.
#[derive(Clone, Debug, PartialEq)]
pub struct Declared {
    /// Where.
    pub origin: Origin,
    /// Its `apiVersion`.
    pub api_version: String,
    /// Its `kind`.
    pub kind: String,
    /// Its `metadata.namespace`, if it names one.
    pub namespace: Option<String>,
    /// Its `metadata.name`.
    pub name: String,
    /// The whole object.
    pub body: Value,
}

/// Why a file is refused as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum SourceErrorKind {
    /// It is no YAML, or a document of it is no Kubernetes object.
    Invalid,
    /// It looks as if its writer did not finish.
    HalfWritten,
    /// It asks for a value the cluster state does not have.
    UnresolvedSentinel,
}

/// Why a file is refused, where, and what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}{}: {message}", .line.map(|l| format!(":{l}")).unwrap_or_default())]
pub struct SourceError {
    /// The file, relative to the manifests folder.
    pub file: String,
    /// The line, counted from 1, if the reason has one.
    pub line: Option<usize>,
    /// What sort of reason.
    pub kind: SourceErrorKind,
    /// What is wrong and what to do, on one line.
    pub message: String,
}

/// Reads a file's objects. An empty file and one of comments only have none, and that is no error.
///
/// # Errors
/// The first [`SourceError`] of the file; nothing of the file is to be applied then.
pub fn parse(file: &str, bytes: &[u8], values: &SentinelValues) -> Result<Vec<Declared>, SourceError> {
    let text = whole_text(file, bytes)?;
    let text = sentinels::replace(file, text.to_owned(), values)?;
    let error = |line, message| SourceError {
        file: file.to_owned(),
        line,
        kind: SourceErrorKind::Invalid,
        message,
    };
    let documents = documents::split(&text).map_err(|line| {
        error(
            Some(line),
            "text follows --- on the same line, which kubectl refuses; put it on a line of its own".to_owned(),
        )
    })?;
    let mut declared = Vec::new();
    for document in documents {
        let origin = Origin {
            file: file.to_owned(),
            document: document.number,
            line: document.line,
        };
        for value in value::values(document.text, document.line).map_err(|e| error(e.line, e.message))? {
            object::expand(&origin, value, &mut declared).map_err(|message| error(Some(origin.line), message))?;
        }
    }
    Ok(declared)
}

/// The checks of a file as a whole: is it all there, and is it text.
fn whole_text<'a>(file: &str, bytes: &'a [u8]) -> Result<&'a str, SourceError> {
    let lines = |end: usize| Some(1 + bytes[..end].iter().filter(|b| **b == b'\n').count());
    let error = |at, kind, message: &str| SourceError {
        file: file.to_owned(),
        line: lines(at),
        kind,
        message: message.to_owned(),
    };
    if bytes.starts_with(&[0xff, 0xfe]) || bytes.starts_with(&[0xfe, 0xff]) {
        return Err(error(
            0,
            SourceErrorKind::Invalid,
            "it is UTF-16 text; save it as UTF-8",
        ));
    }
    if let Some(at) = bytes.iter().position(|b| *b == 0) {
        let message = "it holds a NUL byte, as a file does whose writer or machine stopped half way; write it again";
        return Err(error(at, SourceErrorKind::HalfWritten, message));
    }
    match std::str::from_utf8(bytes) {
        Err(reason) if reason.error_len().is_some() => {
            let message = "it is not UTF-8 text; save it as UTF-8, and put binary data in base64";
            Err(error(reason.valid_up_to(), SourceErrorKind::Invalid, message))
        }
        Ok(text) if text.is_empty() || text.ends_with('\n') => Ok(text),
        Ok(_) | Err(_) => {
            let message = "it does not end with a line break, so it may be half written; finish it, or add the line \
                           break";
            Err(error(bytes.len(), SourceErrorKind::HalfWritten, message))
        }
    }
}

#[cfg(test)]
mod tests;
