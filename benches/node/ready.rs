//! N1: from a machine with programs and archives of images to an API server that says it is ready, at the node's address.
//!
//! Stratum: `stratum server`, then `stratum up`. The peer: containerd is started, the same archives are imported by `ctr`
//! one after the other, then `kubeadm init`. Stratum's side also verifies the payload twice and keeps a copy of it, which
//! nothing on the peer's side corresponds to. The second row leaves out what `kubeadm init` finds done: containerd's start
//! and the images.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use stratum::host::{clock, https, ready};

use crate::harness::binaries::eventually;
use crate::harness::table::{Entry, Table, progress, seconds};
use crate::rig::{Node, Rig};
use crate::rounds::{gate, spread};

/// Where each side's certificates are. The names in it are kubeadm's on both.
const OURS: &str = "/var/lib/stratum/pki";
const KUBEADM: &str = "/etc/kubernetes/pki";
/// The kind of all keys, on both sides.
const KEYS: &str = "ECDSA-P256";
/// No side takes half of it.
const LIMIT: Duration = Duration::from_secs(300);
/// How often the API server is asked.
const PACE: Duration = Duration::from_millis(20);

/// What one side took in one round, in seconds: the parts in their order, each with its name.
struct Times {
    parts: Vec<(&'static str, f64)>,
}

impl Times {
    /// The seconds between moments, each of which ends a part.
    fn between(began: Instant, ends: &[(&'static str, Instant)]) -> Self {
        let mut before = began;
        let mut parts = Vec::new();
        for (name, end) in ends {
            parts.push((*name, end.duration_since(before).as_secs_f64()));
            before = *end;
        }
        Self { parts }
    }

    fn total(&self) -> f64 {
        self.parts.iter().map(|(_, time)| time).sum()
    }

    /// Without what `kubeadm init` finds done.
    fn without_images(&self) -> f64 {
        let kept = self.parts.iter().filter(|(name, _)| *name != IMAGES);
        kept.map(|(_, time)| time).sum()
    }

    fn show(&self) -> String {
        let parts = self.parts.iter();
        let parts: Vec<String> = parts.map(|(name, time)| format!("{name} {}", seconds(*time))).collect();
        format!("{}: {}", seconds(self.total()), parts.join(", "))
    }
}

/// The part that is not in the second row.
const IMAGES: &str = "containerd and images";

pub(crate) async fn run(rig: &mut Rig, rounds: usize, table: &mut Table) -> Result<()> {
    let (mut ours, mut peer) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        // Who comes first finds the files of the payload as the round before left them.
        for turn in 0..2 {
            if (round + turn) % 2 == 0 {
                let times = stratum(rig, round).await.context("stratum")?;
                progress(&format!("  round {round}: stratum {}", times.show()));
                ours.push(times);
            } else {
                let times = kubeadm(rig, round).await.context("kubeadm")?;
                progress(&format!("  round {round}: kubeadm {}", times.show()));
                peer.push(times);
            }
        }
    }
    for (scale, whole) in [("from archives", true), ("containerd and images there", false)] {
        let figure = |times: &Times| if whole { times.total() } else { times.without_images() };
        let [ours, peer] = [&ours, &peer].map(|all| all.iter().map(figure).collect::<Vec<f64>>());
        let mut entry = Entry::new("N1 API server ready", scale);
        entry.stratum = spread(&ours);
        entry.peers = format!("kubeadm init {}", spread(&peer));
        gate(&mut entry, "over kubeadm", &ours, &peer);
        table.add(entry);
    }
    table.note(&format!(
        "N1, parts. stratum: {}. kubeadm: {}.",
        parts(&ours),
        parts(&peer)
    ));
    Ok(())
}

/// Each part over all rounds.
fn parts(all: &[Times]) -> String {
    let names = all.first().map(|times| times.parts.clone()).unwrap_or_default();
    let part = |index: usize| -> Vec<f64> {
        let times = all.iter().filter_map(|times| times.parts.get(index));
        times.map(|(_, time)| *time).collect()
    };
    let parts = names.iter().enumerate();
    let parts: Vec<String> = parts
        .map(|(index, (name, _))| format!("{name} {}", spread(&part(index))))
        .collect();
    parts.join(", ")
}

async fn stratum(rig: &mut Rig, round: usize) -> Result<Times> {
    let node = rig.prepared_alone(&format!("ours-{round}")).await?;
    let address = node.address().to_string();
    let began = clock::monotonic();
    node.stratum(&["server", "--quiet", "--node-ip", &address], true)
        .await?;
    let installed = clock::monotonic();
    let ours = node.up().await?;
    let [containerd, kubelet] = ["containerd", "kubelet"].map(|name| format!("/var/log/stratum/{name}.log"));
    let (containerd, kubelet, ready) = tokio::try_join!(
        appears(&ours.node, &containerd),
        appears(&ours.node, &kubelet),
        is_ready(&ours.node, OURS)
    )?;
    ours.is_up()?;
    let times = Times::between(
        began,
        &[
            ("`server`", installed),
            ("`up` prepares", containerd),
            (IMAGES, kubelet),
            ("kubelet to ready", ready),
        ],
    );
    let crate::rig::Ours { up, node } = ours;
    drop(up);
    rig.discard(node.switch_off())?;
    Ok(times)
}

async fn kubeadm(rig: &mut Rig, round: usize) -> Result<Times> {
    let node = rig.node(&format!("kubeadm-{round}")).await?;
    let began = clock::monotonic();
    let containerd = node.start_empty_containerd().await?;
    node.import_images(crate::rig::PAYLOAD_IMAGES).await?;
    let imported = clock::monotonic();
    let mut init = node.kubeadm_init(KEYS).await?;
    let started = clock::monotonic();
    let ready = is_ready(&node, KUBEADM).await?;
    let exit = tokio::time::timeout(LIMIT, init.kubeadm.wait()).await??;
    if !exit.is_success() {
        bail!(
            "`kubeadm init` ended ({exit}); the log is {}",
            node.log("kubeadm").display()
        );
    }
    let times = Times::between(
        began,
        &[
            (IMAGES, imported),
            ("`init` to the kubelet's start", started),
            ("kubelet to ready", ready),
        ],
    );
    drop((init, containerd));
    rig.discard(node.switch_off())?;
    Ok(times)
}

/// When a file is there.
async fn appears(node: &Node, path: &str) -> Result<Instant> {
    let path = node.path(path);
    let there = async || Ok(path.exists().then(clock::monotonic));
    eventually(&path.display().to_string(), LIMIT, PACE, there).await
}

/// When the API server says at the node's address, from outside the node, that it is ready.
async fn is_ready(node: &Node, pki: &str) -> Result<Instant> {
    let server = (node.address(), 6443).into();
    let mut client = None;
    let asked = async || {
        if client.is_none() {
            // Both sides make it, and it is there once they have.
            client = client_of(&node.path(pki), "apiserver-kubelet-client").ok();
        }
        let Some(client) = &client else { return Ok(None) };
        let answer = ready::readyz(client, server, Duration::from_secs(1)).await;
        Ok(answer.is_ok().then(clock::monotonic))
    };
    eventually("an API server that is ready", LIMIT, PACE, asked).await
}

/// A client with the certificate of this name below a PKI folder.
///
/// # Errors
/// Names the file that cannot be used.
pub(crate) fn client_of(pki: &Path, name: &str) -> Result<https::Client, https::Error> {
    let [certificate, key] = ["crt", "key"].map(|suffix| pki.join(format!("{name}.{suffix}")));
    https::Client::new(&pki.join("ca.crt"), &certificate, &key)
}
