//! `stratum payload`: the folder of programs and images that nodes are made of.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context, bail};
use serde_json::json;

use super::exit::Exit;
use super::printer::{self, Output};
use crate::host::assets::Source;
use crate::host::images::Image;
use crate::host::layout::Layout;
use crate::host::payload::{self, Built, Error, Needs, Progress, Recipe, Verified};

/// The flags of `stratum payload`.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Make a payload, on a machine where its programs are or can be built, to be carried to the nodes
    ///
    /// Programs are taken from the folder in KUBEBUILDER_ASSETS; without one they are built from pinned sources, which
    /// takes minutes the first time and needs Go and its module proxy. Container images are made of the programs, unless
    /// an archive is given. Copy the whole folder to each node, to /var/lib/stratum/payload or where --payload names it.
    Build {
        #[command(flatten)]
        folder: Folder,
        /// Take an image from an archive (an OCI layout, as `docker save` or `skopeo copy ... oci-archive:FILE` write)
        /// under this name: instead of the one that would be made, or as one more that every node imports, a CNI's for
        /// example
        #[arg(long = "image", value_name = "REFERENCE=ARCHIVE", value_parser = pair)]
        images: Vec<(String, PathBuf)>,
        /// Put a file or folder of this machine into an image that is made, under its own path. kube-proxy needs nft or
        /// iptables and every library that `ldd` says they need
        #[arg(long = "include", value_name = "IMAGE=PATH", value_parser = pair)]
        includes: Vec<(String, PathBuf)>,
    },
    /// Check a payload: every file against payload.lock, and that nothing is missing for a node
    Verify {
        #[command(flatten)]
        folder: Folder,
        /// Only what a worker needs has to be there
        #[arg(long, conflicts_with = "vip")]
        worker: bool,
        /// What controllers with a shared address (`stratum server --vip`) need has to be there
        #[arg(long)]
        vip: bool,
    },
}

#[derive(Debug, clap::Args)]
struct Folder {
    /// The payload's folder
    #[arg(long = "payload", value_name = "FOLDER", default_value_os_t = Layout::system().payload())]
    path: PathBuf,
    /// Say only what the outcome is
    #[arg(long, short)]
    quiet: bool,
    /// The form of the outcome
    #[arg(long, short, value_enum, default_value = "table")]
    output: Output,
}

impl Folder {
    fn progress(&self) -> Progress {
        if self.quiet { Progress::Quiet } else { Progress::Shown }
    }
}

/// Runs the command.
pub(super) async fn run(arguments: Arguments) -> anyhow::Result<Exit> {
    match arguments.command {
        Command::Build {
            folder,
            images,
            includes,
        } => build(folder, images, includes).await,
        Command::Verify { folder, worker, vip } => {
            let needs = if worker {
                Needs::worker()
            } else {
                Needs::controller(vip)
            };
            verify(&folder, &needs)
        }
    }
}

async fn build(
    folder: Folder,
    images: Vec<(String, PathBuf)>,
    includes: Vec<(String, PathBuf)>,
) -> anyhow::Result<Exit> {
    let recipe = match recipe(images, includes) {
        Ok(recipe) => recipe,
        Err(error) => {
            printer::error(error);
            return Ok(Exit::Usage);
        }
    };
    let trampoline = std::env::current_exe().context("cannot tell which executable this is")?;
    let source = Source::choose(|name| std::env::var_os(name), Some(trampoline))?;
    let built = payload::build(&source, &recipe, &folder.path, folder.progress()).await;
    let built = match built {
        Ok(built) => built,
        Err(error @ (Error::Occupied { .. } | Error::Relative { .. })) => return refused(error),
        Err(error) => return Err(error.into()),
    };
    let Built { lock, left_out, strays } = built;
    match folder.output {
        Output::Json => {
            let answer = json!({
                "payload": folder.path,
                "platform": lock.platform,
                "files": lock.files,
                "leftOut": left_out.iter().map(|image| image.reference()).collect::<Vec<_>>(),
                "strays": strays,
            });
            printer::stdout(&format!("{answer:#}\n"))?;
        }
        Output::Table => {
            let bytes: u64 = lock.files.values().map(|entry| entry.size).sum();
            printer::stdout(&format!(
                "{}: {} files, {} MB, for {}\n{}{}",
                folder.path.display(),
                lock.files.len(),
                bytes / 1_000_000,
                lock.platform,
                left_out.iter().map(|image| left_out_line(*image)).collect::<String>(),
                stray_lines(&strays),
            ))?;
        }
    }
    Ok(Exit::Done)
}

