//! B8 and B9: the certificates of a control plane that kubeadm made, looked at and made anew, beside kubeadm itself on the
//! same files. Nothing runs on the node, so that neither side waits for anybody: what is compared is reading, signing and
//! writing, from the start of the command to its end. N3: a live controller.
//!
//! The node is one of the rig's, as both read `/etc/kubernetes`. This program runs there as well and starts both sides by
//! turns: whatever it takes to get there is not measured.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use stratum::host::child::{Output, Program};
use stratum::host::clock;

use crate::harness::measure::median;
use crate::harness::table::{Entry, Figure, Table, Target, progress, seconds};
use crate::inside::Rotated;
use crate::rig::{Node, Ours, Rig};
use crate::rounds::spread;

/// What is still in the way of the next round: the controllers take up their Leases.
const SETTLES: Duration = Duration::from_secs(20);
const CONFIGURATION: &str = "/etc/kubernetes/kubeadm.yaml";
/// Runs of each side in a round; a run of ours is over in milliseconds.
const RUNS: usize = 15;
/// Both kinds of keys that kubeadm makes without being told a size.
const KINDS: [&str; 2] = ["ECDSA-P256", "RSA-2048"];

/// What the process on the node measures.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The executable of stratum.
    #[arg(long)]
    stratum: String,
    #[arg(long)]
    kubeadm: String,
    #[arg(long)]
    work: Work,
}

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Work {
    Check,
    Reissue,
}

impl Work {
    fn ours(self) -> &'static [&'static str] {
        match self {
            Self::Check => &["certs", "check", "--layout", "kubeadm"],
            Self::Reissue => &["certs", "rotate", "--layout", "kubeadm", "--offline", "--quiet"],
        }
    }

    fn peers(self) -> &'static [&'static str] {
        match self {
            Self::Check => &["certs", "check-expiration", "--config", CONFIGURATION],
            Self::Reissue => &["certs", "renew", "all", "--config", CONFIGURATION],
        }
    }
}

/// One side, over all runs.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Side {
    /// Seconds of each run.
    times: Vec<f64>,
    /// The most memory seen in any, in bytes.
    peak: u64,
}

/// Both sides.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Both {
    ours: Side,
    peer: Side,
}

/// What this program does on the node.
pub(crate) fn run_inside(arguments: &Arguments) -> Result<()> {
    let Arguments { stratum, kubeadm, work } = arguments;
    let mut both = Both::default();
    // The first of each finds nothing in memory.
    for run in 0..=RUNS {
        for (program, words, side) in [
            (stratum, work.ours(), &mut both.ours),
            (kubeadm, work.peers(), &mut both.peer),
        ] {
            let (time, peak) = once(program, words)?;
            if run > 0 {
                side.times.push(time);
                side.peak = side.peak.max(peak);
            }
        }
    }
    #[expect(clippy::print_stdout, reason = "whoever started this process reads it")]
    {
        println!("{}", serde_json::to_string(&both)?);
    }
    Ok(())
}

/// Runs a command to its end: the seconds, and its peak memory as the kernel told it last before the end.
fn once(program: &str, words: &[&str]) -> Result<(f64, u64)> {
    let began = clock::monotonic();
    let child = Program::new(program)
        .arguments(words.iter().copied())
        .start(&Output::Discard)?;
    let status = format!("/proc/{}/status", child.id());
    let mut peak = 0;
    let exit = loop {
        // Asked all the time: after the end nobody knows any more.
        peak = peak.max(peak_memory(&status).unwrap_or_default());
        if let Some(exit) = child.exit() {
            break exit;
        }
    };
    let time = began.elapsed().as_secs_f64();
    if !exit.is_success() {
        bail!("{program} {} ended ({exit})", words.join(" "));
    }
    Ok((time, peak))
}

fn peak_memory(status: &str) -> Option<u64> {
    let text = std::fs::read_to_string(status).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kibibytes: u64 = line.trim().trim_end_matches(" kB").parse().ok()?;
    Some(kibibytes * 1024)
}

pub(crate) async fn check(rig: &mut Rig, table: &mut Table) -> Result<()> {
    for kind in KINDS {
        let both = measured(rig, Work::Check, kind).await?;
        let mut entry = row("B9 certs check", kind, &both, "kubeadm certs check-expiration");
        let (ours, peer) = (median(both.ours.times.clone()), median(both.peer.times.clone()));
        gate(&mut entry, "ms", ours.map(|time| time * 1e3), Target::AtMost(8.0));
        gate(&mut entry, "MiB", Some(mebibytes(both.ours.peak)), Target::AtMost(8.0));
        gate(
            &mut entry,
            "kubeadm over stratum",
            ratio(peer, ours),
            Target::AtLeast(5.0),
        );
        let memory = mebibytes(both.peer.peak) / mebibytes(both.ours.peak);
        gate(
            &mut entry,
            "its memory over stratum's",
            Some(memory),
            Target::AtLeast(4.0),
        );
        table.add(entry);
    }
    Ok(())
}

