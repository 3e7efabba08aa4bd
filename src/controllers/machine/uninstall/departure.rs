//! What the cluster has to know, or to grant, before a node goes: decided without asking anybody.

use serde::Serialize;

use crate::host::etcd::members::Leaving;
use crate::host::node_state::Role;

/// What was found out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observed {
    /// Which node this is; none when `node.yaml` is gone.
    pub node: Option<(String, Role)>,
    /// What an earlier uninstall remembered, when the cluster has let this node go already.
    pub let_go: Option<String>,
    /// Whose the Node of that name is, or why nobody says.
    pub standing: Result<Standing, String>,
    /// What is to be done about this controller's member of etcd, or why nobody says.
    pub member: Result<Leaving, String>,
    /// Whether it goes on although the cluster cannot be told.
    pub offline: bool,
}

/// Whose a Node is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// This machine's.
    Own,
    /// There is none.
    Absent,
    /// Another machine has the name by now; what the Node says of its machine.
    OtherMachine(Option<String>),
}

/// How this node leaves its cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Departure {
    /// `node.yaml` is gone: the cluster has been told, or there was none.
    NoNode,
    /// It left before; what was done then.
    Left {
        /// The node's name.
        node: String,
        /// What was done.
        words: String,
    },
    /// A worker, whose Node gets the mark and is deleted by the operator.
    Worker {
        /// The node's name.
        node: String,
        /// Whether there is a Node of it to mark.
        mark: bool,
    },
    /// A controller of several.
    Controller {
        /// The node's name.
        node: String,
        /// Whether its Node is deleted.
        delete: bool,
        /// Its member of etcd that is removed.
        member: Option<String>,
        /// What the cluster cannot be asked, so that it is not done.
        undone: Option<String>,
    },
    /// The only controller: the cluster goes, with everything that is stored in it.
    Last {
        /// The node's name.
        node: String,
    },
    /// The cluster does not answer, and it was said to go on.
    Offline {
        /// The node's name.
        node: String,
        /// What it is.
        #[serde(skip)]
        role: Role,
        /// Why nobody was told.
        reason: String,
    },
    /// It does not.
    Refused {
        /// Why.
        obstacle: Obstacle,
    },
}

impl Departure {
    /// Whether the members of etcd change, which the cluster fence stands before.
    #[must_use]
    pub fn changes_members(&self) -> bool {
        match self {
            Self::Controller { member, .. } => member.is_some(),
            Self::Last { .. } => true,
            Self::NoNode | Self::Left { .. } | Self::Worker { .. } | Self::Offline { .. } | Self::Refused { .. } => {
                false
            }
        }
    }
}

/// Why a node does not leave. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, thiserror::Error)]
#[serde(tag = "kind", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Obstacle {
    /// The rest of etcd could decide nothing.
    #[error(
        "without this controller etcd loses its quorum: {healthy} of the other members answer, and {needed} are needed; bring the others back first"
    )]
    NoQuorum {
        /// Others with a vote that answer.
        healthy: usize,
        /// Others with a vote that are needed.
        needed: usize,
    },
    /// The cluster cannot be told.
    #[error("the cluster cannot be told that {node} leaves: {reason}; mend that, or go on with --offline, after which somebody has to tell it (kubectl delete node {node}{})", if *.member { ", etcdctl member remove" } else { "" })]
    Silent {
        /// The node's name.
        node: String,
        /// Why.
        reason: String,
        /// Whether it has a member of etcd.
        member: bool,
    },
    /// Which node this is cannot be read.
    #[error("it cannot be told which node this is: {reason}; mend that, or go on with --offline")]
    Unreadable {
        /// What is wrong with `node.yaml`.
        reason: String,
    },
}

/// How a node leaves.
#[must_use]
pub fn decide(observed: Observed) -> Departure {
    let Observed {
        node,
        let_go,
        standing,
        member,
        offline,
    } = observed;
    let Some((node, role)) = node else {
        return Departure::NoNode;
    };
    let silent = |reason: String| match (let_go, offline) {
        (Some(words), _) => Departure::Left {
            node: node.clone(),
            words,
        },
        (None, true) => Departure::Offline {
            node: node.clone(),
            role,
            reason,
        },
        (None, false) => Departure::Refused {
            obstacle: Obstacle::Silent {
                node: node.clone(),
                reason,
                member: role == Role::Controller,
            },
        },
    };
    match role {
        Role::Worker => match standing {
            Ok(standing) => Departure::Worker {
                node,
                mark: standing == Standing::Own,
            },
            Err(reason) => silent(reason),
        },
        Role::Controller => match member {
            Ok(Leaving::Last) => Departure::Last { node },
            Ok(Leaving::NoQuorum { healthy, needed }) => Departure::Refused {
                obstacle: Obstacle::NoQuorum { healthy, needed },
            },
            Ok(Leaving::Remove(id)) => match standing {
                Err(reason) if !offline => silent(reason),
                standing => controller(node, standing, Some(id.0)),
            },
            // Its own API server cannot answer without a member, and its Node went before the member did.
            Ok(Leaving::Gone) => controller(node, standing, None),
            Err(reason) => silent(reason),
        },
    }
}

