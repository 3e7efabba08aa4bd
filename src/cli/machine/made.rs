//! What `stratum server` and `stratum join` have made, for people and for programs.

use std::net::IpAddr;
use std::path::PathBuf;

use serde::Serialize;

use super::super::printer::Output;
use crate::controllers::machine::node::Node;
use crate::host::layout::Identity;
use crate::host::node_pki;
use crate::host::node_state::{Member, Profile, Role};
use crate::pki::certificate::Certificate;
use crate::pki::pin;

/// What runs the node that was made.
const NEXT: [&str; 4] = ["systemctl", "enable", "--now", "stratum"];

/// The document of `-o json`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Made<'a> {
    node: &'a str,
    role: Role,
    profile: Profile,
    addresses: &'a [IpAddr],
    endpoint: String,
    /// Of the authorities that this node trusts, as `stratum join` takes them.
    ca_cert_hashes: Vec<String>,
    /// Of etcd, as this node was told; none on a worker.
    members: &'a [Member],
    node_state: PathBuf,
    /// The administrator's; none on a worker.
    kubeconfig: Option<PathBuf>,
    next_command: [&'static str; 4],
    next_command_line: String,
}

/// What is told of a node that was just made.
pub(super) fn told(node: &Node, output: Output) -> anyhow::Result<String> {
    let Node { layout, state, .. } = node;
    match output {
        Output::Table => {
            let (name, role) = (&state.node_name, state.role);
            Ok(format!(
                "{name} is a {role} now; start it: {}, or stratum up\n",
                NEXT.join(" ")
            ))
        }
        Output::Json => {
            let trusted = Certificate::bundle_from_pem(node_pki::read_trust(layout)?.as_bytes())?;
            let made = Made {
                node: &state.node_name,
                role: state.role,
                profile: state.profile,
                addresses: &state.addresses,
                endpoint: state.endpoint.to_string(),
                ca_cert_hashes: pin::pins(&trusted).iter().map(ToString::to_string).collect(),
                members: state.etcd.as_ref().map_or(&[], |etcd| &etcd.initial_cluster),
                node_state: layout.node_state(),
                kubeconfig: state.is_controller().then(|| layout.kubeconfig(Identity::Admin)),
                next_command: NEXT,
                next_command_line: NEXT.join(" "),
            };
            Ok(format!("{}\n", serde_json::to_string_pretty(&made)?))
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::controllers::machine::node::Config;
    use crate::controllers::machine::wish::example;
    use crate::host::layout::Layout;
    use crate::host::{clock, node_state};

    #[test]
    fn a_controller_is_told_in_words_and_as_one_document() {
        let folder = tempfile::tempdir().unwrap();
        let layout = Layout::under(folder.path());
        let mut state = example().state().unwrap();
        node_pki::prepare(&layout, &state, clock::now()).unwrap();
        let mut node = Node {
            layout: layout.clone(),
            state: state.clone(),
            config: Config::default(),
        };
        assert_eq!(
            told(&node, Output::Table).unwrap(),
            "alpha is a controller now; start it: systemctl enable --now stratum, or stratum up\n"
        );
        let made: Value = serde_json::from_str(&told(&node, Output::Json).unwrap()).unwrap();
        let authority = std::fs::read(layout.pki().join("ca.crt")).unwrap();
        let pin = pin::Pin::of(&Certificate::from_pem(&authority).unwrap()).to_string();
        assert_eq!(made["node"], "alpha");
        assert_eq!(made["role"], "controller");
        assert_eq!(made["caCertHashes"], json!([pin]));
        assert_eq!(made["endpoint"], state.endpoint.to_string());
        assert_eq!(made["members"], json!(state.etcd.as_ref().unwrap().initial_cluster));
        assert_eq!(made["nodeState"], json!(layout.node_state()));
        assert_eq!(made["kubeconfig"], json!(layout.kubeconfig(Identity::Admin)));
        assert_eq!(made["nextCommand"], json!(["systemctl", "enable", "--now", "stratum"]));
        assert_eq!(made["nextCommandLine"], "systemctl enable --now stratum");

        state.role = node_state::Role::Worker;
        state.etcd = None;
        node.state = state;
        let made: Value = serde_json::from_str(&told(&node, Output::Json).unwrap()).unwrap();
        assert_eq!((&made["role"], &made["members"]), (&json!("worker"), &json!([])));
        assert_eq!(made["kubeconfig"], Value::Null);
    }
}
