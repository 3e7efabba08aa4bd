//! Prune plans that a person confirmed. A confirmation is for one plan of one stack, and is used once.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::reconcilers::object::StackName;

/// One confirmed prune plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Confirmation {
    /// The stack whose objects may be deleted.
    pub stack: StackName,
    /// The digest of exactly what may be deleted.
    pub digest: String,
    /// Who confirmed it.
    pub who: String,
    /// When.
    pub when: Timestamp,
}

/// Adds a confirmation; an older one of the same stack is for a plan nobody looks at any more, and goes.
pub fn confirm(confirmations: &mut Vec<Confirmation>, new: Confirmation) {
    confirmations.retain(|known| known.stack != new.stack);
    confirmations.push(new);
    confirmations.sort_by(|one, other| one.stack.cmp(&other.stack));
}

/// Drops the confirmation of a plan that was carried out; whether there was one.
pub fn use_up(confirmations: &mut Vec<Confirmation>, stack: &StackName, digest: &str) -> bool {
    let before = confirmations.len();
    confirmations.retain(|known| known.stack != *stack || known.digest != digest);
    confirmations.len() != before
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reconcilers::inventory::document::tests::stack;

    fn confirmation(name: &str, digest: &str) -> Confirmation {
        Confirmation {
            stack: stack(name),
            digest: digest.into(),
            who: "root".into(),
            when: Timestamp::UNIX_EPOCH,
        }
    }

    #[test]
    fn a_confirmation_is_used_once_and_a_newer_one_replaces_it() {
        let mut all = Vec::new();
        confirm(&mut all, confirmation("t", "1"));
        confirm(&mut all, confirmation("s", "1"));
        confirm(&mut all, confirmation("s", "2"));
        assert_eq!(all, [confirmation("s", "2"), confirmation("t", "1")]);
        assert!(!use_up(&mut all, &stack("s"), "1"), "another plan");
        assert!(use_up(&mut all, &stack("s"), "2"));
        assert_eq!(all, [confirmation("t", "1")]);
    }
}
