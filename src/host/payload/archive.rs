//! Container images made of files, as OCI image layouts in a tar archive: one layer, the same bytes for the same files.
//!
//! Formats: <https://github.com/opencontainers/image-spec> (image layout, manifest, configuration). The layer is written
//! twice, once to learn its digest and once into the archive, which saves a copy of it on the disk.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::super::digest::{self, Sum, Summing};
use super::Error;

/// What an image shall be.
#[derive(Debug)]
pub(super) struct Contents {
    /// Files of this machine by their path in the image, without the leading `/`.
    files: BTreeMap<PathBuf, PathBuf>,
    entrypoint: String,
}

impl Contents {
    /// Programs in `/usr/local/bin`, the first being what the image runs.
    pub(super) fn of_programs(programs: &[PathBuf]) -> Self {
        let name = |path: &PathBuf| path.file_name().unwrap_or_default().to_owned();
        let place = |path: &PathBuf| Path::new("usr/local/bin").join(name(path));
        let first = programs.first().map(place).unwrap_or_default();
        Self {
            files: programs.iter().map(|path| (place(path), path.clone())).collect(),
            entrypoint: format!("/{}", first.display()),
        }
    }

    /// Adds a file of this machine, or all files of a folder, under the same path. A link is followed, so that what it
    /// leads to is in the image under the link's name.
    pub(super) fn include(&mut self, path: &Path) -> Result<(), Error> {
        let Ok(place) = path.strip_prefix("/") else {
            return Err(Error::Relative { path: path.to_owned() });
        };
        let read = |source| Error::Read {
            path: path.to_owned(),
            source,
        };
        if !std::fs::metadata(path).map_err(read)?.is_dir() {
            self.files.insert(place.to_owned(), path.to_owned());
            return Ok(());
        }
        for entry in std::fs::read_dir(path).map_err(read)? {
            self.include(&entry.map_err(read)?.path())?;
        }
        Ok(())
    }

    /// Every folder that the layer needs, those above first.
    fn folders(&self) -> BTreeSet<PathBuf> {
        let places = self
            .files
            .keys()
            .map(PathBuf::as_path)
            .chain([Path::new("etc/x"), Path::new("tmp/x")]);
        let above = places.flat_map(|place| place.ancestors().skip(1));
        above
            .filter(|folder| !folder.as_os_str().is_empty())
            .map(Path::to_owned)
            .collect()
    }

    fn write_layer<W: Write>(&self, sink: W) -> io::Result<W> {
        let mut tar = tar::Builder::new(sink);
        for folder in self.folders() {
            // As on every system: anybody may write to /tmp, and nobody may remove what is another's.
            let mode = if folder == Path::new("tmp") { 0o1777 } else { 0o755 };
            let mut header = header(tar::EntryType::Directory, 0, mode);
            tar.append_data(&mut header, &folder, io::empty())?;
        }
        for (place, path) in &self.files {
            let file = File::open(path)?;
            let metadata = file.metadata()?;
            let executable = metadata.permissions().mode() & 0o111 != 0;
            let mode = if executable { 0o755 } else { 0o644 };
            let mut header = header(tar::EntryType::Regular, metadata.len(), mode);
            // Never more than the header says, nor less: that would shift all that follows.
            let mut exact = file.take(metadata.len());
            tar.append_data(&mut header, place, &mut exact)?;
            if exact.limit() > 0 {
                return Err(io::Error::other(format!("{} became shorter", path.display())));
            }
        }
        tar.into_inner()
    }
}

/// An image that can be written.
#[derive(Debug)]
pub(super) struct Image {
    contents: Contents,
    layer: Sum,
    config: Vec<u8>,
    manifest: Vec<u8>,
    index: Vec<u8>,
    /// `sha256:...` of the manifest.
    pub(super) digest: String,
}

