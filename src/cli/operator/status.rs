//! `stratum operator status`: one page on who leads, what every instance last did, and who is missing.

use std::collections::BTreeMap;
use std::fmt::Write;

use anyhow::Context;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Client;
use serde::Serialize;

use super::super::administrator::Administrator;
use super::super::exit::Exit;
use super::super::printer::{self, Output};
use super::super::report;
use crate::controllers::cluster::{self, CallErrorKind};
use crate::controllers::concern::chain;
use crate::controllers::inventory::store::{Store, StoreError};
use crate::controllers::leader::LEASE;
use crate::controllers::operator::SYSTEM_NAMESPACE;
use crate::controllers::status::{self, Status, SyncStatus, Told};
use crate::host::clock;
use crate::reconcilers::inventory::document::Inventory;
use crate::reconcilers::inventory::migration::{LocalRecord, Note, Observed, decide};

/// The flags of `stratum operator status`.
#[derive(Clone, Debug, clap::Args)]
pub(in crate::cli) struct Arguments {
    #[command(flatten)]
    administrator: Administrator,
    /// The form of the answer
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    output: Output,
}

/// The page. Every key is always there; the README names them.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Page {
    /// How the Lease names its holder; null when nobody leads.
    leader: Option<String>,
    /// The number of its term, or of the last one.
    term: Option<i32>,
    /// When the Lease was written last.
    renewed: Option<String>,
    /// Whether the migration to the inventory has closed.
    inventory_closed: bool,
    /// The nodes it waits for.
    inventory_nodes_missing: Vec<String>,
    /// What keeps it open besides, or why it cannot be read.
    inventory_problem: Option<String>,
    /// What every instance tells, by node.
    instances: BTreeMap<String, Status>,
    /// Nodes whose status cannot be read, and why.
    unreadable: BTreeMap<String, String>,
}

/// Runs the command.
pub(in crate::cli) async fn run(arguments: Arguments) -> anyhow::Result<Exit> {
    let client = arguments.administrator.client("status").await?;
    let page = page(&client).await.with_context(|| {
        let kubeconfig = arguments.administrator.kubeconfig();
        format!("cannot ask the API server that {} names", kubeconfig.display())
    })?;
    let text = match arguments.output {
        Output::Json => format!("{}\n", serde_json::to_string_pretty(&page)?),
        Output::Table => table(&page),
    };
    printer::stdout(&text)?;
    Ok(Exit::Done)
}

async fn page(client: &Client) -> anyhow::Result<Page> {
    let path = cluster::collection_path("coordination.k8s.io", "v1", "leases", Some(SYSTEM_NAMESPACE));
    let lease = match cluster::fetch::<Lease>(client, &format!("{path}/{LEASE}"), "application/json").await {
        Ok(lease) => lease.spec.unwrap_or_default(),
        Err(error) if error.kind() == CallErrorKind::NotFound => Default::default(),
        Err(error) => return Err(error.into()),
    };
    let Told { instances, unreadable } = status::read(client, SYSTEM_NAMESPACE).await?;
    let mut page = Page {
        leader: lease.holder_identity.filter(|holder| !holder.is_empty()),
        term: lease.lease_transitions,
        renewed: lease.renew_time.map(|at| at.0.to_string()),
        instances,
        unreadable,
        ..Page::default()
    };
    match Store::new(client.clone(), SYSTEM_NAMESPACE).load().await {
        Ok(stored) => migration(client, stored.documents.inventory, &mut page).await?,
        Err(StoreError::Unreadable(problem)) => page.inventory_problem = Some(chain(&problem)),
        Err(error) => return Err(error.into()),
    }
    Ok(page)
}

/// Where the migration to the inventory stands.
async fn migration(client: &Client, inventory: Option<Inventory>, page: &mut Page) -> anyhow::Result<()> {
    page.inventory_closed = inventory.as_ref().is_some_and(|known| known.closed_at.is_some());
    if page.inventory_closed {
        return Ok(());
    }
    let control_plane = cluster::control_plane_nodes(client).await?;
    let Some(node) = control_plane.first().cloned() else {
        page.inventory_problem = Some("no control-plane Node is registered yet".to_owned());
        return Ok(());
    };
    // As one of the expected nodes would see it, with a record that says nothing.
    let seen = Observed {
        inventory,
        control_plane,
        node,
        local: LocalRecord::Unreadable(String::new()),
    };
    page.inventory_nodes_missing = decide(&seen, clock::now()).missing;
    Ok(())
}

