//! N2: a static pod is restarted: from the call until its new process says that it is well, and how long the API server
//! did not answer.
//!
//! Stratum: `StaticPods::restart`. The peers are kubeadm's users on a control plane of kubeadm's (the manifest is moved out
//! of the folder, and back when the process is gone, which is earlier than its documentation asks for), `kubeadm upgrade`
//! (a manifest in the place of the other), and that same way on our own node, which shows what ours gains by waiting.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result};
use stratum::host::clock;
use stratum::host::static_pods::Component;

use crate::harness::table::{Entry, Table, progress, seconds};
use crate::inside::{Seen, Way};
use crate::rig::{Member, Node, Ours, PAYLOAD_IMAGES, Rig};
use crate::rounds::{gate, spread};

/// In the order in which they are restarted.
const COMPONENTS: [Component; 4] = [
    Component::KubeScheduler,
    Component::KubeControllerManager,
    Component::KubeApiserver,
    Component::Etcd,
];
const WAYS: [Way; 4] = [Way::Restart, Way::Move, Way::Rewrite, Way::RestartInPlace];
/// What the kubelet still has to do for a pod that is well already, and what the others have to do with it.
const SETTLES: Duration = Duration::from_secs(8);

/// What was seen of each way with each component.
type Rounds = BTreeMap<(&'static str, String), Vec<Seen>>;

pub(crate) async fn run(rig: &mut Rig, rounds: usize, table: &mut Table) -> Result<()> {
    let ours = rig.prepared_alone("ours-restarted").await?.found().await?;
    let peer = rig
        .node("kubeadm-restarted")
        .await?
        .kubeadm_controller(PAYLOAD_IMAGES)
        .await?;
    clock::sleep(SETTLES).await;
    let mut seen = Rounds::new();
    for round in 0..rounds {
        for component in COMPONENTS {
            for way in WAYS {
                let one = restart(way, component, &ours, &peer).await?;
                progress(&format!(
                    "  round {round}: {component} by {}: replaced {}, well {}, API server away {}",
                    way.name(),
                    seconds(one.replaced),
                    seconds(one.well),
                    seconds(one.away)
                ));
                seen.entry((component.name(), way.name())).or_default().push(one);
                clock::sleep(SETTLES).await;
            }
        }
    }
    for component in COMPONENTS {
        add(table, component, &seen);
    }
    let Ours { up, node } = ours;
    drop(up);
    rig.discard(node.switch_off())?;
    let Member {
        kubelet,
        containerd,
        node,
    } = peer;
    drop((kubelet, containerd));
    rig.discard(node.switch_off())
}

fn add(table: &mut Table, component: Component, seen: &Rounds) {
    let figures = |way: Way, figure: fn(&Seen) -> f64| -> Vec<f64> {
        let all = seen.get(&(component.name(), way.name()));
        all.into_iter().flatten().map(figure).collect()
    };
    let well: fn(&Seen) -> f64 = |seen| seen.well;
    let away: fn(&Seen) -> f64 = |seen| seen.away;
    let show = |way: Way| {
        format!(
            "{}, API away {}",
            spread(&figures(way, well)),
            spread(&figures(way, away))
        )
    };
    let mut entry = Entry::new("N2 restart", component.name());
    entry.stratum = show(Way::Restart);
    entry.peers = format!(
        "kubeadm, moved out and back {}; kubeadm, rewritten {}; ours, rewritten {}",
        show(Way::Move),
        show(Way::Rewrite),
        show(Way::RestartInPlace)
    );
    let ours = figures(Way::Restart, well);
    gate(&mut entry, "over moving out and back", &ours, &figures(Way::Move, well));
    gate(
        &mut entry,
        "over rewriting on kubeadm's",
        &ours,
        &figures(Way::Rewrite, well),
    );
    gate(
        &mut entry,
        "over rewriting on ours",
        &ours,
        &figures(Way::RestartInPlace, well),
    );
    if matches!(component, Component::KubeApiserver | Component::Etcd) {
        let (ours, peer) = (figures(Way::Restart, away), figures(Way::Move, away));
        gate(&mut entry, "API away over moving out and back", &ours, &peer);
    }
    table.add(entry);
}

async fn restart(way: Way, component: Component, ours: &Ours, peer: &Member) -> Result<Seen> {
    let node: &Node = match way {
        Way::Restart | Way::RestartInPlace => &ours.node,
        Way::Move | Way::Rewrite => &peer.node,
    };
    let program = std::env::current_exe()?;
    let (way, server) = (way.name(), format!("{}:6443", node.address()));
    let arguments = [
        "restart",
        "--way",
        &way,
        "--component",
        component.name(),
        "--server",
        &server,
    ];
    let said = node.run(&program.to_string_lossy(), &arguments).await?;
    serde_json::from_str(&said).with_context(|| format!("it said {said:?}"))
}
