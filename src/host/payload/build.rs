//! Makes a payload from programs that are at hand.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use strum::IntoEnumIterator;

use super::super::assets::{Source, Tool};
use super::super::atomic_file::{self, Access};
use super::super::child::Program;
use super::super::digest::{Sum, Summing};
use super::super::images::Image;
use super::archive::{self, Contents};
use super::foreign::Foreign;
use super::lock::{Entry, LOCK, PayloadLock, PinnedImage};
use super::verify::strays;
use super::{Error, PROGRAMS, Progress, program_file};

/// What goes into a payload besides the programs and images made of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recipe {
    /// Image archives by the name the image shall have. One of our own names takes the place of the image we would make;
    /// any other is one more image that nodes import.
    pub archives: BTreeMap<String, PathBuf>,
    /// Files and folders of this machine that go into the images we make.
    pub includes: BTreeMap<Image, Vec<PathBuf>>,
}

/// What was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Built {
    /// What is in the payload.
    pub lock: PayloadLock,
    /// Images of ours that it lacks, since nobody gave an archive of them and we have no program for them.
    pub left_out: Vec<Image>,
    /// What was in the folder before and is no part of the payload.
    pub strays: Vec<String>,
}

/// Writes an image of programs, which run as they are, as an archive: for one that is no part of every payload.
///
/// # Errors
/// Names the archive.
pub fn write_image(reference: &str, programs: &[PathBuf], file: &Path) -> Result<(), Error> {
    let write = || {
        let image = archive::Image::new(Contents::of_programs(programs), reference, &platform())?;
        let mut sink = io::BufWriter::new(File::create(file)?);
        image.write(&mut sink)?;
        sink.flush()
    };
    write().map_err(|source| Error::Read {
        path: file.to_owned(),
        source,
    })
}

/// The platform of this program, and so of its payload: `linux/amd64`.
#[must_use]
pub(super) fn platform() -> String {
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    format!("linux/{architecture}")
}

/// Makes a payload in `folder`, which is new, empty, or a payload already: then what differs is replaced. Programs come
/// from `source`, which builds what it lacks.
///
/// # Errors
/// Names the program or file. The folder then has no lock, so that nobody takes it for a payload.
pub async fn build(source: &Source, recipe: &Recipe, folder: &Path, progress: Progress) -> Result<Built, Error> {
    check_folder(folder)?;
    let relative = recipe.includes.values().flatten().find(|path| !path.is_absolute());
    if let Some(path) = relative {
        return Err(Error::Relative { path: path.clone() });
    }
    let mut programs = BTreeMap::new();
    let made = Image::iter().filter(|image| !recipe.archives.contains_key(image.reference()));
    for tool in PROGRAMS.into_iter().chain(made.flat_map(programs_of)) {
        let [path] = source.provide([tool]).await?;
        match source {
            // Pinned: it cannot be another one.
            Source::Cache { .. } => {}
            Source::Folder(_) => check_version(tool, &path).await?,
        }
        programs.insert(tool, path);
    }
    for below in ["bin", "images"] {
        atomic_file::create_folder(&folder.join(below), Access::Public)?;
    }
    atomic_file::write(&folder.join(UNFINISHED), b"", Access::Public)?;
    atomic_file::remove(&folder.join(LOCK))?;
    let recipe = recipe.clone();
    let work = Work {
        recipe,
        programs,
        folder: folder.to_owned(),
        progress,
    };
    let joined = tokio::task::spawn_blocking(move || work.run()).await;
    joined.unwrap_or_else(|stopped| {
        Err(Error::Read {
            path: folder.to_owned(),
            source: io::Error::other(stopped),
        })
    })
}

/// Nothing is put beside what is somebody else's.
fn check_folder(folder: &Path) -> Result<(), Error> {
    match std::fs::read_dir(folder) {
        Ok(mut entries) => {
            let ours = [LOCK, UNFINISHED].iter().any(|name| folder.join(name).exists());
            if entries.next().is_none() || ours {
                return Ok(());
            }
            Err(Error::Occupied {
                path: folder.to_owned(),
            })
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(source) => Err(Error::Read {
            path: folder.to_owned(),
            source,
        }),
    }
}

/// Asks a program that somebody put there for its version: a wrong one would only be noticed on the nodes.
async fn check_version(tool: Tool, path: &Path) -> Result<(), Error> {
    let question: &[&str] = match tool {
        Tool::Kubectl => &["version", "--client"],
        Tool::Etcdctl => &["version"],
        Tool::ContainerdShimRuncV2 => &["-v"],
        Tool::Coredns => &["-version"],
        // It only waits.
        Tool::Pause => return Ok(()),
        Tool::Etcd
        | Tool::KubeApiserver
        | Tool::KubeControllerManager
        | Tool::KubeScheduler
        | Tool::KubeProxy
        | Tool::Kubelet
        | Tool::Kubeadm
        | Tool::Containerd
        | Tool::Ctr
        | Tool::Runc
        | Tool::Crictl
        | Tool::CniBridge
        | Tool::CniHostLocal
        | Tool::CniLoopback
        | Tool::CniPortmap
        | Tool::Registry => &["--version"],
    };
    let program = Program::new(path).arguments(question.iter().copied());
    let said = match tokio::time::timeout(ANSWER_LIMIT, program.run(Vec::new())).await {
        Ok(finished) => finished.map_err(Error::Ask)?.stdout,
        Err(_) => Vec::new(),
    };
    let said = String::from_utf8_lossy(&said);
    if says_version(&said, tool.version()) {
        return Ok(());
    }
    Err(Error::OtherVersion {
        path: path.to_owned(),
        needed: tool.version(),
        said: said.split_whitespace().collect::<Vec<_>>().join(" "),
    })
}

/// Whether the version stands in the answer by itself: 1.5.2 is not in 11.5.2 or 1.5.20.
fn says_version(said: &str, version: &str) -> bool {
    let is_digit = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_digit);
    said.match_indices(version).any(|(at, _)| {
        let bytes = said.as_bytes();
        !is_digit(at.checked_sub(1).and_then(|before| bytes.get(before))) && !is_digit(bytes.get(at + version.len()))
    })
}

