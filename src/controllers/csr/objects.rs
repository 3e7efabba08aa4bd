//! CertificateSigningRequest objects, read as the decisions read them and written as the API server wants them.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::certificates::v1::{CertificateSigningRequest, CertificateSigningRequestCondition};
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::Root;
use crate::reconcilers::csr::{Reason, ReasonWord, Request, Standing};
use crate::reconcilers::object::Uid;

/// What is judged of an object.
pub(super) fn request(root: &Root) -> Request {
    let CertificateSigningRequest { metadata, spec, .. } = &root.0;
    Request {
        name: metadata.name.clone().unwrap_or_default(),
        uid: Uid(metadata.uid.clone().unwrap_or_default()),
        requester: spec.username.clone().unwrap_or_default(),
        groups: spec.groups.clone().unwrap_or_default(),
        usages: spec.usages.clone().unwrap_or_default(),
        pem: spec.request.0.clone(),
        expiration: spec
            .expiration_seconds
            .map(|seconds| SignedDuration::from_secs(seconds.into())),
        standing: standing(&root.0),
    }
}

fn standing(object: &CertificateSigningRequest) -> Standing {
    let status = object.status.as_ref();
    let conditions = status
        .and_then(|status| status.conditions.as_deref())
        .unwrap_or_default();
    let has = |kind: &str| conditions.iter().any(|condition| condition.type_ == kind);
    if object.metadata.deletion_timestamp.is_some() {
        Standing::Deleted
    } else if has("Denied") || has("Failed") {
        Standing::Refused
    } else if certificate(object).is_some() {
        Standing::Issued
    } else if has("Approved") {
        Standing::Approved
    } else {
        Standing::Pending
    }
}

/// The issued certificate, PEM.
pub(super) fn certificate(object: &CertificateSigningRequest) -> Option<&[u8]> {
    let bytes = &object.status.as_ref()?.certificate.as_ref()?.0;
    Some(bytes.as_slice()).filter(|bytes| !bytes.is_empty())
}

/// How long ago it was made.
pub(super) fn age(root: &Root, now: Timestamp) -> Duration {
    let created = root.0.metadata.creation_timestamp.as_ref().map_or(now, |Time(at)| *at);
    Duration::try_from(now.duration_since(created)).unwrap_or_default()
}

/// The object with the approval in it; its resourceVersion makes sure that it overwrites nobody's denial.
pub(super) fn approved(root: &Root, now: Timestamp) -> CertificateSigningRequest {
    let mut object = root.0.clone();
    let status = object.status.get_or_insert_default();
    status
        .conditions
        .get_or_insert_default()
        .push(CertificateSigningRequestCondition {
            type_: "Approved".to_owned(),
            status: "True".to_owned(),
            reason: Some("StratumOperator".to_owned()),
            message: Some("The requester is the node, and all it asks for is its own.".to_owned()),
            last_update_time: Some(Time(now)),
            last_transition_time: None,
        });
    object
}

/// For an Event.
pub(super) fn reference(root: &Root) -> ObjectReference {
    let metadata = &root.0.metadata;
    ObjectReference {
        api_version: Some("certificates.k8s.io/v1".to_owned()),
        kind: Some("CertificateSigningRequest".to_owned()),
        name: metadata.name.clone(),
        uid: metadata.uid.clone(),
        ..ObjectReference::default()
    }
}

/// An Event's reason, in the form Events have it.
pub(super) fn event_reason(reason: &Reason) -> &'static str {
    match ReasonWord::from(reason) {
        ReasonWord::Requester | ReasonWord::Groups | ReasonWord::NotABootstrapper => "ForeignRequester",
        ReasonWord::Unreadable
        | ReasonWord::CommonName
        | ReasonWord::NodeName
        | ReasonWord::Organizations
        | ReasonWord::Usages
        | ReasonWord::Extension
        | ReasonWord::NoNames
        | ReasonWord::Names
        | ReasonWord::OtherName
        | ReasonWord::HostName => "NotAKubeletsRequest",
        ReasonWord::ReservedName
        | ReasonWord::ReservedAddress
        | ReasonWord::ServiceAddress
        | ReasonWord::ApiServer
        | ReasonWord::Shared => "ReservedAddress",
        ReasonWord::NoNode | ReasonWord::NoAddresses | ReasonWord::NotRecorded => "NodeNotReadyYet",
        ReasonWord::NotItsOwn | ReasonWord::HeldByAnother => "ForeignAddress",
        ReasonWord::NetworkUnknown => "ClusterUnknown",
        ReasonWord::Registered | ReasonWord::Claimed => "NameTaken",
    }
}