impl Image {
    /// Reads the files once. `platform` is `OS/ARCHITECTURE`.
    pub(super) fn new(contents: Contents, reference: &str, platform: &str) -> io::Result<Self> {
        let layer = contents.write_layer(Summing::new(io::sink()))?.finish();
        let (os, architecture) = platform.split_once('/').unwrap_or((platform, ""));
        let config = json!({
            "architecture": architecture,
            "config": {
                "Entrypoint": [contents.entrypoint],
                "Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"],
            },
            "created": "1970-01-01T00:00:00Z",
            "history": [{"created": "1970-01-01T00:00:00Z", "created_by": "stratum payload build"}],
            "os": os,
            "rootfs": {"type": "layers", "diff_ids": [format!("sha256:{}", layer.sha256)]},
        });
        let config = config.to_string().into_bytes();
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": descriptor("application/vnd.oci.image.config.v1+json", &digest::of_bytes(&config)),
            "layers": [descriptor("application/vnd.oci.image.layer.v1.tar", &layer)],
        });
        let manifest = manifest.to_string().into_bytes();
        let sum = digest::of_bytes(&manifest);
        let mut described = descriptor(MANIFEST, &sum);
        described["platform"] = json!({"architecture": architecture, "os": os});
        let index = index(described, reference);
        Ok(Self {
            contents,
            layer,
            config,
            manifest,
            index,
            digest: format!("sha256:{}", sum.sha256),
        })
    }

    /// Writes the archive.
    pub(super) fn write(&self, sink: impl Write) -> io::Result<()> {
        let mut tar = tar::Builder::new(sink);
        begin(&mut tar, &self.index)?;
        for blob in [&self.config, &self.manifest] {
            append(&mut tar, &blob_path(&digest::of_bytes(blob).sha256), blob)?;
        }
        let mut header = header(tar::EntryType::Regular, self.layer.size, 0o644);
        header.set_path(blob_path(&self.layer.sha256))?;
        header.set_cksum();
        // The builder takes content from readers only, and a layer is written.
        let sink = tar.get_mut();
        sink.write_all(header.as_bytes())?;
        let layer = self.contents.write_layer(Summing::new(&mut *sink))?.finish();
        if layer != self.layer {
            return Err(io::Error::other("a file that was packed has changed meanwhile"));
        }
        let padding = (BLOCK - layer.size % BLOCK) % BLOCK;
        io::copy(&mut io::repeat(0).take(padding), sink)?;
        tar.into_inner()?.flush()
    }
}

/// The unit of tar.
const BLOCK: u64 = 512;

/// What every archive begins with.
pub(super) fn begin<W: Write>(tar: &mut tar::Builder<W>, index: &[u8]) -> io::Result<()> {
    append(tar, "oci-layout", br#"{"imageLayoutVersion":"1.0.0"}"#)?;
    append(tar, INDEX, index)
}

/// The index of an archive with one image, which names it the way containerd and others read.
pub(super) fn index(mut described: Value, reference: &str) -> Vec<u8> {
    let tag = reference.rsplit_once(':').map_or(reference, |(_, tag)| tag);
    described["annotations"] = json!({
        "io.containerd.image.name": reference,
        "org.opencontainers.image.ref.name": tag,
    });
    json!({"schemaVersion": 2, "mediaType": LIST, "manifests": [described]})
        .to_string()
        .into_bytes()
}

pub(super) const INDEX: &str = "index.json";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const LIST: &str = "application/vnd.oci.image.index.v1+json";

fn descriptor(media_type: &str, sum: &Sum) -> Value {
    json!({"mediaType": media_type, "digest": format!("sha256:{}", sum.sha256), "size": sum.size})
}

pub(super) fn blob_path(sha256: &str) -> String {
    format!("blobs/sha256/{sha256}")
}

/// Nothing of this machine or this moment: no owner, no time.
pub(super) fn header(kind: tar::EntryType, size: u64, mode: u32) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(kind);
    header.set_size(size);
    header.set_mode(mode);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header
}

fn append<W: Write>(tar: &mut tar::Builder<W>, path: &str, bytes: &[u8]) -> io::Result<()> {
    let mut header = header(tar::EntryType::Regular, bytes.len() as u64, 0o644);
    tar.append_data(&mut header, path, bytes)
}
