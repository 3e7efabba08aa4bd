//! The API server's audit log: who wrote what when, and whether it succeeded. The judge of the rehearsals, since no
//! operator has a hand in it.

use std::fs::File;
use std::io::{BufRead, BufReader, Seek, SeekFrom};
use std::path::PathBuf;

use anyhow::{Context, Result};
use jiff::Timestamp;
use serde_json::Value;

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
    path: PathBuf,
    offset: u64,
    pub(crate) writes: Vec<Write>,
}

impl Log {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self {
            path,
            offset: 0,
            writes: Vec::new(),
        }
    }

    /// Takes in what has come since.
    pub(crate) fn follow(&mut self) -> Result<&[Write]> {
        let Ok(mut file) = File::open(&self.path) else {
            return Ok(&[]);
        };
        file.seek(SeekFrom::Start(self.offset))?;
        let mut reader = BufReader::new(file);
        let before = self.writes.len();
        let mut line = String::new();
        loop {
            line.clear();
            let read = reader.read_line(&mut line)?;
            // A line without its end is still being written.
            if read == 0 || !line.ends_with('\n') {
                break;
            }
            self.offset += u64::try_from(read)?;
            self.writes.extend(parse(&line)?);
        }
        Ok(self.writes.get(before..).unwrap_or_default())
    }
}

/// A write of an operator that succeeded; nothing for every other line.
fn parse(line: &str) -> Result<Option<Write>> {
    let event: Value = serde_json::from_str(line).context("a line of the audit log")?;
    let text = |pointer: &str| event.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let Some((role, number)) = text("/user/username").rsplit_once('-') else {
        return Ok(None);
    };
    let code = event
        .pointer("/responseStatus/code")
        .and_then(Value::as_u64)
        .unwrap_or_default();
    if !["operator", "deployer"].contains(&role) || !(200..300).contains(&code) {
        return Ok(None);
    }
    let Ok(by) = number.parse() else {
        return Ok(None);
    };
    let term = event
        .pointer("/requestObject/metadata/annotations/stratum.ciq.com~1term")
        .and_then(Value::as_str)
        .and_then(|term| term.parse().ok());
    let in_stack = text("/objectRef/namespace") == crate::rehearsal::NAMESPACE;
    let what = match (in_stack, text("/verb")) {
        (true, "delete") => What::Delete,
        (true, "patch" | "create" | "update") => What::Apply,
        (false, "patch" | "create" | "update") if is_inventory(&event) => What::Inventory,
        (true | false, _) => What::Other,
    };
    Ok(Some(Write {
        by,
        deployer: role == "deployer",
        what,
        term,
        received: text("/requestReceivedTimestamp").parse()?,
        completed: text("/stageTimestamp").parse()?,
    }))
}

/// A create has no name yet in its path.
fn is_inventory(event: &Value) -> bool {
    let text = |pointer: &str| event.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    text("/objectRef/resource") == "configmaps" && ["stratum-addon-inventory", ""].contains(&text("/objectRef/name"))
}