fn verify(folder: &Folder, needs: &Needs) -> anyhow::Result<Exit> {
    let verified = match payload::verify(&folder.path, needs, folder.progress()) {
        Ok(verified) => verified,
        Err(Error::Wrong { folder: path, problems }) => {
            match folder.output {
                Output::Json => {
                    let answer = json!({"payload": path, "verified": false, "problems": problems});
                    printer::stdout(&format!("{answer:#}\n"))?;
                }
                Output::Table => {
                    let lines = problems.iter().map(|problem| format!("{problem}\n"));
                    printer::stdout(&lines.collect::<String>())?;
                    printer::stderr(&format!(
                        "error: the payload in {} cannot be used: {} of its files are wrong or missing; copy it again, or build it again with this binary\n",
                        path.display(),
                        problems.len()
                    ));
                }
            }
            return Ok(Exit::Refused);
        }
        Err(error @ (Error::NoLock { .. } | Error::Malformed { .. } | Error::NewerLock { .. })) => {
            return refused(error);
        }
        Err(error) => return Err(error.into()),
    };
    printer::stdout(&outcome(&verified, folder.output))?;
    Ok(Exit::Done)
}

fn outcome(verified: &Verified, output: Output) -> String {
    let files = &verified.lock().files;
    match output {
        Output::Json => {
            let answer = json!({
                "payload": verified.folder(),
                "verified": true,
                "platform": verified.lock().platform,
                "files": files,
                "strays": verified.strays,
            });
            format!("{answer:#}\n")
        }
        Output::Table => format!(
            "{}: {} files are what payload.lock says\n{}",
            verified.folder().display(),
            files.len(),
            stray_lines(&verified.strays)
        ),
    }
}

fn refused(error: Error) -> anyhow::Result<Exit> {
    printer::error(error);
    Ok(Exit::Refused)
}

fn recipe(images: Vec<(String, PathBuf)>, includes: Vec<(String, PathBuf)>) -> anyhow::Result<Recipe> {
    let mut archives = BTreeMap::new();
    for (reference, path) in images {
        if !reference
            .rsplit_once(':')
            .is_some_and(|(_, tag)| !tag.is_empty() && !tag.contains('/'))
        {
            bail!("--image {reference}: a reference is REPOSITORY:TAG");
        }
        if archives.insert(reference.clone(), path).is_some() {
            bail!("--image {reference} is given twice");
        }
    }
    let mut by_image: BTreeMap<Image, Vec<PathBuf>> = BTreeMap::new();
    for (name, path) in includes {
        let image: Image = name
            .parse()
            .ok()
            .with_context(|| format!("--include {name}: no image of that name is made"))?;
        if archives.contains_key(image.reference()) {
            bail!("--include {name}: the image is taken from an archive, and nothing can be put into it");
        }
        by_image.entry(image).or_default().push(path);
    }
    Ok(Recipe {
        archives,
        includes: by_image,
    })
}

fn pair(text: &str) -> Result<(String, PathBuf), String> {
    match text.split_once('=') {
        Some((name, path)) if !name.is_empty() && !path.is_empty() => Ok((name.to_owned(), path.into())),
        Some(_) | None => Err("it is NAME=PATH".to_owned()),
    }
}

fn left_out_line(image: Image) -> String {
    format!(
        "not in it: {} (give it with --image {}=ARCHIVE, if controllers shall share an address)\n",
        image.name(),
        image.reference()
    )
}

fn stray_lines(strays: &[String]) -> String {
    strays
        .iter()
        .map(|file| format!("no part of it, and never used: {file}\n"))
        .collect()
}
