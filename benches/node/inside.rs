//! What this program does on a node of its own rig, as another process of it: restarts one static pod one way, and looks
//! on. One line of JSON says what it saw.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use http::Method;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use stratum::controllers::machine::node::{Config, Node};
use stratum::host::atomic_file::{self, Access};
use stratum::host::child::Program;
use stratum::host::layout::Layout;
use stratum::host::static_pods::{Component, Inputs, Mark, StaticPods};
use stratum::host::{clock, https};
use tokio::sync::watch;

use crate::harness::binaries::eventually;
use crate::probe::Probe;
use crate::ready::client_of;

/// The manifests of a control plane of kubeadm's.
const MANIFESTS: &str = "/etc/kubernetes/manifests";
/// No restart takes half of it.
const LIMIT: Duration = Duration::from_secs(300);
/// How often is looked.
const PACE: Duration = Duration::from_millis(20);
/// What only an API server with a store can answer, and both clients may ask.
const OBJECT: &str = "/api/v1/nodes?limit=1";
/// How long the API server answers before, and has to go on answering after.
const STEADY: Duration = Duration::from_secs(1);

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Arguments {
    #[arg(long)]
    way: Way,
    #[arg(long)]
    component: Component,
    /// The API server at an address that its certificate is for.
    #[arg(long)]
    server: SocketAddr,
}

/// How a static pod is restarted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Way {
    /// On our node, by our own restart.
    Restart,
    /// On our node, a changed manifest in the place of the other at once.
    RestartInPlace,
    /// On a node of kubeadm's: the manifest is moved out of the folder, and back when no process is left.
    Move,
    /// On a node of kubeadm's: a changed manifest in the place of the other, as `kubeadm upgrade` does it.
    Rewrite,
}

impl Way {
    /// Its name here and on the command line.
    pub(crate) fn name(self) -> String {
        self.to_possible_value()
            .map_or_else(String::new, |value| value.get_name().to_owned())
    }

    fn is_ours(self) -> bool {
        matches!(self, Self::Restart | Self::RestartInPlace)
    }
}

/// What was seen, in seconds.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Seen {
    /// From the call until no process of before was left and the manifest in place: what a caller waits.
    pub(crate) replaced: f64,
    /// From the call until the new process said that it was well.
    pub(crate) well: f64,
    /// The longest time without an answer of the API server about an object.
    pub(crate) away: f64,
}

pub(crate) async fn run(arguments: &Arguments) -> Result<()> {
    let seen = restart(arguments).await?;
    #[expect(clippy::print_stdout, reason = "whoever started this process reads it")]
    {
        println!("{}", serde_json::to_string(&seen)?);
    }
    Ok(())
}

async fn restart(arguments: &Arguments) -> Result<Seen> {
    let Arguments { way, component, server } = *arguments;
    let pods = if way.is_ours() {
        our_pods()?
    } else {
        StaticPods::new(Layout::system(), Inputs::default())
    };
    let probe = Probe::new()?;
    let answers = Answers::follow(client(way)?, server);
    answers.steady(clock::monotonic() + STEADY).await?;
    let mark = Mark::take();
    let began = clock::monotonic();
    match way {
        Way::Restart => pods.restart(component, LIMIT).await?,
        Way::RestartInPlace => rewrite(&pods.path(component))?,
        Way::Move => move_out_and_back(&pods, component).await?,
        Way::Rewrite => rewrite(&manifest(component))?,
    }
    pods.wait_replaced(component, mark, LIMIT).await?;
    let replaced = began.elapsed().as_secs_f64();
    until(&format!("{component} is back"), async || probe.is_well(component).await).await?;
    // Nobody of before was left: who answers is new.
    let well = clock::monotonic();
    let away = answers.steady(well + STEADY).await?;
    Ok(Seen {
        replaced,
        well: well.duration_since(began).as_secs_f64(),
        away: away.as_secs_f64(),
    })
}

/// What a rotation of this node's certificates costs those who ask its API server meanwhile.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Rotation {
    /// The executable of stratum.
    #[arg(long)]
    stratum: PathBuf,
    /// As for a restart.
    #[arg(long)]
    server: SocketAddr,
}

/// What was seen of it.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Rotated {
    /// Seconds from the start of the command to its end.
    pub(crate) took: f64,
    /// The longest time without an answer about an object, in seconds.
    pub(crate) away: f64,
    /// Questions that were not answered with 200.
    pub(crate) failed: usize,
    /// Those that were.
    pub(crate) answered: usize,
}

