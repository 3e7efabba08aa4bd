//! How a node is, as far as this machine can tell by itself: its services, its static pods, what they run and whether they
//! answer. No API server is asked but this node's own, whether it listens.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;
use serde::Serialize;

use super::node::Node;
use crate::controllers::concern::chain;
use crate::host::component_logs;
use crate::host::control_socket::{self, Answer, Question};
use crate::host::static_pods::{Component, StaticPods, names_for};
use crate::host::supervisor::{ServiceName, Status};

/// How a part of the node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, strum::Display)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum Health {
    /// It runs, and answers where it can be asked.
    Well,
    /// It runs and does not answer.
    Silent,
    /// It does not run.
    Down,
    /// It cannot be told.
    Unknown,
}

/// A part of the node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Part {
    /// Its name.
    pub name: String,
    /// How it is.
    pub health: Health,
    /// Its process, while there is one.
    pub process: Option<u32>,
    /// How often it was started again; of a static pod, since its manifest was last changed.
    pub restarts: Option<u64>,
    /// The image of a static pod.
    pub image: Option<String>,
    /// Why it is not well, as far as that is known.
    pub note: Option<String>,
}

/// A node and its parts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeStatus {
    /// The node's name.
    pub node: String,
    /// `controller` or `worker`.
    pub role: String,
    /// The profile.
    pub profile: String,
    /// Where the cluster is reached.
    pub endpoint: String,
    /// Services, then static pods in start order.
    pub parts: Vec<Part>,
}

impl NodeStatus {
    /// Whether every part is well.
    #[must_use]
    pub fn is_well(&self) -> bool {
        self.parts.iter().all(|part| part.health == Health::Well)
    }
}

/// Looks at the node.
pub async fn observe(node: &Node) -> NodeStatus {
    let mut parts = services(node).await;
    let pods = node.static_pods();
    for component in names_for(&node.state) {
        parts.push(static_pod(node, &pods, component).await);
    }
    NodeStatus {
        node: node.state.node_name.clone(),
        role: node.state.role.to_string(),
        profile: node.state.profile.to_string(),
        endpoint: node.state.endpoint.to_string(),
        parts,
    }
}

async fn services(node: &Node) -> Vec<Part> {
    let asked = control_socket::ask(&node.layout.control_socket(), &Question::Status).await;
    let (known, why) = match asked {
        Ok(Answer::Status(services)) => (services, None),
        Ok(_) => (
            BTreeMap::new(),
            Some("`stratum up` gave another answer than its status".to_owned()),
        ),
        Err(error) => (BTreeMap::new(), Some(chain(&error))),
    };
    let mut wanted = vec![ServiceName::Containerd, ServiceName::Kubelet];
    if node.state.is_controller() {
        wanted.push(ServiceName::Operator);
    }
    let part = |name: ServiceName| {
        let status = known.get(&name);
        Part {
            name: name.to_string(),
            health: match status {
                Some(Status { process: Some(_), .. }) => Health::Well,
                Some(_) | None => Health::Down,
            },
            process: status.and_then(|status| status.process),
            restarts: status.map(|status| status.restarts),
            image: None,
            note: match status {
                Some(Status {
                    process: None,
                    last_exit,
                    ..
                }) => last_exit.clone(),
                Some(_) => None,
                None => why.clone().or_else(|| Some("not started yet".to_owned())),
            },
        }
    };
    wanted.into_iter().map(part).collect()
}

async fn static_pod(node: &Node, pods: &StaticPods, component: Component) -> Part {
    let (health, process, note) = match pods.pids(component) {
        Err(error) => (Health::Unknown, None, Some(chain(&error))),
        Ok(processes) => match processes.first() {
            None => (Health::Down, None, why_down(pods, component)),
            Some(process) if pods.active(component).await => (Health::Well, Some(*process), None),
            Some(process) => (
                Health::Silent,
                Some(*process),
                Some("it runs and does not answer".to_owned()),
            ),
        },
    };
    Part {
        name: component.name().to_owned(),
        health,
        process,
        restarts: component_logs::newest(&node.layout, component.name())
            .ok()
            .and_then(|log| log.file_stem()?.to_str()?.parse().ok()),
        image: image(pods, component),
        note,
    }
}

fn why_down(pods: &StaticPods, component: Component) -> Option<String> {
    let missing = !pods.path(component).exists();
    Some(if missing {
        "its manifest is not there: it was stopped".to_owned()
    } else {
        format!("its manifest is there; see 'stratum logs {component}' and 'stratum logs kubelet'")
    })
}

/// The image in the manifest that the kubelet was given.
fn image(pods: &StaticPods, component: Component) -> Option<String> {
    let bytes = pods.read(component).ok()?;
    let pod: Pod = serde_saphyr::from_slice(&bytes).ok()?;
    pod.spec?.containers.into_iter().next()?.image
}
