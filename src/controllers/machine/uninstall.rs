//! `stratum uninstall`: this machine stops being a node.
//!
//! Looked at first, so that everything is refused before anything is changed; then the services stop (pods run on, and with
//! them a controller's own API server), the cluster is told, and the machine is cleaned. Each step is found done by the next
//! try, wherever this one ends. Where the members of etcd change, all of it up to that is done under the cluster fence.

pub mod departure;
mod error;
pub mod fencing;
mod leave;

use std::collections::BTreeSet;
use std::io::Write;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use kube::Client;
use serde::Serialize;

use super::install;
use crate::controllers::concern::chain;
use crate::controllers::connection::{self, ClientSettings};
use crate::controllers::nodes;
use crate::controllers::progress::tell;
use crate::host::etcd::members::{Leaving, Member, Members};
use crate::host::etcd::{self, Etcd};
use crate::host::layout::{Identity, Layout};
use crate::host::lock::Lock;
use crate::host::node_state::{self, NodeState, Role};
use crate::host::teardown::{self, Report, Stopped, Teardown};
use departure::{Departure, Observed, Obstacle, Standing};
pub use error::Error;
use fencing::Fenced;
use leave::Unfinished;

/// How long the API server may take for an answer.
const ANSWER: Duration = Duration::from_secs(10);

/// What to do.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The machine's half.
    pub teardown: Teardown,
    /// Whether it goes on although the cluster cannot be told.
    pub offline: bool,
}

/// What would be done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Plan {
    /// How the node leaves its cluster.
    pub cluster: Departure,
    /// What goes from the machine.
    pub machine: teardown::Plan,
}

impl Plan {
    /// Whether nothing of a node is here.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.cluster == Departure::NoNode && self.machine.is_empty()
    }

    /// What is in the way.
    #[must_use]
    pub fn obstacle(&self) -> Option<&Obstacle> {
        match &self.cluster {
            Departure::Refused { obstacle } => Some(obstacle),
            Departure::NoNode
            | Departure::Left { .. }
            | Departure::Worker { .. }
            | Departure::Controller { .. }
            | Departure::Last { .. }
            | Departure::Offline { .. } => None,
        }
    }
}

/// Looks at the machine and asks the cluster. Changes nothing.
///
/// # Errors
/// When the machine cannot be looked at. What the cluster does not answer is part of the plan.
pub async fn plan(settings: &Settings) -> Result<Plan, Error> {
    let machine = settings.teardown.plan().map_err(Error::Look)?;
    let cluster = look(settings).await.1;
    Ok(Plan { cluster, machine })
}

/// What is known of this node, and how it leaves.
async fn look(settings: &Settings) -> (Option<NodeState>, Departure) {
    let layout = &settings.teardown.layout;
    let state = match node_state::load(&layout.node_state()) {
        Ok(state) => state,
        Err(node_state::Error::Missing { .. }) => return (None, Departure::NoNode),
        Err(_) if settings.offline => return (None, Departure::NoNode),
        Err(error) => {
            let obstacle = Obstacle::Unreadable { reason: chain(&error) };
            return (None, Departure::Refused { obstacle });
        }
    };
    let (standing, member) = match state.role {
        Role::Worker => (standing(layout, &state).await, Ok(Leaving::Gone)),
        Role::Controller => tokio::join!(standing(layout, &state), member(layout, &state)),
    };
    let observed = Observed {
        node: Some((state.node_name.clone(), state.role)),
        let_go: settings.teardown.was_let_go(),
        standing,
        member,
        offline: settings.offline,
    };
    (Some(state), departure::decide(observed))
}

/// The credential a node tells the cluster with: a worker's is its kubelet's, for nobody else may mark its Node. With `server`,
/// another API server is asked than the node's own components ask.
async fn client(layout: &Layout, role: Role, server: Option<SocketAddr>) -> Result<Client, String> {
    let identity = match role {
        Role::Worker => Identity::Kubelet,
        Role::Controller => Identity::Admin,
    };
    let mut settings = ClientSettings::new(layout.kubeconfig(identity), "uninstall");
    settings.request_limit = ANSWER;
    settings.server = server;
    connection::client(&settings, None).await.map_err(|error| chain(&error))
}

async fn standing(layout: &Layout, state: &NodeState) -> Result<Standing, String> {
    let client = client(layout, state.role, None).await?;
    let machine = leave::machine_id(layout).map_err(|error| chain(&error))?;
    let found = nodes::look(&client, &state.node_name)
        .await
        .map_err(|error| chain(&error))?;
    Ok(match found {
        None => Standing::Absent,
        Some(node) if node.facts.machine_id.as_deref() == Some(machine.as_str()) => Standing::Own,
        Some(node) => Standing::OtherMachine(node.facts.machine_id.as_deref().map(str::to_owned)),
    })
}

