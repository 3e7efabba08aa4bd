//! `stratum operator status`: one page on who leads, what every instance last did, and who is missing.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::PathBuf;

use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use serde::Serialize;

use super::super::exit::Exit;
use super::super::{printer, report};
use crate::controllers::connection::{self, ClientSettings};
use crate::controllers::inventory::store::Store;
use crate::controllers::leader::LEASE;
use crate::controllers::operator::SYSTEM_NAMESPACE;
use crate::controllers::status::Status;
use crate::controllers::{cluster, status};
use crate::host::clock;
use crate::host::layout::{Identity, Layout};
use crate::reconcilers::inventory::migration::{LocalRecord, Observed, decide};

/// The flags of `stratum operator status`.
#[derive(Clone, Debug, clap::Args)]
pub(in crate::cli) struct Arguments {
    /// The kubeconfig of an administrator [default: /var/lib/stratum/kubeconfig/admin.conf]
    #[arg(long = "admin-kubeconfig", value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Print JSON instead of a page
    #[arg(long)]
    json: bool,
}

/// The page.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Page {
    leader: Option<String>,
    term: Option<i32>,
    renewed: Option<String>,
    inventory_closed: bool,
    inventory_nodes_missing: Vec<String>,
    instances: BTreeMap<String, Status>,
}

/// Runs the command.
pub(in crate::cli) async fn run(arguments: Arguments) -> anyhow::Result<Exit> {
    let kubeconfig = arguments
        .kubeconfig
        .unwrap_or_else(|| Layout::system().kubeconfig(Identity::Admin));
    let client = connection::client(&ClientSettings::new(kubeconfig, "status"), None).await?;
    let lease = Api::<Lease>::namespaced(client.clone(), SYSTEM_NAMESPACE)
        .get_opt(LEASE)
        .await?;
    let lease = lease.and_then(|lease| lease.spec).unwrap_or_default();
    let inventory = Store::new(client.clone(), SYSTEM_NAMESPACE)
        .load()
        .await?
        .documents
        .inventory;
    let control_plane = cluster::control_plane_nodes(&client).await?;
    let mut missing: Vec<String> = Vec::new();
    if let Some(node) = control_plane.first().cloned() {
        // As one of the expected nodes would see it, with a record that says nothing.
        let local = LocalRecord::Unreadable(String::new());
        let seen = Observed {
            inventory: inventory.clone(),
            control_plane,
            node,
            local,
        };
        missing = decide(&seen, clock::now()).missing;
    }
    let page = Page {
        leader: lease.holder_identity.filter(|holder| !holder.is_empty()),
        term: lease.lease_transitions,
        renewed: lease.renew_time.map(|at| at.0.to_string()),
        inventory_closed: inventory.is_some_and(|inventory| inventory.closed_at.is_some()),
        inventory_nodes_missing: missing,
        instances: status::read(&client, SYSTEM_NAMESPACE).await?.into_iter().collect(),
    };
    let text = if arguments.json {
        format!("{}\n", serde_json::to_string_pretty(&page)?)
    } else {
        table(&page)
    };
    printer::stdout(&text)?;
    Ok(Exit::Done)
}

fn table(page: &Page) -> String {
    let Page {
        leader,
        term,
        renewed,
        inventory_closed,
        inventory_nodes_missing,
        instances,
    } = page;
    let mut out = String::new();
    // Writing to a String cannot fail.
    let _ = match leader {
        Some(leader) => writeln!(
            out,
            "leader     {leader}, term {}, renewed {}",
            term.unwrap_or_default(),
            renewed.as_deref().unwrap_or("never")
        ),
        None => writeln!(
            out,
            "leader     none; an instance takes the Lease within seconds of its start"
        ),
    };
    let _ = match (inventory_closed, inventory_nodes_missing.as_slice()) {
        (true, _) => writeln!(out, "inventory  complete"),
        (false, []) => writeln!(out, "inventory  not complete; no node has contributed"),
        (false, missing) => writeln!(out, "inventory  waits for {}", missing.join(", ")),
    };
    for (node, status) in instances {
        let _ = writeln!(out, "\n{node}  stratum {}", status.version);
        if let Some(last) = &status.manifests {
            let _ = writeln!(out, "manifests  {} at {}", last.folder, last.at);
            out.push_str(&report::table(last));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_reads_like_this() {
        let page = Page {
            leader: Some("n1_0f".into()),
            term: Some(3),
            renewed: Some("2026-01-02T03:04:05Z".into()),
            inventory_closed: false,
            inventory_nodes_missing: vec!["n2".into(), "n3".into()],
            instances: BTreeMap::new(),
        };
        assert_eq!(
            table(&page),
            "leader     n1_0f, term 3, renewed 2026-01-02T03:04:05Z\ninventory  waits for n2, n3\n"
        );
    }
}