const ANSWER_LIMIT: Duration = Duration::from_secs(30);

/// Says that the folder was being made into a payload: it may be gone on with. `/usr/local` has a `bin` as well.
const UNFINISHED: &str = "payload.unfinished";

/// What an image of ours is made of; what it runs comes first.
fn programs_of(image: Image) -> Vec<Tool> {
    match image {
        Image::Etcd => vec![Tool::Etcd, Tool::Etcdctl],
        Image::KubeApiserver => vec![Tool::KubeApiserver],
        Image::KubeControllerManager => vec![Tool::KubeControllerManager],
        Image::KubeScheduler => vec![Tool::KubeScheduler],
        Image::KubeProxy => vec![Tool::KubeProxy],
        Image::Coredns => vec![Tool::Coredns],
        Image::Pause => vec![Tool::Pause],
        // Its module cannot be built from.
        Image::KubeVip => Vec::new(),
    }
}

struct Work {
    recipe: Recipe,
    programs: BTreeMap<Tool, PathBuf>,
    folder: PathBuf,
    progress: Progress,
}

impl Work {
    fn run(&self) -> Result<Built, Error> {
        let mut lock = PayloadLock::new(platform());
        for tool in PROGRAMS {
            let file = program_file(tool).display().to_string();
            self.progress.say(&file);
            let from = self.path(tool);
            let sum = self.write(&file, Access::Executable, |sink| {
                io::copy(&mut File::open(&from)?, sink).map(drop)
            })?;
            lock.files.insert(file, entry(sum, tool.version(), None));
        }
        let mut left_out = Vec::new();
        for image in Image::iter() {
            let given = self.recipe.archives.contains_key(image.reference());
            match programs_of(image).as_slice() {
                _ if given => {}
                [] => left_out.push(image),
                programs => {
                    let file = format!("images/{}.tar", image.name());
                    let entry = self.make(image, programs, &file)?;
                    lock.files.insert(file, entry);
                }
            }
        }
        for (reference, path) in &self.recipe.archives {
            let file = format!("images/{}.tar", file_name(reference));
            let entry = self.take(reference, path, &file)?;
            lock.files.insert(file, entry);
        }
        lock.save(&self.folder.join(LOCK))?;
        atomic_file::remove(&self.folder.join(UNFINISHED))?;
        let strays = strays(&self.folder, &lock)?;
        Ok(Built { lock, left_out, strays })
    }

    fn make(&self, image: Image, programs: &[Tool], file: &str) -> Result<Entry, Error> {
        self.progress.say(file);
        let paths: Vec<PathBuf> = programs.iter().map(|tool| self.path(*tool)).collect();
        let mut contents = Contents::of_programs(&paths);
        for path in self.recipe.includes.get(&image).into_iter().flatten() {
            contents.include(path)?;
        }
        let made = archive::Image::new(contents, image.reference(), &platform());
        let made = made.map_err(|source| Error::Read {
            path: paths.first().cloned().unwrap_or_default(),
            source,
        })?;
        let sum = self.write(file, Access::Public, |sink| made.write(sink))?;
        Ok(entry_of_image(sum, image.reference(), made.digest))
    }

    fn take(&self, reference: &str, path: &Path, file: &str) -> Result<Entry, Error> {
        self.progress.say(file);
        let foreign = Foreign::open(path, reference)?;
        let sum = self.write(file, Access::Public, |sink| foreign.write(sink))?;
        Ok(entry_of_image(sum, reference, foreign.digest))
    }

    fn path(&self, tool: Tool) -> PathBuf {
        self.programs.get(&tool).cloned().unwrap_or_default()
    }

    fn write(
        &self,
        file: &str,
        access: Access,
        fill: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> Result<Sum, Error> {
        let mut sum = None;
        atomic_file::write_from(&self.folder.join(file), access, |target| {
            let mut sink = Summing::new(io::BufWriter::with_capacity(1 << 20, target));
            fill(&mut sink)?;
            sink.flush()?;
            sum = Some(sink.finish());
            Ok(())
        })?;
        sum.ok_or_else(|| Error::Changed {
            path: self.folder.join(file),
        })
    }
}

fn entry(Sum { size, sha256 }: Sum, version: &str, image: Option<PinnedImage>) -> Entry {
    Entry {
        version: version.to_owned(),
        size,
        sha256,
        image,
    }
}

fn entry_of_image(sum: Sum, reference: &str, digest: String) -> Entry {
    let tag = reference.rsplit_once(':').map_or("", |(_, tag)| tag);
    let image = PinnedImage {
        reference: reference.to_owned(),
        digest,
    };
    entry(sum, tag, Some(image))
}

/// Our short name for an image of ours, else the reference with what a file name cannot hold replaced.
fn file_name(reference: &str) -> String {
    let own = Image::iter().find(|image| image.reference() == reference);
    own.map_or_else(
        || {
            reference.replace(
                |character: char| !(character.is_ascii_alphanumeric() || "-.".contains(character)),
                "_",
            )
        },
        |image| image.name().to_owned(),
    )
}
