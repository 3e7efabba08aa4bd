//! Whether the bundled stacks are the ones that were staged. Telling takes a look at every byte of them, so the verdict on
//! a folder and a record is kept as long as both stay the same.

use crate::host::folder::Listing;
use crate::reconcilers::inventory::desired::{self, Desired, Verdict};
use crate::reconcilers::manifests::report::{Refusal, RefusalReason};
use crate::reconcilers::object::StackName;

/// The last verdict, and what it was about.
pub(super) struct Verified {
    folder: [u8; 32],
    record: Desired,
    verdict: Verdict,
}

/// The bundled stacks whose files are not the ones that were staged: refused for this pass.
pub(super) fn mismatched(
    verified: &mut Option<Verified>,
    listing: &Listing,
    record: Option<&Desired>,
    refusals: &mut Vec<Refusal>,
) -> Vec<StackName> {
    let Some(record) = record else {
        return Vec::new();
    };
    match verify(verified, listing, record) {
        Verdict::NoRecord | Verdict::Empty | Verdict::Matches => Vec::new(),
        Verdict::Mismatch { expected, found } => {
            for stack in &record.stacks {
                refusals.push(Refusal {
                    file: stack.to_string(),
                    line: None,
                    object: None,
                    stack: Some(stack.to_string()),
                    reason: RefusalReason::DigestMismatch,
                    message: format!(
                        "this bundled stack is not what generation {} recorded (digest {expected:.12}, found {found:.12}); stage the bundles again, or restore the files",
                        record.generation
                    ),
                });
            }
            record.stacks.clone()
        }
    }
}

fn verify<'a>(verified: &'a mut Option<Verified>, listing: &Listing, record: &Desired) -> &'a Verdict {
    let known = verified
        .take()
        .filter(|known| known.folder == listing.digest && known.record == *record);
    let known = known.unwrap_or_else(|| {
        let files = listing.files.iter().map(|file| (&file.path, &file.bytes));
        Verified {
            folder: listing.digest,
            record: record.clone(),
            verdict: desired::verify(Some(record), files),
        }
    });
    &verified.insert(known).verdict
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::io::Write;

    use super::*;
    use crate::host::folder::Folder;

    fn record(digest: String) -> Desired {
        let record = serde_json::json!({
            "generation": 3,
            "digest": digest,
            "provenance": {"version": "1.0.0", "node": "a", "at": "2026-01-01T00:00:00Z"},
            "stacks": ["s"],
        });
        serde_json::from_value(record).unwrap()
    }

    #[test]
    fn a_verdict_is_kept_for_the_very_folder_and_record_and_no_other() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("s")).unwrap();
        let mut folder = Folder::new(root.path().to_owned());
        let mut listing = |text: &str| {
            let mut file = File::create(root.path().join("s/a.yaml")).unwrap();
            file.write_all(text.as_bytes()).unwrap();
            folder.read().unwrap()
        };
        let staged = record(desired::digest([("s/a.yaml", "1")]));
        let mut verified = None;
        assert_eq!(verify(&mut verified, &listing("1"), &staged), &Verdict::Matches);
        // A verdict that no look at the bytes would give.
        verified.as_mut().unwrap().verdict = Verdict::Empty;
        assert_eq!(verify(&mut verified, &listing("1"), &staged), &Verdict::Empty);
        let mismatch = |verdict: &Verdict| matches!(verdict, Verdict::Mismatch { .. });
        assert!(mismatch(verify(&mut verified, &listing("2"), &staged)));
        assert_eq!(verify(&mut verified, &listing("1"), &staged), &Verdict::Matches);
        assert!(mismatch(verify(&mut verified, &listing("1"), &record("other".into()))));
        assert_eq!(verify(&mut verified, &listing("1"), &staged), &Verdict::Matches);
    }

    #[test]
    fn every_stack_of_a_mismatch_is_refused_each_time() {
        let root = tempfile::tempdir().unwrap();
        let listing = Folder::new(root.path().to_owned()).read().unwrap();
        let mut verified = None;
        for _ in 0..2 {
            let mut refusals = Vec::new();
            let staged = record("0123456789abcdef".into());
            let skip = mismatched(&mut verified, &listing, Some(&staged), &mut refusals);
            assert_eq!(skip, staged.stacks);
            let [refusal] = refusals.as_slice() else {
                panic!("{refusals:?}");
            };
            assert_eq!(refusal.reason, RefusalReason::DigestMismatch);
            assert!(
                refusal
                    .to_string()
                    .contains("generation 3 recorded (digest 0123456789ab, found e3b0c44298fc)")
            );
        }
        assert!(mismatched(&mut verified, &listing, None, &mut Vec::new()).is_empty());
    }
}
