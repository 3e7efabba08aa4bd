//! What stands before every mint: no certificate key is made while the CAs of the cluster are being replaced.
//!
//! A rotation hands its new CAs to the other controllers through the same Secret, under a key that is staged in Secret
//! `stratum-carotate`; a grant of that moment would hold a CA that is about to go. Only metadata is read: the staged key
//! itself is nobody's business here.

use kube::Client;

use crate::controllers::cluster::{self, CallError};
use crate::reconcilers::object::{GroupResource, ObjectId};

/// The Secret with the key of a running rotation.
pub const STAGED_KEY: &str = "stratum-carotate";
/// The ConfigMap that records a rotation until it has finished.
pub const ROTATION_RECORD: &str = "stratum-ca-rotation";

/// Why no key may be made now.
#[derive(Debug, thiserror::Error)]
pub enum GuardError {
    /// A rotation, or a migration of etcd's CA, is running.
    #[error(
        "the CAs of this cluster are being replaced (Secret {STAGED_KEY} is there); mint again when that has finished"
    )]
    Staged,
    /// A rotation was begun and has not come to its end.
    #[error(
        "a CA rotation was begun and has not finished (ConfigMap {ROTATION_RECORD}); resume it with 'stratum certs rotate-ca --cluster', or delete the record if it was rolled back completely"
    )]
    Unfinished,
    /// It cannot be told. A failure to read is no evidence that nothing is staged.
    #[error("cannot tell whether the CAs of this cluster are being replaced, so nothing is minted")]
    Unknown(#[source] CallError),
}

/// A replacement of CAs that is going on in the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Open {
    /// Its key is staged.
    Staged,
    /// It is recorded.
    Recorded,
}

/// Whether a rotation is staged or unfinished anywhere in the cluster.
///
/// # Errors
/// When that cannot be told.
pub async fn open_rotation(client: &Client, namespace: &str) -> Result<Option<Open>, CallError> {
    let id = |resource: &str, name: &str| ObjectId {
        resource: GroupResource::new("", resource),
        namespace: Some(namespace.to_owned()),
        name: name.to_owned(),
    };
    let (key, record) = (id("secrets", STAGED_KEY), id("configmaps", ROTATION_RECORD));
    let looks = (cluster::look(client, &key, "v1"), cluster::look(client, &record, "v1"));
    Ok(match futures::future::try_join(looks.0, looks.1).await? {
        (None, None) => None,
        (Some(_), _) => Some(Open::Staged),
        (None, Some(_)) => Some(Open::Recorded),
    })
}

/// Refuses while a rotation is staged or unfinished anywhere in the cluster.
///
/// # Errors
/// When one is, or that cannot be told.
pub async fn guard_rekey(client: &Client, namespace: &str) -> Result<(), GuardError> {
    match open_rotation(client, namespace).await.map_err(GuardError::Unknown)? {
        None => Ok(()),
        Some(Open::Staged) => Err(GuardError::Staged),
        Some(Open::Recorded) => Err(GuardError::Unfinished),
    }
}
