//! The API server's audit log: who wrote what when, and whether it succeeded. The judge of the rehearsals, since no
//! operator has a hand in it.

use std::path::PathBuf;

use anyhow::Result;
use jiff::Timestamp;
use serde_json::Value;

use crate::harness::audit::{self, Event};

/// Writes only; the inventory with what was written, for the term in it.
pub(crate) const POLICY: &str = "\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted]
rules:
- level: None
  verbs: [get, list, watch]
- level: Request
  resources:
  - group: \"\"
    resources: [configmaps]
    resourceNames: [stratum-addon-inventory]
- level: Metadata
";

/// What was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// An object of the stack was applied.
    Apply,
    /// An object of the stack was deleted.
    Delete,
    /// The inventory.
    Inventory,
    /// The Lease, the status, anything else.
    Other,
}

/// One write of an operator that succeeded.
#[derive(Clone, Debug)]
pub(crate) struct Write {
    /// Which process, by the number in its user.
    pub(crate) by: u32,
    /// Whether it came from the client of manifests. Inventory sync, which every instance does, has the other.
    pub(crate) deployer: bool,
    pub(crate) what: What,
    /// The term that an inventory write carries.
    pub(crate) term: Option<u64>,
    /// The request came.
    pub(crate) received: Timestamp,
    /// The answer was written.
    pub(crate) completed: Timestamp,
}

/// Reads the log as it grows.
pub(crate) struct Log {
    log: audit::Log,
    pub(crate) writes: Vec<Write>,
}

impl Log {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self {
            log: audit::Log::new(path),
            writes: Vec::new(),
        }
    }

    /// Takes in what has come since.
    pub(crate) fn follow(&mut self) -> Result<&[Write]> {
        let before = self.writes.len();
        self.writes.extend(self.log.follow()?.iter().filter_map(write));
        Ok(self.writes.get(before..).unwrap_or_default())
    }
}

/// A write of an operator that succeeded; nothing for every other request.
fn write(event: &Event) -> Option<Write> {
    let (role, number) = event.user().rsplit_once('-')?;
    if !["operator", "deployer"].contains(&role) || !event.succeeded() {
        return None;
    }
    let about = &event.object_ref;
    // A create has no name yet in its path.
    let inventory = about.resource == "configmaps" && ["stratum-addon-inventory", ""].contains(&&*about.name);
    let what = match (about.namespace == crate::rehearsal::NAMESPACE, &*event.verb) {
        (true, "delete") => What::Delete,
        (true, "patch" | "create" | "update") => What::Apply,
        (false, "patch" | "create" | "update") if inventory => What::Inventory,
        (true | false, _) => What::Other,
    };
    let term = event
        .request_object
        .pointer("/metadata/annotations/stratum.ciq.com~1term");
    Some(Write {
        by: number.parse().ok()?,
        deployer: role == "deployer",
        what,
        term: term.and_then(Value::as_str).and_then(|term| term.parse().ok()),
        received: event.received,
        completed: event.answered,
    })
}
