//! The controllers of Kubernetes itself.

use ipnet::IpNet;

use super::super::super::layout::Identity;
use super::super::Component;
use super::elected::Elected;
use super::pod::Parts;
use super::{Arguments, Context, join};

pub(super) fn parts(context: &Context<'_>) -> Parts {
    let manager = Elected {
        component: Component::KubeControllerManager,
        identity: Identity::ControllerManager,
        cpu: "200m",
        alive: "/healthz",
        // kubeadm has no such probe: a pod that does not answer should not count as ready.
        ready: "/healthz",
    };
    let arguments = arguments(context, manager.arguments(context));
    manager.parts(context, arguments)
}

fn arguments(context: &Context<'_>, mut arguments: Arguments) -> Arguments {
    let networks = &context.state.networks;
    let mut set = |name: &str, value: String| arguments.set(name, value);
    // Bundles where kubeadm names the one certificate that signs: two are trusted while one replaces the other.
    set("client-ca-file", context.pki("ca-bundle.crt"));
    set("requestheader-client-ca-file", context.pki("front-proxy-ca-bundle.crt"));
    set("root-ca-file", context.pki("ca-bundle.crt"));
    set("service-account-private-key-file", context.pki("sa.key"));
    set("use-service-account-credentials", "true".to_owned());
    set("controllers", "*,bootstrapsigner,tokencleaner".to_owned());
    set("cluster-name", "kubernetes".to_owned());
    // Not kubeadm's, which has one pair for all: a pair for each signer, so that the kubelets' can move to an authority of
    // its own. The common pair must be absent then. Each file holds exactly one certificate, or nothing is signed.
    for signer in SIGNERS {
        set(&format!("cluster-signing-{signer}-cert-file"), context.pki("ca.crt"));
        set(&format!("cluster-signing-{signer}-key-file"), context.pki("ca.key"));
    }
    // Not kubeadm's: a debugging endpoint that nobody needs in a cluster, and the CIS benchmark asks for it.
    set("profiling", "false".to_owned());
    if !networks.pods.is_empty() {
        set("allocate-node-cidrs", "true".to_owned());
        set("cluster-cidr", join(&networks.pods));
        set("service-cluster-ip-range", join(&networks.services));
        for (name, size) in node_ranges(&networks.pods) {
            set(name, size.to_string());
        }
    }
    arguments
}

const SIGNERS: [&str; 4] = [
    "kubelet-serving",
    "kubelet-client",
    "kube-apiserver-client",
    "legacy-unknown",
];

/// How long the prefix of one node's share of each range is. Not kubeadm's, which leaves it to the defaults of
/// kube-controller-manager (24 and 64): those are refused with a range that is smaller than one share, and with one that
/// has more than 2^16 of them.
fn node_ranges(pods: &[IpNet]) -> Vec<(&'static str, u8)> {
    let name = |range: &IpNet| match (pods.len(), range) {
        (0 | 1, _) => "node-cidr-mask-size",
        (_, IpNet::V4(_)) => "node-cidr-mask-size-ipv4",
        (_, IpNet::V6(_)) => "node-cidr-mask-size-ipv6",
    };
    pods.iter().map(|range| (name(range), node_range(range))).collect()
}

fn node_range(range: &IpNet) -> u8 {
    let (usual, longest) = match range {
        IpNet::V4(_) => (24, 30),
        IpNet::V6(_) => (64, 126),
    };
    let prefix = range.prefix_len();
    if prefix > usual {
        return prefix.saturating_add(4).min(longest).max(prefix);
    }
    usual.min(prefix.saturating_add(16))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nodes_share_fits_into_its_range() {
        let share = |range: &str| node_range(&range.parse().unwrap());
        assert_eq!(["10.244.0.0/16", "10.0.0.0/8", "10.1.2.0/24"].map(share), [24, 24, 24]);
        assert_eq!(["10.1.2.0/26", "10.1.2.0/28", "10.1.2.0/31"].map(share), [30, 30, 31]);
        assert_eq!(["0.0.0.0/4", "fd00::/56", "fd00::/48"].map(share), [20, 64, 64]);
        assert_eq!(["fd00::/32", "fd00::/112", "fd00::/124"].map(share), [48, 116, 126]);
    }
}
