//! Who uses which leaf of a controller, how each of them comes to use a new one, and what follows when leaves were replaced:
//! who is restarted, in which order, and what proves of everybody that it has moved.
//!
//! Who reads what when is Kubernetes' and etcd's own doing (1.37 and 3.7): the API server and the kubelet watch the files they
//! serve with; the API server watches the pair it is a proxy with, and looks at the one it is a kubelet's client with every
//! five minutes; etcd and its clients read their pairs at each handshake. Whoever has an identity of its own from a kubeconfig
//! is only believed to have moved when it was started after the write.

use std::collections::{BTreeMap, BTreeSet};

/// A process that uses leaves of this node, in the order in which they are restarted: each needs those before it.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    serde::Serialize,
    strum::Display,
    strum::EnumString,
    strum::IntoStaticStr,
    strum::EnumIter,
)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum Consumer {
    /// The kubelet, without which no static pod is restarted.
    Kubelet,
    /// This node's member of etcd.
    Etcd,
    /// The API server.
    KubeApiserver,
    /// The controllers of Kubernetes itself.
    KubeControllerManager,
    /// The scheduler.
    KubeScheduler,
    /// What announces the shared address.
    KubeVip,
    /// This program's own controllers.
    Operator,
}

/// How a consumer comes to use a leaf that was replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PicksUp {
    /// It serves with it as soon as it is written: a handshake shows it.
    Serves,
    /// It reads it at each handshake in which it is the client.
    EachHandshake,
    /// It reads it as soon as it is written, and nothing from outside shows that.
    OnWrite,
    /// It looks at it again within five minutes.
    WithinMinutes,
    /// It reads it when it starts.
    AtStart,
}

/// What shows that a consumer uses the new leaf.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, strum::Display, strum::EnumIter,
)]
#[serde(rename_all = "kebab-case")]
pub enum Proof {
    /// Each of its listeners was asked.
    #[strum(serialize = "serves the new serial")]
    Serves,
    /// Its process is younger than the file.
    #[strum(serialize = "started after the write")]
    StartedAfter,
    /// By how it is made.
    #[strum(serialize = "reads it at each handshake")]
    EachHandshake,
    /// By how it is made.
    #[strum(serialize = "reads it when it changes")]
    OnWrite,
    /// By how it is made; not waited for.
    #[strum(serialize = "re-reads it within 5 minutes")]
    WithinMinutes,
    /// It does not run, and will read what is there.
    #[strum(serialize = "does not run, reads it at its start")]
    NotRunning,
}

/// The uses of a leaf, by its name in either layout. Empty for one that commands read whenever they run.
#[must_use]
pub fn uses(leaf: &str) -> &'static [(Consumer, PicksUp)] {
    use Consumer as C;
    use PicksUp as P;
    match leaf {
        "apiserver" => &[(C::KubeApiserver, P::Serves)],
        "apiserver-kubelet-client" => &[(C::KubeApiserver, P::WithinMinutes)],
        "apiserver-etcd-client" => &[(C::KubeApiserver, P::EachHandshake)],
        "front-proxy-client" => &[(C::KubeApiserver, P::OnWrite)],
        "etcd/server" | "etcd-server" | "etcd/peer" | "etcd-peer" => &[(C::Etcd, P::Serves)],
        "admin" | "admin.conf" | "super-admin.conf" => &[(C::KubeVip, P::AtStart)],
        "operator" | "deployer" => &[(C::Operator, P::AtStart)],
        "controller-manager" | "controller-manager.conf" => &[(C::KubeControllerManager, P::AtStart)],
        "scheduler" | "scheduler.conf" => &[(C::KubeScheduler, P::AtStart)],
        "kubelet" => &[(C::Kubelet, P::Serves)],
        "kubelet-client" | "kubelet.conf" => &[(C::Kubelet, P::AtStart)],
        // For `etcdctl`, probes and this program.
        _ => &[],
    }
}

/// How things stand after the writes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Situation {
    /// The leaves that were replaced, also by an earlier run that did not come to its end.
    pub leaves: BTreeSet<String>,
    /// Who is on this node.
    pub here: BTreeSet<Consumer>,
    /// Who does not answer.
    pub down: BTreeSet<Consumer>,
    /// Leaves that had expired. Whoever uses one of them may have given up on whatever it needed it for.
    pub expired: BTreeSet<String>,
    /// Whom an earlier run left to be moved; none when it did not say, or there was none.
    pub waiting: Option<BTreeSet<Consumer>>,
}

