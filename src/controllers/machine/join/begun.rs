//! A note of a join that has begun: whoever comes next knows by it whose files lie on this machine.
//!
//! Without it the files of a join that was cut off would be somebody else's, and the second try refused. With it, they are
//! taken over by that very join only: by another, the authorities of one cluster would become those of the next.

use super::super::install;
use super::Error;
use crate::host::atomic_file::{self, Access};
use crate::host::layout::Layout;
use crate::host::node_state::NodeState;
use crate::pki::certificate::Certificate;
use crate::pki::pin::pins;

/// Which join: the role and name of the node on the first line, and on each other one an authority of its cluster, as
/// `--ca-cert-hash` takes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Begun {
    node: String,
    authorities: Vec<String>,
}

impl Begun {
    pub(super) fn of(state: &NodeState, bundle: &[Certificate]) -> Self {
        Self {
            node: format!("{} {}", state.role, state.node_name),
            authorities: pins(bundle).iter().map(ToString::to_string).collect(),
        }
    }

    /// Whether what lies on this machine is of no join, or of this one.
    ///
    /// # Errors
    /// When another one has begun, or the note cannot be read.
    pub(super) fn check(&self, layout: &Layout) -> Result<(), Error> {
        let Some(text) = install::begun(layout)? else {
            return Ok(());
        };
        let mut lines = text.lines();
        // The authorities of a cluster change one by one.
        let is_this =
            lines.next() == Some(&self.node) && lines.any(|line| self.authorities.iter().any(|own| own == line));
        if is_this {
            return Ok(());
        }
        Err(install::Error::begun(&text).into())
    }

    /// Notes it, before the first other write.
    pub(super) fn write(&self, layout: &Layout) -> Result<(), Error> {
        let text: String = [&self.node]
            .into_iter()
            .chain(&self.authorities)
            .map(|line| format!("{line}\n"))
            .collect();
        atomic_file::create_folder(&layout.state(), Access::Secret)
            .and_then(|()| atomic_file::write(&layout.joining(), text.as_bytes(), Access::Secret))
            .map_err(Error::Note)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::node_state::{Role, examples};
    use crate::pki::authority::Authority;
    use crate::pki::key::{Key, KeyKind, Serial};

    fn authority() -> Certificate {
        let key = Key::generate(KeyKind::default()).unwrap();
        let made = Authority::make("ca", key, Serial::random().unwrap(), jiff::Timestamp::UNIX_EPOCH);
        made.unwrap().certificate().clone()
    }

    #[test]
    fn only_the_same_join_goes_on() {
        let folder = tempfile::tempdir().unwrap();
        let layout = Layout::under(folder.path());
        let (old, new, other) = (authority(), authority(), authority());
        let controller = examples::one_controller();
        let state = NodeState {
            role: Role::Worker,
            ..controller.clone()
        };
        let begun = Begun::of(&state, std::slice::from_ref(&old));
        begun.check(&layout).unwrap();
        install::check_no_join(&layout).unwrap();
        begun.write(&layout).unwrap();
        begun.check(&layout).unwrap();
        // While the cluster's authority is rotated.
        Begun::of(&state, &[new, old.clone()]).check(&layout).unwrap();
        let elsewhere = Begun::of(&state, &[other]).check(&layout).unwrap_err().to_string();
        assert!(
            elsewhere.contains(&state.node_name) && elsewhere.contains("stratum uninstall"),
            "{elsewhere}"
        );
        Begun::of(&controller, &[old]).check(&layout).unwrap_err();
        install::check_no_join(&layout).unwrap_err();
        install::finished(&layout).unwrap();
        begun.check(&layout).unwrap();
        install::check_no_join(&layout).unwrap();
    }
}
