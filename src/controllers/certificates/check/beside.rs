//! What is remembered beside the certificates: how the last renewal went, and whether a rotation is open or incomplete.
//! Whatever makes no sense is told, and never taken for nothing.

use crate::controllers::concern::chain;
use crate::host::layout::Layout;
use crate::host::renewal_record::{RenewalResult, load_renewal_record};
use crate::host::{rotation_incomplete, rotation_phase};
use crate::reconcilers::certificates::status::{Renewal, Rotation};

/// `renewal.json`.
pub(super) fn renewal(layout: &Layout) -> Renewal {
    let record = match load_renewal_record(layout) {
        Ok(Some(record)) => record,
        Ok(None) => return Renewal::None,
        Err(error) => return Renewal::Unreadable { reason: chain(&error) },
    };
    let attempted_at = record.attempted_at.to_string();
    match record.result {
        RenewalResult::Succeeded => Renewal::Succeeded { attempted_at },
        RenewalResult::InProgress => Renewal::InProgress { attempted_at },
        RenewalResult::Failed(_) => Renewal::Failed {
            result: record.text().to_owned(),
            attempted_at,
        },
    }
}

/// The phase by the files that a rotation of authorities leaves, and the marker of one of leaves.
pub(super) fn rotation(layout: &Layout) -> Rotation {
    let marker = rotation_incomplete::load(layout);
    // Somebody who may not read it is told so, and not that there is one.
    let denied = marker.as_ref().is_err_and(rotation_incomplete::Error::is_denied);
    let (incomplete, incomplete_from_expired) = match denied {
        true => (false, false),
        false => rotation_incomplete::incomplete_rotation(layout),
    };
    let phase = rotation_phase::rotation_phase(layout);
    let mut detail = rotation_phase::rotation_detail(layout);
    if let Err(error) = marker {
        detail.push(chain(&error));
    }
    Rotation {
        phase: phase.to_string(),
        detail,
        incomplete,
        incomplete_from_expired,
    }
}