fn table(page: &Page) -> String {
    let Page {
        leader,
        term,
        renewed,
        inventory_closed,
        inventory_nodes_missing,
        inventory_problem,
        instances,
        unreadable,
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
    let _ = match (inventory_problem, inventory_closed, inventory_nodes_missing.as_slice()) {
        (Some(problem), ..) => writeln!(out, "inventory  {problem}"),
        (None, true, _) => writeln!(out, "inventory  complete"),
        (None, false, []) => writeln!(
            out,
            "inventory  every node has contributed; the next pass of one completes it"
        ),
        (None, false, missing) => writeln!(out, "inventory  waits for {}", missing.join(", ")),
    };
    for (node, status) in instances {
        let _ = writeln!(out, "\n{node}  stratum {}", status.version);
        if let Some(last) = &status.inventory_sync {
            let _ = writeln!(out, "sync       {}", sync(last));
        }
        if let Some(last) = &status.manifests {
            let term = status.term.map(|term| format!(", term {term}")).unwrap_or_default();
            let _ = writeln!(out, "manifests  {} at {}{term}", last.folder, last.at);
            out.push_str(&report::table(last));
        }
    }
    out.push_str(&report::unreadable(unreadable));
    out
}

fn sync(last: &SyncStatus) -> String {
    let SyncStatus {
        note,
        missing,
        unreadable,
        at,
    } = last;
    let why = unreadable.as_deref().unwrap_or_default();
    let words = match note {
        Note::Closed => "this node's record is in the inventory".to_owned(),
        Note::Complete => "this node's record completed the inventory".to_owned(),
        Note::Recovery => "completed by the recovery entry".to_owned(),
        Note::Waiting => format!("waits for {}", missing.join(", ")),
        Note::LocalUnreadable => format!("this node's record cannot be read: {why}"),
        Note::NoControlPlane => "no control-plane Node is registered yet".to_owned(),
    };
    format!("{words}, since {at}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_reads_like_this() {
        let sync = |note, unreadable: Option<&str>| Status {
            version: "0.1.0".into(),
            term: None,
            manifests: None,
            inventory_sync: Some(SyncStatus {
                note,
                missing: vec!["n3".into()],
                unreadable: unreadable.map(str::to_owned),
                at: jiff::Timestamp::UNIX_EPOCH,
            }),
        };
        let page = Page {
            leader: Some("n1_0f".into()),
            term: Some(3),
            renewed: Some("2026-01-02T03:04:05Z".into()),
            inventory_nodes_missing: vec!["n2".into(), "n3".into()],
            instances: BTreeMap::from([
                ("n1".to_owned(), sync(Note::Waiting, None)),
                (
                    "n2".to_owned(),
                    sync(Note::LocalUnreadable, Some("/m/.applied.json: EOF")),
                ),
            ]),
            unreadable: BTreeMap::from([("n3".to_owned(), "expected value".to_owned())]),
            ..Page::default()
        };
        assert_eq!(
            table(&page),
            "leader     n1_0f, term 3, renewed 2026-01-02T03:04:05Z\n\
             inventory  waits for n2, n3\n\
             \n\
             n1  stratum 0.1.0\n\
             sync       waits for n3, since 1970-01-01T00:00:00Z\n\
             \n\
             n2  stratum 0.1.0\n\
             sync       this node's record cannot be read: /m/.applied.json: EOF, since 1970-01-01T00:00:00Z\n\
             \n\
             n3  its key of ConfigMap kube-system/stratum-operator-status cannot be read: expected value; it is written anew \
             at that node's next news\n"
        );
    }

    #[test]
    fn nobody_leads_and_no_node_is_known() {
        let page = Page {
            inventory_problem: Some("no control-plane Node is registered yet".into()),
            ..Page::default()
        };
        assert_eq!(
            table(&page),
            "leader     none; an instance takes the Lease within seconds of its start\n\
             inventory  no control-plane Node is registered yet\n"
        );
    }
}
