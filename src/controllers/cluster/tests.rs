use super::*;
use crate::reconcilers::object::GroupResource;

#[test]
fn a_name_cannot_leave_its_path_segment() {
    let id = |name: &str| ObjectId {
        resource: GroupResource::new("", "configmaps"),
        namespace: Some("a b".into()),
        name: name.into(),
    };
    assert_eq!(
        object_path(&id("../secrets/x?y"), "v1"),
        "/api/v1/namespaces/a%20b/configmaps/..%2Fsecrets%2Fx%3Fy"
    );
    let role = ObjectId {
        resource: GroupResource::new("rbac.authorization.k8s.io", "clusterroles"),
        namespace: None,
        name: "system:node".into(),
    };
    assert_eq!(
        object_path(&role, "v1"),
        "/apis/rbac.authorization.k8s.io/v1/clusterroles/system:node"
    );
}

#[test]
fn a_warning_is_read_out_of_its_header() {
    assert_eq!(
        warning_text(r#"299 - "unknown field \"spec.x\"""#).as_deref(),
        Some(r#"unknown field "spec.x""#)
    );
}

#[test]
fn an_absent_field_may_be_null() {
    let live = live_of(br#"{"metadata": {"name": "a", "ownerReferences": null, "labels": null}}"#).unwrap();
    assert!(!live.owned);
}