/// What is to be done about this controller's member of etcd.
async fn member(layout: &Layout, state: &NodeState) -> Result<Leaving, String> {
    let servers = servers(state);
    let members = etcd(layout, servers)?.members().await.map_err(|error| chain(&error))?;
    let well = well(layout, &members).await;
    Ok(members.leaving(state.address(), |member| is_well(&well, member)))
}

/// Where members of etcd were when this node was installed. Its own may be down, and the others' list is as good.
fn servers(state: &NodeState) -> Vec<IpAddr> {
    let told = state
        .etcd
        .iter()
        .flat_map(|etcd| etcd.initial_cluster.iter().map(|member| member.address));
    let others = told.filter(|server| *server != state.address());
    [state.address()].into_iter().chain(others).collect()
}

fn etcd(layout: &Layout, servers: Vec<IpAddr>) -> Result<Etcd, String> {
    let servers = servers.into_iter().map(etcd::client_address).collect();
    Etcd::new(layout, servers).map_err(|error| chain(&error))
}

fn is_well(well: &BTreeSet<IpAddr>, member: &Member) -> bool {
    member.addresses().any(|address| well.contains(&address))
}

/// The members that answer with what a quorum agrees on.
async fn well(layout: &Layout, members: &Members) -> BTreeSet<IpAddr> {
    let all = members.0.iter().flat_map(Member::addresses);
    let asked = all.map(|address| async move {
        let answered = etcd(layout, vec![address]).ok()?.members().await;
        answered.is_ok().then_some(address)
    });
    futures::future::join_all(asked).await.into_iter().flatten().collect()
}

/// Takes this machine off its cluster, and everything of the node off the machine. `lock` is the node's, `fence` what
/// [`fencing::fence`] gave, which is released as soon as the cluster has let this node go; the caller releases it
/// otherwise. Tells `progress` a line for each step. What was done is told, also beside an error.
pub async fn run(
    settings: &Settings,
    fence: &mut Fenced,
    lock: Lock,
    progress: &mut dyn Write,
) -> (Report, Result<(), Error>) {
    let mut report = Report::default();
    let done = steps(settings, fence, lock, progress, &mut report).await;
    (report, done)
}

async fn steps(
    settings: &Settings,
    fence: &mut Fenced,
    lock: Lock,
    progress: &mut dyn Write,
    report: &mut Report,
) -> Result<(), Error> {
    let teardown = &settings.teardown;
    let (state, departure) = look(settings).await;
    if let Departure::Refused { obstacle } = departure {
        return Err(Error::Refused(obstacle));
    }
    if departure.changes_members() && matches!(fence, Fenced::Unneeded) {
        return Err(Error::Changed);
    }
    teardown.plan().map_err(Error::Look)?;
    tell(progress, "stopping the services");
    let stopped = teardown.stop(report).await.map_err(Error::Stop)?;
    tell(progress, "leaving the cluster");
    let words = match (&state, &departure) {
        (Some(state), departure) => leave(settings, state, departure, fence, report).await,
        (None, _) => Ok(None),
    };
    // Before anything else may end this: a machine that has left must not come back.
    let remembered = match &words {
        Ok(Some(words)) => teardown.let_go(words),
        Ok(None) | Err(_) => Ok(()),
    };
    // What follows is this machine's own business.
    fence.release().await;
    let (lock, stopped, words) = match words {
        Ok(words) => (lock, stopped, words),
        Err(unfinished) => return Err(give_up(teardown, unfinished, lock, stopped, progress).await),
    };
    if let Some(words) = words {
        tell(progress, &words);
    }
    remembered.map_err(Error::Remember)?;
    if let Some(node) = cut_off(&teardown.layout) {
        report.left(
            format!("the etcd member of {node}, if there is one"),
            "its join was cut off: a learner without a name in `etcdctl member list` is to be removed with etcdctl member remove",
        );
    }
    tell(
        progress,
        "ending pods, and removing what they and the node have on this machine",
    );
    let cleaned = teardown.clean(&stopped, report).await.map_err(Error::Clean);
    drop(lock);
    cleaned
}

/// The controller whose join was cut off here. Its member may have been added, and nothing here knows the cluster any more.
fn cut_off(layout: &Layout) -> Option<String> {
    let note = install::begun(layout).ok()??;
    let node = note.lines().next()?.strip_prefix("controller ")?;
    (!layout.node_state().exists()).then(|| node.to_owned())
}