pub(crate) async fn rotate(arguments: &Rotation) -> Result<()> {
    let answers = Answers::follow(client(Way::Restart)?, arguments.server);
    answers.steady(clock::monotonic() + STEADY).await?;
    let began = clock::monotonic();
    let command = Program::new(&arguments.stratum).arguments(["certs", "rotate", "--quiet"]);
    let finished = command.run(Vec::new()).await?;
    let ended = clock::monotonic();
    if !finished.exit.is_success() {
        bail!("{}: {}", finished.exit, String::from_utf8_lossy(&finished.stderr));
    }
    answers.steady(ended + STEADY).await?;
    let Gap {
        longest,
        failed,
        answered,
        ..
    } = *answers.seen.borrow();
    let rotated = Rotated {
        took: ended.duration_since(began).as_secs_f64(),
        away: longest.as_secs_f64(),
        failed,
        answered,
    };
    #[expect(clippy::print_stdout, reason = "whoever started this process reads it")]
    {
        println!("{}", serde_json::to_string(&rotated)?);
    }
    Ok(())
}

/// As the product has them on this node.
fn our_pods() -> Result<StaticPods> {
    // The rig's configuration of such a node says nothing of static pods.
    Ok(Node::load(Layout::system(), Config::default())?.static_pods())
}

fn manifest(component: Component) -> PathBuf {
    Path::new(MANIFESTS).join(component.file_name())
}

async fn move_out_and_back(pods: &StaticPods, component: Component) -> Result<()> {
    let (here, away) = (
        manifest(component),
        Path::new("/etc/kubernetes").join(component.file_name()),
    );
    std::fs::rename(&here, &away)?;
    let gone = async || !pods.running(component).unwrap_or(true);
    let gone = until(&format!("{component} has ended"), gone).await;
    std::fs::rename(&away, &here)?;
    gone
}

/// Puts a manifest in the place of another that differs in an annotation. JSON is YAML.
fn rewrite(path: &Path) -> Result<()> {
    let mut pod: Value = serde_saphyr::from_str(&std::fs::read_to_string(path)?)?;
    let metadata = pod.get_mut("metadata").context("a manifest without metadata")?;
    metadata["annotations"]["bench/restarted-at"] = clock::now().to_string().into();
    Ok(atomic_file::write(path, pod.to_string().as_bytes(), Access::Secret)?)
}

async fn until(what: &str, mut condition: impl AsyncFnMut() -> bool) -> Result<()> {
    eventually(what, LIMIT, PACE, async || Ok(condition().await.then_some(()))).await
}

/// A client of this node's API server that may read an object.
fn client(way: Way) -> Result<https::Client> {
    let (pki, name) = if way.is_ours() {
        ("/var/lib/stratum/pki", "admin")
    } else {
        // It may read Nodes.
        ("/etc/kubernetes/pki", "apiserver-kubelet-client")
    };
    Ok(client_of(Path::new(pki), name)?)
}

/// The answers of the API server, asked all the time.
struct Answers {
    seen: watch::Receiver<Gap>,
    asking: tokio::task::JoinHandle<()>,
}

/// The last answer, and the longest time between two.
#[derive(Clone, Copy)]
struct Gap {
    last: Option<Instant>,
    longest: Duration,
    answered: usize,
    failed: usize,
}

impl Answers {
    fn follow(client: https::Client, server: SocketAddr) -> Self {
        let nothing = Gap {
            last: None,
            longest: Duration::ZERO,
            answered: 0,
            failed: 0,
        };
        let (tell, seen) = watch::channel(nothing);
        let client = Arc::new(client);
        let asking = tokio::spawn(async move {
            loop {
                let answer = client.ask(server, Method::GET, OBJECT, "", STEADY).await;
                if !answer.is_ok_and(|answer| answer.status == 200) {
                    tell.send_modify(|gap| gap.failed += 1);
                } else {
                    let now = clock::monotonic();
                    tell.send_modify(|gap| {
                        let since = gap.last.map_or(Duration::ZERO, |last| now.duration_since(last));
                        gap.longest = gap.longest.max(since);
                        gap.last = Some(now);
                        gap.answered += 1;
                    });
                }
                clock::sleep(PACE).await;
            }
        });
        Self { seen, asking }
    }

    /// Waits for an answer after a moment; the longest time without one so far.
    async fn steady(&self, after: Instant) -> Result<Duration> {
        let mut seen = self.seen.clone();
        let answered = seen.wait_for(|gap| gap.last.is_some_and(|last| last > after));
        let gap = tokio::time::timeout(LIMIT, answered).await.context("no API server")??;
        Ok(gap.longest)
    }
}

impl Drop for Answers {
    fn drop(&mut self) {
        self.asking.abort();
    }
}
