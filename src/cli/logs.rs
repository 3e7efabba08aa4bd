//! `stratum logs`: what a component of this node wrote, without an API server.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{BufRead, BufReader, Seek};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use anyhow::Context;

use super::exit::Exit;
use super::printer;
use crate::host::clock;
use crate::host::component_logs::{self, plain};
use crate::host::layout::Layout;

/// How often a log that is followed is looked at.
const PACE: Duration = Duration::from_millis(250);

/// The flags of `stratum logs`.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Arguments {
    /// Whose: etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kube-vip, containerd, kubelet or operator
    component: String,
    /// How many lines from the end; all without it
    #[arg(long, value_name = "LINES")]
    tail: Option<usize>,
    /// Go on with what is written from now on, also by the next start
    #[arg(long, short)]
    follow: bool,
}

/// Runs the command.
pub(super) async fn run(arguments: Arguments) -> anyhow::Result<Exit> {
    let layout = Layout::system();
    let mut path = match component_logs::newest(&layout, &arguments.component) {
        Ok(path) => path,
        Err(error @ component_logs::Error::Missing { .. }) => {
            let there = component_logs::components(&layout)?;
            printer::error(error);
            printer::stderr(&match there.is_empty() {
                true => "no component has written anything on this machine yet\n".to_owned(),
                false => format!("there are logs of {}\n", there.join(", ")),
            });
            return Ok(Exit::Failed);
        }
        Err(error) => return Err(error.into()),
    };
    let mut file = open(&path)?;
    let mut last = VecDeque::new();
    // Somebody's program may have written what is no text. A log may be larger than what memory is free: it is not held.
    for line in reader(&mut file).split(b'\n') {
        let line = line.with_context(|| format!("reading {}", path.display()))?;
        let line = format!("{}\n", plain(&String::from_utf8_lossy(&line)));
        match arguments.tail {
            None => printer::stdout(&line)?,
            Some(tail) => {
                last.push_back(line);
                if last.len() > tail {
                    last.pop_front();
                }
            }
        }
    }
    for line in last {
        printer::stdout(&line)?;
    }
    if !arguments.follow {
        return Ok(Exit::Done);
    }
    loop {
        clock::sleep(PACE).await;
        print_new(&mut file, &path)?;
        // Another start, or another file under the name, has the rest.
        let newest = component_logs::newest(&layout, &arguments.component).unwrap_or_else(|_| path.clone());
        if newest != path || is_another(&file, &newest) {
            print_new(&mut file, &path)?;
            path = newest;
            file = open(&path)?;
        }
    }
}

fn open(path: &Path) -> anyhow::Result<File> {
    File::open(path).with_context(|| format!("cannot open {}", path.display()))
}

fn reader(file: &mut File) -> BufReader<&mut File> {
    BufReader::new(file)
}

/// Prints whole lines that came; what is not ended yet is read again.
fn print_new(file: &mut File, path: &Path) -> anyhow::Result<()> {
    let failed = || format!("reading {}", path.display());
    let mut read = file.stream_position().with_context(failed)?;
    if file.metadata().with_context(failed)?.len() < read {
        // It was cut in place: see `log_rotation`.
        read = file.seek(std::io::SeekFrom::Start(0)).with_context(failed)?;
    }
    let mut lines = reader(file);
    let mut line = Vec::new();
    loop {
        line.clear();
        let length = lines.read_until(b'\n', &mut line).with_context(failed)?;
        let Some(whole) = line.strip_suffix(b"\n") else {
            break;
        };
        read += u64::try_from(length)?;
        printer::stdout(&format!("{}\n", plain(&String::from_utf8_lossy(whole))))?;
    }
    drop(lines);
    file.seek(std::io::SeekFrom::Start(read)).with_context(failed)?;
    Ok(())
}

fn is_another(file: &File, path: &Path) -> bool {
    match (file.metadata(), std::fs::metadata(path)) {
        (Ok(open), Ok(named)) => open.ino() != named.ino() || named.len() < open.len(),
        _ => false,
    }
}