/// Tells the cluster; what was done, in words.
async fn leave(
    settings: &Settings,
    state: &NodeState,
    departure: &Departure,
    fence: &Fenced,
    report: &mut Report,
) -> Result<Option<String>, Unfinished> {
    let layout = &settings.teardown.layout;
    match departure {
        Departure::NoNode | Departure::Refused { .. } => Ok(None),
        Departure::Left { words, .. } => Ok(Some(words.clone())),
        Departure::Worker { node, mark } if !mark => Ok(Some(format!("there is no Node {node} of this machine"))),
        Departure::Worker { node, .. } => match client(layout, state.role, None).await {
            Ok(client) => Ok(Some(leave::mark(&client, layout, node).await?)),
            Err(reason) => Err(leave::Error::Client(reason).into()),
        },
        Departure::Last { node } => Ok(Some(format!(
            "{node} was the last controller: there is no cluster to tell"
        ))),
        Departure::Offline { node, role, reason } => {
            report.left(
                format!("Node {node}"),
                format!("the cluster was not told ({reason}): kubectl delete node {node}"),
            );
            if *role == Role::Controller {
                report.left(
                    format!("the etcd member of {node}"),
                    "the other members were not told: etcdctl member remove",
                );
            }
            Ok(Some("went on without telling the cluster".to_owned()))
        }
        Departure::Controller {
            node,
            delete,
            member,
            undone,
        } => {
            if let Some(reason) = undone {
                report.left(
                    format!("Node {node}, if there is one"),
                    format!("its API server does not answer ({reason}): kubectl delete node {node}"),
                );
            }
            let holds = || fence.check().map_err(leave::Error::Fence);
            if *delete {
                holds()?;
                let client = client(layout, state.role, None).await.map_err(leave::Error::Client)?;
                leave::delete(&client, layout, node).await?;
            }
            if member.is_some() {
                let removed = match holds() {
                    Ok(()) => remove_member(layout, state).await,
                    Err(lost) => Err(lost),
                };
                // One that is not there any more was deleted by the try before this one.
                let deleted = undone.is_none();
                removed.map_err(|source| Unfinished { deleted, source })?;
            }
            Ok(Some(format!("{node} is no node and no member of etcd any more")))
        }
    }
}

/// Removes this controller's member, through the others. Decided again: some time has passed.
async fn remove_member(layout: &Layout, state: &NodeState) -> Result<(), leave::Error> {
    let members = etcd(layout, servers(state))
        .map_err(leave::Error::Client)?
        .members()
        .await
        .map_err(leave::Error::Members)?;
    let well = well(layout, &members).await;
    match members.leaving(state.address(), |member| is_well(&well, member)) {
        Leaving::Gone | Leaving::Last => Ok(()),
        Leaving::NoQuorum { healthy, needed } => Err(leave::Error::NoQuorum { healthy, needed }),
        Leaving::Remove(id) => {
            let others = members.0.iter().filter(|member| member.id != id && !member.is_learner);
            let servers = others.flat_map(Member::addresses).collect();
            let others = etcd(layout, servers).map_err(leave::Error::Client)?;
            others.remove(&id).await.map_err(leave::Error::Etcd)
        }
    }
}

/// How the machine is after the cluster could not be told: a worker runs again, if a unit can do that.
async fn give_up(
    teardown: &Teardown,
    unfinished: Unfinished,
    lock: Lock,
    stopped: Stopped,
    progress: &mut dyn Write,
) -> Error {
    let is_half = unfinished.is_half();
    let Unfinished { deleted, source } = unfinished;
    if is_half {
        return Error::Half { deleted, source };
    }
    drop(stopped);
    drop(lock);
    let running = match teardown.start().await {
        Ok(running) => running,
        Err(refused) => {
            let line = format!("warning: the services were not started again: {}", chain(&refused));
            tell(progress, &line);
            false
        }
    };
    Error::Leave { running, source }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::atomic_file::{self, Access};

    /// Nobody but the one who reads this knows of the member that its join may have added.
    #[test]
    fn a_controller_whose_join_was_cut_off_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let layout = Layout::under(folder.path());
        atomic_file::create_folder(&layout.state(), Access::Secret).unwrap();
        let named = |note: &str| {
            atomic_file::write(&layout.joining(), note.as_bytes(), Access::Secret).unwrap();
            cut_off(&layout)
        };
        assert_eq!(cut_off(&layout), None);
        assert_eq!(named("controller beta\nsha256:00\n").as_deref(), Some("beta"));
        assert_eq!(named("worker beta\nsha256:00\n"), None);
        // It came to its end: the member is this node's.
        atomic_file::write(&layout.node_state(), b"", Access::Secret).unwrap();
        assert_eq!(named("controller beta\n"), None);
    }
}