/// Why a consumer is restarted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, strum::Display)]
#[serde(rename_all = "kebab-case")]
pub enum Reason {
    /// It reads a leaf only then.
    #[strum(serialize = "it reads its certificate at its start only")]
    AtStart,
    /// It does not answer.
    #[strum(serialize = "it does not answer")]
    Down,
    /// It used a leaf that had expired.
    #[strum(serialize = "a certificate of its own had expired")]
    Expired,
    /// Something that it needs is restarted because it was down or its leaf had expired.
    #[strum(serialize = "what it depends on was down")]
    Follows,
    /// It was to reload, and did not.
    #[strum(serialize = "it goes on serving the old certificate")]
    DidNotReload,
}

/// One consumer: whether it is restarted, and what has to be shown of it then.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Move {
    /// Who.
    pub consumer: Consumer,
    /// Why it is restarted, if it is.
    pub restart: Option<Reason>,
    /// What is to be shown for each leaf.
    pub proofs: BTreeMap<String, Proof>,
}

/// Who has to move, in order. Whoever is not here does not have to.
#[must_use]
pub fn plan(situation: &Situation) -> Vec<Move> {
    let Situation {
        leaves,
        here,
        down,
        expired,
        waiting,
    } = situation;
    let mut moves = Vec::new();
    let mut broken_before = false;
    for consumer in here {
        let uses = leaves.iter().flat_map(|leaf| used_by(leaf, *consumer));
        let uses: Vec<(&str, PicksUp)> = uses.collect();
        let used_expired = expired.iter().any(|leaf| used_by(leaf, *consumer).next().is_some());
        let reads_at_start = uses.iter().any(|(_, how)| *how == PicksUp::AtStart);
        let left_over = waiting.as_ref().is_some_and(|waiting| waiting.contains(consumer));
        let own = if down.contains(consumer) {
            Some(Reason::Down)
        } else if used_expired {
            Some(Reason::Expired)
        } else {
            None
        };
        let restart = own
            .or((broken_before && needs_others(*consumer)).then_some(Reason::Follows))
            .or((reads_at_start || left_over).then_some(Reason::AtStart));
        // Pods do not need a kubelet to go on.
        broken_before |= own.is_some() && *consumer != Consumer::Kubelet;
        if restart.is_none() && uses.is_empty() {
            continue;
        }
        let proof = |how| match (how, restart) {
            (PicksUp::Serves, _) => Proof::Serves,
            (PicksUp::AtStart, _) | (_, Some(_)) => Proof::StartedAfter,
            (PicksUp::EachHandshake, None) => Proof::EachHandshake,
            (PicksUp::OnWrite, None) => Proof::OnWrite,
            (PicksUp::WithinMinutes, None) => Proof::WithinMinutes,
        };
        moves.push(Move {
            consumer: *consumer,
            restart,
            proofs: uses
                .iter()
                .map(|(leaf, how)| ((*leaf).to_owned(), proof(*how)))
                .collect(),
        });
    }
    moves
}

/// Whether the API server of the node cannot answer anybody without this leaf.
#[must_use]
pub fn needed_by_the_api_server(leaf: &str) -> bool {
    let needed = [
        "apiserver",
        "apiserver-etcd-client",
        "etcd/server",
        "etcd-server",
        "etcd/peer",
        "etcd-peer",
    ];
    needed.contains(&leaf)
}

/// Everybody who uses one of these leaves.
#[must_use]
pub fn consumers<'a>(leaves: impl IntoIterator<Item = &'a String>) -> BTreeSet<Consumer> {
    let uses = leaves.into_iter().flat_map(|leaf| uses(leaf));
    uses.map(|(consumer, _)| *consumer).collect()
}

fn used_by(leaf: &str, consumer: Consumer) -> impl Iterator<Item = (&str, PicksUp)> {
    let own = uses(leaf).iter().filter(move |(user, _)| *user == consumer);
    own.map(move |(_, how)| (leaf, *how))
}

/// Whether a consumer gives up when what it depends on is away for long.
const fn needs_others(consumer: Consumer) -> bool {
    match consumer {
        Consumer::Kubelet | Consumer::Etcd => false,
        Consumer::KubeApiserver
        | Consumer::KubeControllerManager
        | Consumer::KubeScheduler
        | Consumer::KubeVip
        | Consumer::Operator => true,
    }
}

#[cfg(test)]
mod tests;