fn controller(node: String, standing: Result<Standing, String>, member: Option<String>) -> Departure {
    Departure::Controller {
        node,
        delete: standing == Ok(Standing::Own),
        member,
        undone: standing.err(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::etcd::members::MemberId;

    fn observed(role: Role) -> Observed {
        Observed {
            node: Some(("n".to_owned(), role)),
            let_go: None,
            standing: Ok(Standing::Own),
            member: Ok(Leaving::Gone),
            offline: false,
        }
    }

    fn obstacle(departure: Departure) -> Obstacle {
        match departure {
            Departure::Refused { obstacle } => obstacle,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_worker() {
        let worker = || observed(Role::Worker);
        let marked = |mark| Departure::Worker {
            node: "n".to_owned(),
            mark,
        };
        assert_eq!(decide(worker()), marked(true));
        for standing in [Standing::Absent, Standing::OtherMachine(None)] {
            let observed = Observed {
                standing: Ok(standing),
                ..worker()
            };
            assert_eq!(decide(observed), marked(false));
        }
        let silent = || Observed {
            standing: Err("no route".to_owned()),
            ..worker()
        };
        assert!(matches!(
            obstacle(decide(silent())),
            Obstacle::Silent { member: false, .. }
        ));
        let offline = Observed {
            offline: true,
            ..silent()
        };
        assert!(matches!(decide(offline), Departure::Offline { .. }));
        let again = Observed {
            let_go: Some("marked".to_owned()),
            ..silent()
        };
        assert!(matches!(decide(again), Departure::Left { .. }));
        // What can be asked is asked again, whatever was remembered: the node may have been started meanwhile.
        let again = Observed {
            let_go: Some("marked".to_owned()),
            ..worker()
        };
        assert_eq!(decide(again), marked(true));
        let unknown = Observed { node: None, ..silent() };
        assert_eq!(decide(unknown), Departure::NoNode);
    }

    #[test]
    fn a_controller() {
        let controller = |member: Result<Leaving, String>| Observed {
            member,
            ..observed(Role::Controller)
        };
        let remove = || Ok(Leaving::Remove(MemberId("7".to_owned())));
        let lost = || Ok(Leaving::NoQuorum { healthy: 1, needed: 2 });
        let leaves = |delete, member: Option<&str>, undone: Option<&str>| Departure::Controller {
            node: "n".to_owned(),
            delete,
            member: member.map(str::to_owned),
            undone: undone.map(str::to_owned),
        };
        let mute = |observed: Observed| Observed {
            standing: Err("refused".to_owned()),
            ..observed
        };
        let offline = |observed: Observed| Observed {
            offline: true,
            ..observed
        };
        assert_eq!(decide(controller(remove())), leaves(true, Some("7"), None));
        assert!(matches!(
            obstacle(decide(mute(controller(remove())))),
            Obstacle::Silent { member: true, .. }
        ));
        assert_eq!(
            decide(offline(mute(controller(remove())))),
            leaves(false, Some("7"), Some("refused"))
        );
        assert_eq!(decide(controller(Ok(Leaving::Gone))), leaves(true, None, None));
        assert_eq!(
            decide(mute(controller(Ok(Leaving::Gone)))),
            leaves(false, None, Some("refused"))
        );
        let last = Departure::Last { node: "n".to_owned() };
        assert_eq!(decide(controller(Ok(Leaving::Last))), last);
        for (departure, changes) in [
            (decide(controller(remove())), true),
            (decide(offline(mute(controller(remove())))), true),
            (last.clone(), true),
            (decide(controller(Ok(Leaving::Gone))), false),
            (decide(controller(lost())), false),
            (decide(observed(Role::Worker)), false),
        ] {
            assert_eq!(departure.changes_members(), changes, "{departure:?}");
        }
        assert_eq!(decide(mute(controller(Ok(Leaving::Last)))), last);
        // No flag takes the others' quorum.
        for observed in [
            controller(lost()),
            offline(controller(lost())),
            offline(mute(controller(lost()))),
        ] {
            assert!(matches!(
                obstacle(decide(observed)),
                Obstacle::NoQuorum { healthy: 1, needed: 2 }
            ));
        }
        let nobody = || controller(Err("nobody answers".to_owned()));
        assert!(matches!(obstacle(decide(nobody())), Obstacle::Silent { .. }));
        assert!(matches!(decide(offline(nobody())), Departure::Offline { .. }));
    }

    #[test]
    fn what_is_in_the_way_is_told() {
        let silent = Obstacle::Silent {
            node: "n".to_owned(),
            reason: "no route".to_owned(),
            member: true,
        };
        assert_eq!(
            silent.to_string(),
            "the cluster cannot be told that n leaves: no route; mend that, or go on with --offline, after which somebody has to tell it (kubectl delete node n, etcdctl member remove)"
        );
    }
}
