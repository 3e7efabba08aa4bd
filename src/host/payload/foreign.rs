//! Images that somebody else made: copied into the payload under the name they shall have there.
//!
//! Taken are OCI image layouts in a tar archive, as `docker save` (25 and newer), `podman save --format oci-archive`,
//! `skopeo copy ... oci-archive:FILE` and `ctr images export` write them. Only blobs are copied; the index is written anew
//! with our name in it, so that the archive needs no options when it is imported.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;

use serde_json::Value;

use super::super::digest::Summing;
use super::Error;
use super::archive::{self, INDEX};

/// An archive that was looked into.
#[derive(Debug)]
pub(super) struct Foreign<'a> {
    path: &'a Path,
    reference: &'a str,
    index: Vec<u8>,
    /// `sha256:...` of the image's manifest, or of its list of manifests.
    pub(super) digest: String,
}

impl<'a> Foreign<'a> {
    /// Looks into the archive at `path` for the image that shall be `reference`.
    pub(super) fn open(path: &'a Path, reference: &'a str) -> Result<Self, Error> {
        let refused = |reason: String| Error::Foreign {
            path: path.to_owned(),
            reference: reference.to_owned(),
            reason,
        };
        let found = entry(path, INDEX).map_err(|error| refused(format!("it is no tar archive ({error})")))?;
        let Some(index) = found else {
            return Err(refused(
                "it has no index.json, so it is no OCI image layout (compressed archives have to be unpacked first)"
                    .to_owned(),
            ));
        };
        let index: Value =
            serde_json::from_slice(&index).map_err(|error| refused(format!("its index.json is no JSON ({error})")))?;
        let described = choose(&index, reference).map_err(refused)?;
        let digest = described["digest"].as_str().unwrap_or_default().to_owned();
        if !digest.starts_with("sha256:") {
            return Err(refused(format!(
                "its image has the digest {digest:?}, and only sha256 is known"
            )));
        }
        Ok(Self {
            path,
            reference,
            index: archive::index(described, reference),
            digest,
        })
    }

    /// Copies it, checking every blob.
    pub(super) fn write(&self, sink: impl Write) -> io::Result<()> {
        let mut to = tar::Builder::new(sink);
        archive::begin(&mut to, &self.index)?;
        let mut from = tar::Archive::new(File::open(self.path)?);
        let mut has_image = false;
        for entry in from.entries()? {
            let mut entry = entry?;
            let place = entry.path()?.to_string_lossy().trim_start_matches("./").to_owned();
            let Some(sha256) = place.strip_prefix("blobs/sha256/").filter(|name| !name.is_empty()) else {
                continue;
            };
            let (size, sha256) = (entry.size(), sha256.to_owned());
            let mut header = archive::header(tar::EntryType::Regular, size, 0o644);
            let mut summed = Tee {
                from: &mut entry,
                sum: Summing::new(io::sink()),
            };
            to.append_data(&mut header, archive::blob_path(&sha256), &mut summed)?;
            if summed.sum.finish().sha256 != sha256 {
                let problem = format!("its blob {sha256} has another content than its name says");
                return Err(io::Error::new(io::ErrorKind::InvalidData, problem));
            }
            has_image |= self.digest == format!("sha256:{sha256}");
        }
        if !has_image {
            let problem = format!("it has no blob {} for {}", self.digest, self.reference);
            return Err(io::Error::new(io::ErrorKind::InvalidData, problem));
        }
        to.into_inner()?.flush()
    }
}

/// The content of one entry.
fn entry(path: &Path, name: &str) -> io::Result<Option<Vec<u8>>> {
    let mut archive = tar::Archive::new(File::open(path)?);
    for entry in archive.entries()? {
        let entry = entry?;
        if entry.path()?.to_string_lossy().trim_start_matches("./") == name {
            let mut content = Vec::new();
            entry.take(LONGEST_INDEX).read_to_end(&mut content)?;
            return Ok(Some(content));
        }
    }
    Ok(None)
}

/// The only image, or the one that is called so.
fn choose(index: &Value, reference: &str) -> Result<Value, String> {
    let images = index["manifests"].as_array().map(Vec::as_slice).unwrap_or_default();
    let called = |image: &&Value| {
        let names = &image["annotations"];
        ["io.containerd.image.name", "org.opencontainers.image.ref.name"]
            .iter()
            .any(|key| names[key] == reference)
    };
    match (images, images.iter().find(called)) {
        ([], _) => Err("there is no image in it".to_owned()),
        ([only], _) => Ok(only.clone()),
        (_, Some(image)) => Ok(image.clone()),
        (several, None) => Err(format!("it holds {} images, none of that name", several.len())),
    }
}

/// An index of thousands of images; a longer one is no index.
const LONGEST_INDEX: u64 = 4 << 20;

/// Sums up what is read.
struct Tee<R> {
    from: R,
    sum: Summing<io::Sink>,
}

impl<R: Read> Read for Tee<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.from.read(buffer)?;
        self.sum.write_all(&buffer[..length])?;
        Ok(length)
    }
}
