//! Whether a file was cut short since the last look.
//!
//! Half a YAML file is often a shorter, valid YAML file, and what it no longer declares would be pruned. A file that
//! lost whole documents is taken at its word (somebody removed them); one that ends inside a document is not.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::documents::{LineKind, line_kind};
use crate::pki::hexadecimal;

/// What is remembered of one document of a file, across restarts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DocumentDigest {
    /// SHA-256 of the document's bytes, in hex.
    pub sha256: String,
    /// Its length in bytes.
    pub length: u64,
}

/// What [`judge`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// The file is new, changed in some ordinary way, or lost whole documents.
    Whole,
    /// It stops in the middle of a document it held before.
    EndsInsideADocument {
        /// The line of its end, counted from 1.
        line: usize,
    },
}

/// The digests of a file's documents, empty ones left out. Any bytes will do: nothing is parsed.
#[must_use]
pub fn digests(bytes: &[u8]) -> Vec<DocumentDigest> {
    pieces(bytes)
        .into_iter()
        .map(|piece| DocumentDigest {
            sha256: hexadecimal(&Sha256::digest(piece)),
            length: piece.len() as u64,
        })
        .collect()
}

/// Compares a file with what is remembered of it: its bytes while the process runs, the digests after a restart.
///
/// The digests only see files that end with a line break; [`super::parse`] refuses the others anyway.
#[must_use]
pub fn judge(previous: Option<&[DocumentDigest]>, previous_bytes: Option<&[u8]>, now: &[u8]) -> Cut {
    let inside = match (previous_bytes, previous) {
        (Some(before), _) => before.len() > now.len() && before.starts_with(now) && !at_boundary(before, now),
        (None, Some(before)) => cut_by_digests(before, &digests(now)),
        (None, None) => false,
    };
    if inside {
        Cut::EndsInsideADocument {
            line: now.split_inclusive(|b| *b == b'\n').count().max(1),
        }
    } else {
        Cut::Whole
    }
}

/// Whether a prefix `now` of `before` ends where a document ends: all its documents are whole ones of `before`.
fn at_boundary(before: &[u8], now: &[u8]) -> bool {
    let (before, now) = (pieces(before), pieces(now));
    // An emptied file is what "write again from the start" looks like half way; it is the caller's rule for vanished
    // documents (two equal looks a second apart) that covers it.
    now.len() <= before.len() && now.iter().zip(&before).all(|(n, b)| n == b)
}

fn cut_by_digests(before: &[DocumentDigest], now: &[DocumentDigest]) -> bool {
    let Some((last, whole)) = now.split_last() else {
        return false;
    };
    let Some(was) = before.get(whole.len()) else {
        return false;
    };
    // The last document may have been the only one left of a cut; edits that shorten it lose no document.
    now.len() < before.len() && before.starts_with(whole) && last != was && last.length < was.length
}

/// The documents' bytes, blank and comment lines at both ends left out.
fn pieces(bytes: &[u8]) -> Vec<&[u8]> {
    let mut pieces = Vec::new();
    let mut open: Option<usize> = None;
    let mut end = 0;
    let mut offset = 0;
    for line in bytes.split_inclusive(|b| *b == b'\n') {
        let next = offset + line.len();
        match kind(line) {
            LineKind::Start | LineKind::End => pieces.extend(open.take().map(|start| &bytes[start..end])),
            LineKind::Blank => {}
            LineKind::Directive | LineKind::Doubtful | LineKind::Content => {
                open.get_or_insert(offset);
                end = next;
            }
        }
        offset = next;
    }
    pieces.extend(open.map(|start| &bytes[start..end]));
    pieces
}

fn kind(line: &[u8]) -> LineKind {
    std::str::from_utf8(line).map_or(LineKind::Content, line_kind)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const FILE: &str =
        "# head\na: 1\nb:\n- 2\n---\nc: 3\n\n# x\nd: 4\n# end\n--- # next\ne: |\n  5\n  6\n...\n---\nf: 7\n";

    #[test]
    fn whole_documents_may_go() {
        let both = |now: &str| {
            let by_bytes = judge(None, Some(FILE.as_bytes()), now.as_bytes());
            assert_eq!(
                judge(Some(&digests(FILE.as_bytes())), None, now.as_bytes()),
                by_bytes,
                "{now:?}"
            );
            by_bytes
        };
        let before = |mark: &str| &FILE[..FILE.find(mark).unwrap()];
        assert_eq!(both(before("---\nc")), Cut::Whole);
        assert_eq!(both(before("c: 3")), Cut::Whole, "a trailing ---");
        assert_eq!(both(before("--- # next")), Cut::Whole);
        assert_eq!(both(before("# end")), Cut::Whole, "a trailing comment is no content");
        assert_eq!(both(before("f: 7")), Cut::Whole);
        assert_eq!(both(""), Cut::Whole);
        assert_eq!(both(before("# x")), Cut::EndsInsideADocument { line: 7 });
        assert_eq!(both(before("  6")), Cut::EndsInsideADocument { line: 13 });
    }

    #[test]
    fn ordinary_edits_are_whole() {
        let digests = digests(FILE.as_bytes());
        for now in [
            FILE.to_owned(),
            FILE.replace("c: 3", "c: 30"),
            FILE.replace("a: 1\n", ""),
            format!("{FILE}g: 8\n"),
        ] {
            assert_eq!(judge(Some(&digests), None, now.as_bytes()), Cut::Whole);
            assert_eq!(judge(Some(&digests), Some(FILE.as_bytes()), now.as_bytes()), Cut::Whole);
        }
        assert_eq!(judge(None, None, b"a: 1\n"), Cut::Whole);
    }

    /// Every byte prefix: whole exactly if what it declares is the first so many documents, complete.
    #[test]
    fn every_prefix() {
        let complete: Vec<String> = pieces(FILE.as_bytes())
            .iter()
            .map(|p| String::from_utf8_lossy(p).into())
            .collect();
        assert_eq!(complete.len(), 4);
        for end in 0..FILE.len() {
            let now = &FILE[..end];
            let texts: Vec<String> = pieces(now.as_bytes())
                .iter()
                .map(|p| String::from_utf8_lossy(p).into())
                .collect();
            let whole = complete.starts_with(&texts);
            let cut = judge(None, Some(FILE.as_bytes()), now.as_bytes());
            assert_eq!(cut == Cut::Whole, whole, "{now:?}");
        }
    }

    proptest! {
        /// A file of any documents, cut anywhere: whatever is kept of the last one is complete or refused.
        #[test]
        fn nothing_is_lost_in_silence(
            documents in prop::collection::vec("([a-e]: [0-9]{1,3}\n|# [a-z]{3}\n|\n){1,5}", 1..5),
            share in 0.0f64..1.0,
        ) {
            let file = documents.join("---\n");
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of a short text")]
            let end = (file.len() as f64 * share) as usize;
            let now = &file.as_bytes()[..end];
            let (before, after) = (pieces(file.as_bytes()), pieces(now));
            if judge(None, Some(file.as_bytes()), now) == Cut::Whole {
                prop_assert!(before.starts_with(&after));
            } else {
                prop_assert!(!before.starts_with(&after));
            }
            // After a restart only the digests are left: never a false alarm, and no miss when a document was lost.
            let restarted = judge(Some(&digests(file.as_bytes())), None, now);
            if restarted != Cut::Whole {
                prop_assert!(!before.starts_with(&after));
            } else if after.len() < before.len() && now.ends_with(b"\n") {
                prop_assert!(before.starts_with(&after));
            }
        }
    }
}
