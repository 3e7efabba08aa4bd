//! Whether the API server lets nobody but a machine itself write its mark.
//!
//! It is asked, not looked up: the operator tries, as a dry run, to change the mark of that very Node. A policy that exists
//! may still be without a binding, only audit, leave this Node out, or not be loaded yet; a refusal by it is none of that.

/// The ValidatingAdmissionPolicy, and its binding, in `deploy/stacks/departed-nodes`.
pub const POLICY: &str = "stratum-node-uninstall-mark";

/// What the policy says when it refuses. A failure of the policy itself is a refusal too, but not this one.
pub const DENIAL: &str = "annotation stratum.ciq.com/uninstalled-at says that a machine was uninstalled, and only that machine may set or change it (user system:node:<name of the Node>, group system:nodes): run 'stratum uninstall' there; to take a dead machine out of the cluster, delete its Node; anybody who may change the Node may remove the annotation";

/// How the API server took it when the operator tried to change a mark.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The policy refused.
    InForce,
    /// It would have been done.
    Granted,
    /// Something else refused; what it said. That shows nothing about the policy.
    Refused(String),
}

/// What a refusal shows: the `message` of the answer, and the messages of its `details.causes`.
#[must_use]
pub fn answer<'a>(message: &str, causes: impl IntoIterator<Item = &'a str>) -> Answer {
    // The message as a whole repeats what was asked for; a cause is the words of the admission alone.
    if causes.into_iter().any(is_denial) {
        Answer::InForce
    } else {
        Answer::Refused(message.to_owned())
    }
}

/// The form is that of the API server (`validating/dispatcher.go`); a test on a real one holds it to that.
fn is_denial(cause: &str) -> bool {
    let denied = cause
        .strip_prefix("ValidatingAdmissionPolicy '")
        .and_then(|rest| rest.strip_prefix(POLICY))
        .and_then(|rest| rest.strip_prefix("' with binding '"))
        .and_then(|rest| rest.split_once("' denied request: "));
    denied.is_some_and(|(_, said)| said == DENIAL)
}

#[cfg(test)]
mod tests {
    use super::*;

    const STACK: &str = include_str!("../../../deploy/stacks/departed-nodes/uninstall-mark.yaml");

    #[test]
    fn only_the_policy_itself_in_its_own_words_is_proof() {
        let denied = |policy: &str, said: &str| {
            format!("ValidatingAdmissionPolicy '{policy}' with binding '{policy}' denied request: {said}")
        };
        let message = |cause: &str| format!("nodes \"w1\" is forbidden: {cause}");
        let ours = denied(POLICY, DENIAL);
        assert_eq!(answer(&message(&ours), [ours.as_str()]), Answer::InForce);
        assert_eq!(answer("", ["another cause", &ours]), Answer::InForce);
        for cause in [
            denied("another", DENIAL),
            denied(
                POLICY,
                "expression '!variables.marked' resulted in error: no such key: annotations",
            ),
            denied(POLICY, "failed to configure binding: not found"),
            denied(POLICY, &format!("{DENIAL} ")),
            format!("node w2 may not say that {ours}"),
            ours.replace("' with binding '", "' and '"),
            String::new(),
        ] {
            assert_eq!(
                answer(&message(&cause), [cause.as_str()]),
                Answer::Refused(message(&cause))
            );
        }
        let rbac = format!("nodes \"w1\" is forbidden: User \"{ours}\" cannot patch resource \"nodes\"");
        assert_eq!(answer(&rbac, []), Answer::Refused(rbac.clone()));
    }

    #[test]
    fn the_stack_is_that_policy_and_says_these_words() {
        assert_eq!(
            STACK.matches(&format!("name: {POLICY}\n")).count(),
            2,
            "the policy, the binding"
        );
        assert!(STACK.contains(&format!("policyName: {POLICY}\n")));
        let lines: Vec<&str> = STACK.lines().map(str::trim).collect();
        let said = lines.join(" ");
        assert!(said.contains(DENIAL), "{said}");
    }
}
