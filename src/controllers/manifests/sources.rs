//! The files of a listing as declared objects, parsed again only where bytes or sentinel values changed.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::host::folder::{FolderProblem, Listing, SourceFile};
use crate::reconcilers::manifests::report::{Refusal, RefusalReason};
use crate::reconcilers::manifests::source::cut::Cut;
use crate::reconcilers::manifests::source::{self, Declared, SentinelValues, SourceError, SourceErrorKind};
use crate::reconcilers::object::StackName;

use super::seen::Seen;

type Parsed = Result<Arc<Vec<Declared>>, SourceError>;

/// Parsed files by path, with the digest of the bytes they were parsed from.
#[derive(Default)]
pub(super) struct Cache {
    values: SentinelValues,
    files: BTreeMap<String, ([u8; 32], Parsed)>,
    /// What was made last, of which listing, and what was left out.
    last: Option<(Arc<Listing>, Vec<StackName>, Arc<Sources>)>,
}

/// What the files of a folder declare.
pub(super) struct Sources {
    pub(super) declared: Vec<(Option<StackName>, Arc<Vec<Declared>>)>,
    pub(super) refusals: Vec<Refusal>,
}

/// Parses what changed, and collects everything. `skip` are stacks whose files must not be applied in this pass.
///
/// The very listing of the pass before is not gone through again: what is taken at its word is so already, and what was
/// refused is refused again for the same reason.
pub(super) fn read(
    cache: &mut Cache,
    seen: &mut Seen,
    listing: &Arc<Listing>,
    values: &SentinelValues,
    skip: &[StackName],
) -> Arc<Sources> {
    if cache.values != *values {
        cache.values = values.clone();
        cache.files.clear();
        cache.last = None;
    }
    if let Some((before, skipped, sources)) = &cache.last
        && Arc::ptr_eq(before, listing)
        && skipped == skip
    {
        return Arc::clone(sources);
    }
    cache
        .files
        .retain(|path, _| listing.files.binary_search_by(|file| file.path.cmp(path)).is_ok());
    let mut sources = Sources {
        declared: Vec::new(),
        refusals: listing.problems.iter().map(unreadable).collect(),
    };
    for file in &listing.files {
        match one(cache, seen, file, values) {
            Ok((Some(stack), _)) if skip.contains(&stack) => {}
            Ok(found) => sources.declared.push(found),
            Err(refusal) => sources.refusals.push(refusal),
        }
    }
    let sources = Arc::new(sources);
    cache.last = Some((Arc::clone(listing), skip.to_vec(), Arc::clone(&sources)));
    sources
}

fn one(
    cache: &mut Cache,
    seen: &mut Seen,
    file: &SourceFile,
    values: &SentinelValues,
) -> Result<(Option<StackName>, Arc<Vec<Declared>>), Refusal> {
    let refuse = |line, reason, message: String| Refusal {
        file: file.path.clone(),
        line,
        object: None,
        stack: file.stack.clone(),
        reason,
        message,
    };
    let stack = file
        .stack
        .as_deref()
        .map(str::parse::<StackName>)
        .transpose()
        .map_err(|error| refuse(None, RefusalReason::StackName, format!("{error}; rename the folder")))?;
    if let Cut::EndsInsideADocument { line } = seen.judge(file) {
        let message = "it ends inside a document that was longer before, as a half-written file does; it is left alone until it changes";
        return Err(refuse(Some(line), RefusalReason::HalfWritten, message.to_owned()));
    }
    let parsed = match cache.files.get(&file.path) {
        Some((digest, parsed)) if *digest == file.digest => parsed.clone(),
        Some(_) | None => {
            let parsed = source::parse(&file.path, &file.bytes, values).map(Arc::new);
            cache.files.insert(file.path.clone(), (file.digest, parsed.clone()));
            parsed
        }
    };
    let declared = parsed.map_err(|error| {
        let reason = match error.kind {
            SourceErrorKind::Invalid => RefusalReason::Invalid,
            SourceErrorKind::HalfWritten => RefusalReason::HalfWritten,
            SourceErrorKind::UnresolvedSentinel => RefusalReason::UnresolvedSentinel,
        };
        refuse(error.line, reason, error.message)
    })?;
    seen.accept(file);
    Ok((stack, declared))
}

fn unreadable(problem: &FolderProblem) -> Refusal {
    Refusal {
        file: problem.path.clone(),
        line: None,
        object: None,
        stack: problem.stack.clone(),
        reason: RefusalReason::Unreadable,
        message: problem.message.clone(),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::io::Write;

    use super::*;
    use crate::host::folder::Folder;
    use crate::reconcilers::host_name::DnsName;

    /// What is kept is given again for the same listing, values and left-out stacks, and made anew for any other.
    #[test]
    fn sources_are_kept_for_the_very_listing_and_no_other() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("s")).unwrap();
        let write = |domain: &str| {
            let mut file = File::create(root.path().join("s/a.yaml")).unwrap();
            writeln!(
                file,
                "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: a}}\ndata: {{d: {domain}}}"
            )
            .unwrap();
        };
        write("\"@stratum:cluster-domain@\"");
        let (mut cache, mut seen) = (Cache::default(), Seen::load(root.path()));
        let mut folder = Folder::new(root.path().to_owned());
        let mut read = |values: &SentinelValues, skip: &[StackName]| {
            let listing = folder.read().unwrap();
            super::read(&mut cache, &mut seen, &listing, values, skip)
        };
        let reasons = |sources: &Sources| -> Vec<RefusalReason> {
            sources.refusals.iter().map(|refusal| refusal.reason).collect()
        };
        let (unknown, mut known) = (SentinelValues::default(), SentinelValues::default());
        known.cluster_domain = DnsName::new("cluster.local").ok();
        let first = read(&unknown, &[]);
        assert_eq!(reasons(&first), [RefusalReason::UnresolvedSentinel]);
        assert!(Arc::ptr_eq(&first, &read(&unknown, &[])));
        let second = read(&known, &[]);
        assert_eq!((second.declared.len(), second.refusals.len()), (1, 0));
        assert!(Arc::ptr_eq(&second, &read(&known, &[])));
        let stack: StackName = "s".parse().unwrap();
        assert_eq!(read(&known, &[stack]).declared.len(), 0);
        assert_eq!(read(&known, &[]).declared.len(), 1);
        write("[");
        assert_eq!(reasons(&read(&known, &[])), [RefusalReason::Invalid]);
        assert_eq!(
            reasons(&read(&known, &[])),
            [RefusalReason::Invalid],
            "refused each time"
        );
    }
}
