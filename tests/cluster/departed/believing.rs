//! No mark is believed while the API server would let anybody write it.

use kube::Client;
use stratum::controllers::departed::DepartedNodes;
use stratum::reconcilers::departed::Kept;

use super::bed::{Bed, SOON, STACK, kept, pass};
use crate::support::wait_for;

/// Refuses the operator everything with Nodes, and is not the policy.
const ANOTHER: &str = r#"
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: another}
spec:
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [UPDATE], resources: [nodes]}]
  validations:
    - {expression: "request.userInfo.username != 'stratum:operator'", message: "ValidatingAdmissionPolicy 'stratum-node-uninstall-mark' says no"}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: another}
spec: {policyName: another, validationActions: [Deny]}
"#;

/// Somebody with the operator's rights, but not the right to patch a Node.
async fn without_patch(bed: &Bed) -> Client {
    let kubectl = |arguments: &'static [&'static str]| bed.cluster.kubectl(arguments);
    kubectl(&[
        "create",
        "clusterrole",
        "reader",
        "--verb=get,list,watch,delete",
        "--resource=nodes,leases",
    ])
    .await;
    kubectl(&[
        "create",
        "clusterrolebinding",
        "reader",
        "--clusterrole=reader",
        "--user=reader",
    ])
    .await;
    bed.cluster.client_of("reader", &[]).await
}

/// Passes until the Node stays for a reason that is asked for.
async fn until(concern: &DepartedNodes, what: &str, is: impl Fn(&Kept) -> bool) -> Kept {
    let looked = || async {
        let plan = pass(concern).await;
        assert!(plan.delete.is_empty(), "{what}: {plan:?}");
        Some(kept(&plan, "w1").clone()).filter(&is)
    };
    wait_for(what, SOON, looked).await
}

#[tokio::test]
async fn without_the_policy_in_force_no_mark_is_believed() {
    let bed = Bed::new().await;
    bed.leave("w1").await;
    let before = bed.node("w1").await;
    let operator = bed.concern().await;
    let absent = |kept: &Kept| *kept == Kept::PolicyAbsent;
    until(&operator, "no policy at all", absent).await;
    assert_eq!(bed.node("w1").await, before, "what was granted was only tried");

    // Only a policy that warns: it is loaded, and would let the operator, and anybody, write the mark.
    let warning = STACK.replace("[Deny]", "[Warn]");
    assert_ne!(warning, STACK);
    bed.cluster.apply(&warning).await;
    let arguments = [
        "annotate",
        "node",
        "w1",
        "--overwrite",
        "--dry-run=server",
        "stratum.ciq.com/uninstalled-at=x",
    ];
    let warned = || async {
        let admin = stratum::host::layout::Identity::Admin;
        let finished = bed.cluster.kubectl_as(admin, &arguments, "").await;
        let said = String::from_utf8_lossy(&finished.stderr).into_owned();
        said.contains("Validation failed for ValidatingAdmissionPolicy 'stratum-node-uninstall-mark'")
            .then_some(())
    };
    wait_for("the policy that only warns", SOON, warned).await;
    until(&operator, "a policy that only warns", absent).await;

    // Another policy refuses, in words that look like ours.
    bed.cluster.apply(ANOTHER).await;
    let unproven = |kept: &Kept| matches!(kept, Kept::PolicyUnproven(_));
    let said = until(&operator, "another policy", unproven).await.to_string();
    assert!(said.contains("ValidatingAdmissionPolicy 'another'"), "{said}");
    bed.cluster
        .kubectl(&[
            "delete",
            "validatingadmissionpolicybinding,validatingadmissionpolicy",
            "another",
        ])
        .await;
    until(&operator, "the other policy to go", absent).await;

    // In force at last; but who may not even try has proven nothing.
    bed.protect().await;
    let reader = bed.concern_of(without_patch(&bed).await);
    let said = until(&reader, "a right that lacks", unproven).await.to_string();
    assert!(
        said.contains("User \"reader\" cannot patch resource \"nodes\""),
        "{said}"
    );
    assert!(bed.node("w1").await.is_some());

    let plan = pass(&operator).await;
    assert_eq!(plan.delete.len(), 1, "{plan:?}");
    assert!(bed.node("w1").await.is_none());
}
