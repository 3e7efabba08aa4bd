//! Gives the images of a payload to containerd.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use futures::{StreamExt, TryStreamExt, stream};

use super::super::child::{Finished, Program};
use super::{Error, PinnedImage, Progress, Verified};

/// What [`import_images`] did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Imported {
    /// The names of the images that were imported, in order.
    pub imported: Vec<String>,
    /// How many were there already.
    pub present: usize,
}

/// Imports the images that containerd does not have yet under their name and with their digest, as many at a time as there
/// are processors, and marks all of them so that the kubelet never removes one to free space: nothing could bring it back.
///
/// `ctr` is containerd's command line, `socket` where containerd listens.
///
/// # Errors
/// Names the image, with the last words of `ctr`. What was imported before stays, and imports under way are ended.
pub async fn import_images(
    ctr: &Path,
    socket: &Path,
    payload: &Verified,
    progress: Progress,
) -> Result<Imported, Error> {
    let ctr = Ctr { ctr, socket };
    let mut known = ctr.images().await?;
    let is_there = |image: &PinnedImage| {
        let found = known.get(&image.reference);
        found.is_some_and(|found| found.digest == image.digest)
    };
    let (present, missing): (Vec<_>, Vec<_>) = payload.images().partition(|(image, _)| is_there(image));
    let import = |(image, archive): (&PinnedImage, PathBuf)| {
        let (ctr, reference) = (&ctr, image.reference.clone());
        async move {
            progress.say(&format!("importing {reference}"));
            let archive = archive.display().to_string();
            ctr.run(&[&IMPORT[..], &[&archive]].concat()).await?;
            Ok::<_, Error>(reference)
        }
    };
    // One import alone leaves a processor idle while it waits for the disk.
    let at_a_time = thread::available_parallelism().map_or(1, usize::from);
    let imports = stream::iter(missing.into_iter().map(import)).buffered(at_a_time);
    let outcome = Imported {
        imported: imports.try_collect().await?,
        present: present.len(),
    };
    if !outcome.imported.is_empty() {
        known = ctr.images().await?;
    }
    for (image, _) in payload.images() {
        let found = check(known.get(&image.reference), image)?;
        if !found.pinned {
            ctr.run(&["images", "label", &image.reference, PINNED]).await?;
        }
    }
    Ok(outcome)
}

/// Through `ctr` itself, under the names that the archives give and no others; on the disk when it returns.
const IMPORT: [&str; 7] = [
    "images",
    "import",
    "--local",
    "--digests=false",
    "--sync-fs",
    "--label",
    PINNED,
];

/// containerd's CRI plugin reports an image with it as pinned, and the kubelet removes no pinned image.
const PINNED: &str = "io.cri-containerd.pinned=pinned";

fn check<'a>(found: Option<&'a Known>, image: &PinnedImage) -> Result<&'a Known, Error> {
    match found {
        Some(found) if found.digest == image.digest => Ok(found),
        Some(_) | None => Err(Error::OtherDigest {
            reference: image.reference.clone(),
            expected: image.digest.clone(),
            found: found.map_or_else(|| "nothing".to_owned(), |found| found.digest.clone()),
        }),
    }
}

/// An image that containerd has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Known {
    pub(super) digest: String,
    pub(super) pinned: bool,
}

/// Reads the table of `ctr images ls`: name, type and digest, then size and platforms with spaces in them, labels last.
pub(super) fn parse(table: &str) -> BTreeMap<String, Known> {
    let row = |line: &str| {
        let mut columns = line.split_whitespace();
        let (name, _, digest) = (columns.next()?, columns.next()?, columns.next()?);
        let labels = columns.next_back().unwrap_or_default();
        let known = Known {
            digest: digest.to_owned(),
            pinned: labels.split(',').any(|label| label == PINNED),
        };
        digest.starts_with("sha256:").then(|| (name.to_owned(), known))
    };
    table.lines().skip(1).filter_map(row).collect()
}

struct Ctr<'a> {
    ctr: &'a Path,
    socket: &'a Path,
}

impl Ctr<'_> {
    async fn images(&self) -> Result<BTreeMap<String, Known>, Error> {
        Ok(parse(&self.run(&["images", "ls"]).await?))
    }

    async fn run(&self, arguments: &[&str]) -> Result<String, Error> {
        let socket = self.socket.display().to_string();
        let own = ["--address", &socket, "--namespace", "k8s.io"];
        let program = Program::new(self.ctr).arguments(own.iter().chain(arguments).copied());
        let failed = |how: String, said: &[u8]| {
            let said = String::from_utf8_lossy(said);
            let last: Vec<&str> = said.lines().rev().take(3).collect();
            Error::Ctr {
                command: arguments.join(" "),
                how,
                said: last.into_iter().rev().collect::<Vec<_>>().join(" | "),
            }
        };
        let finished = match tokio::time::timeout(LIMIT, program.run(Vec::new())).await {
            Ok(finished) => finished.map_err(Error::Run)?,
            Err(_) => return Err(failed(format!("no end after {LIMIT:?}"), b"")),
        };
        let Finished { exit, stdout, stderr } = finished;
        if !exit.is_success() {
            return Err(failed(exit.to_string(), &stderr));
        }
        Ok(String::from_utf8_lossy(&stdout).into_owned())
    }
}

/// Unpacking the largest image takes seconds; a slow disk is allowed a lot.
const LIMIT: Duration = Duration::from_secs(600);
