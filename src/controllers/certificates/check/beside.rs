//! What is remembered beside the certificates: how the last renewal went, and whether a rotation is open or incomplete.
//! Whatever makes no sense is told, and never taken for nothing.

use std::io;
use std::path::Path;

use serde_json::Value;

use crate::controllers::concern::chain;
use crate::host::layout::{Form, Layout};
use crate::host::{rotation_incomplete, rotation_phase};
use crate::reconcilers::certificates::status::{Renewal, Rotation};

/// `renewal.json`: `attemptedAt`, `result` (why it failed; `in progress` while it runs; left out when it succeeded).
pub(super) fn renewal(layout: &Layout) -> Renewal {
    let path = layout.renewal_record();
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Renewal::None,
        Err(error) => {
            return Renewal::Unreadable {
                reason: format!("{}: {error}", path.display()),
            };
        }
    };
    let record: Value = serde_json::from_str(&text).unwrap_or_default();
    let Some(attempted_at) = record["attemptedAt"].as_str().map(str::to_owned) else {
        return Renewal::Unreadable {
            reason: format!("{} is no record of a renewal", path.display()),
        };
    };
    let finished = record["finishedAt"].is_string();
    match record["result"].as_str().unwrap_or_default() {
        "" if finished || record["state"].is_null() => Renewal::Succeeded { attempted_at },
        "" | "in progress" => Renewal::InProgress { attempted_at },
        result => Renewal::Failed {
            attempted_at,
            result: result.to_owned(),
        },
    }
}

/// The phase by the files that a rotation of authorities leaves, and the marker of one of leaves.
pub(super) fn rotation(layout: &Layout) -> Rotation {
    let (incomplete, incomplete_from_expired) = rotation_incomplete::incomplete_rotation(layout);
    let phase = rotation_phase::rotation_phase(layout);
    let mut detail = rotation_phase::rotation_detail(layout);
    if detail.is_empty() && layout.form() == Form::Stratum {
        detail = open(&layout.pki());
    }
    let phase = if phase.is_idle() && !detail.is_empty() {
        "open".to_owned()
    } else {
        phase.to_string()
    };
    if let Err(error) = rotation_incomplete::load(layout) {
        detail.push(chain(&error));
    }
    Rotation {
        phase,
        detail,
        incomplete,
        incomplete_from_expired,
    }
}

fn open(pki: &Path) -> Vec<String> {
    let names = |folder: &Path| -> Vec<String> {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        let mut names: Vec<String> = entries
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    };
    let staged = names(&pki.join("rotation")).into_iter();
    let staged = staged.map(|run| format!("material of run {run} is staged"));
    let kept = [pki.to_owned(), pki.join("etcd")]
        .into_iter()
        .flat_map(|folder| names(&folder));
    let kept = kept.filter(|name| name.ends_with(".pre-carotate"));
    staged
        .chain(kept.map(|name| format!("{name} is kept to go back to")))
        .collect()
}