pub(crate) async fn reissue(rig: &mut Rig, table: &mut Table) -> Result<()> {
    for kind in KINDS {
        let both = measured(rig, Work::Reissue, kind).await?;
        let mut entry = row("B8 reissue of all leaves", kind, &both, "kubeadm certs renew all");
        let (ours, peer) = (median(both.ours.times.clone()), median(both.peer.times.clone()));
        if kind == "RSA-2048" {
            gate(&mut entry, "over kubeadm", ratio(ours, peer), Target::AtMost(0.6));
        } else {
            gate(&mut entry, "ms", ours.map(|time| time * 1e3), Target::AtMost(15.0));
        }
        table.add(entry);
    }
    Ok(())
}

/// N3: the certificates of a live controller are rotated, and somebody asks its API server every 20 ms, on a connection of
/// its own each time.
pub(crate) async fn rotate(rig: &mut Rig, rounds: usize, table: &mut Table) -> Result<()> {
    let ours = rig.prepared_alone("rotated").await?.found().await?;
    clock::sleep(SETTLES).await;
    let mut seen = Vec::new();
    for round in 0..rounds {
        let one = rotated(&ours.node).await?;
        progress(&format!(
            "  round {round}: rotated in {}, {} answers, {} without one, away {} at most",
            seconds(one.took),
            one.answered,
            one.failed,
            seconds(one.away)
        ));
        seen.push(one);
        clock::sleep(SETTLES).await;
    }
    let figures = |figure: fn(&Rotated) -> f64| seen.iter().map(figure).collect::<Vec<f64>>();
    let mut entry = Entry::new("N3 certs rotate, live", "1 controller");
    entry.stratum = format!(
        "{}; {} at most between two answers",
        spread(&figures(|one| one.took)),
        spread(&figures(|one| one.away))
    );
    let failed: usize = seen.iter().map(|one| one.failed).sum();
    let failed = u32::try_from(failed).ok().map(f64::from);
    entry.gate("questions not answered", failed, Target::Exactly(0.0), Figure::Count);
    table.add(entry);
    let Ours { up, node } = ours;
    drop(up);
    rig.discard(node.switch_off())
}

async fn rotated(node: &Node) -> Result<Rotated> {
    let program = std::env::current_exe()?;
    let server = format!("{}:6443", node.address());
    let words = [
        "rotation",
        "--stratum",
        env!("CARGO_BIN_EXE_stratum"),
        "--server",
        &server,
    ];
    let said = node.run(&program.to_string_lossy(), &words).await?;
    serde_json::from_str(&said).with_context(|| format!("it said {said:?}"))
}

/// Makes a control plane's files with keys of this kind, and lets both sides work on them.
async fn measured(rig: &mut Rig, work: Work, kind: &str) -> Result<Both> {
    let node = rig.node(&format!("{work:?}-{kind}").to_lowercase()).await?;
    node.kubeadm_files(kind).await?;
    let both = inside(&node, work).await?;
    progress(&format!(
        "  {work:?} {kind}: stratum {}, kubeadm {}",
        median(both.ours.times.clone()).map_or_else(|| "-".to_owned(), seconds),
        median(both.peer.times.clone()).map_or_else(|| "-".to_owned(), seconds),
    ));
    rig.discard(node.switch_off())?;
    Ok(both)
}

async fn inside(node: &Node, work: Work) -> Result<Both> {
    let program = std::env::current_exe()?;
    let kubeadm = node.rig_folder("bin").join("kubeadm").display().to_string();
    let work = match work {
        Work::Check => "check",
        Work::Reissue => "reissue",
    };
    let stratum = env!("CARGO_BIN_EXE_stratum");
    let words = [
        "certificates",
        "--stratum",
        stratum,
        "--kubeadm",
        &kubeadm,
        "--work",
        work,
    ];
    let said = node.run(&program.to_string_lossy(), &words).await?;
    serde_json::from_str(&said).with_context(|| format!("it said {said:?}"))
}

fn row(benchmark: &'static str, kind: &str, both: &Both, peer: &str) -> Entry {
    let show = |side: &Side| {
        let time = median(side.times.clone()).map_or_else(|| "-".to_owned(), seconds);
        format!("{time}, {:.1} MiB", mebibytes(side.peak))
    };
    let mut entry = Entry::new(benchmark, kind);
    entry.stratum = show(&both.ours);
    entry.peers = format!("{peer} {}", show(&both.peer));
    entry
}

/// One target. Both sides took turns in each other's noise, and the middle of many runs is taken.
fn gate(entry: &mut Entry, what: &str, value: Option<f64>, target: Target) {
    entry.gate(what, value, target, Figure::Time { noisy: false });
}

fn ratio(above: Option<f64>, below: Option<f64>) -> Option<f64> {
    Some(above? / below?)
}

#[expect(clippy::cast_precision_loss, reason = "a figure for people")]
fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / 1024.0 / 1024.0
}
