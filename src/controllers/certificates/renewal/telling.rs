//! What people are told, as Events on the Node. Told, never relied on: without an API server the log has it all.

use k8s_openapi::api::core::v1::ObjectReference;

use super::super::super::concern::chain;
use super::super::super::connection::{self, ClientSettings};
use super::super::super::events::{EventKind, Events};
use crate::host::certificates::{Machine, Origin};
use crate::host::layout::Identity;
use crate::reconcilers::certificates::renewal::{Action, Concern};

/// A renewal made certificates new.
pub const RENEWED: &str = "CertificatesRenewed";
/// A renewal failed.
pub const RENEWAL_FAILED: &str = "CertificateRenewalFailed";
/// A certificate ends soon, and nothing on this machine makes it new.
pub const STAYS: &str = "CertificateEndsSoon";
/// A certificate is there and cannot be read.
pub const UNREADABLE: &str = "CertificateUnreadable";

/// Who reports, in the form of a label's key.
const CONTROLLER: &str = "stratum.ciq.com/renewal";

/// Tells Events on the Node of this machine, once it can.
#[derive(Default)]
pub struct Teller {
    events: Option<(String, Events)>,
}

impl Teller {
    /// A renewal succeeded; one that made nothing new is no news.
    pub(super) async fn renewed(&mut self, machine: &Machine, names: &[String]) {
        if !names.is_empty() {
            let note = format!("made new: {}", names.join(", "));
            self.tell(machine, EventKind::Normal, RENEWED, note).await;
        }
    }

    /// A renewal failed.
    pub(super) async fn failed(&mut self, machine: &Machine, words: &str, action: &Action) {
        let note =
            format!("{words} ({action}); it is tried again, and `stratum certs check` on the machine shows the rest");
        self.tell(machine, EventKind::Warning, RENEWAL_FAILED, note).await;
    }

    /// Leaves that end soon and stay, and certificates that cannot be read.
    pub(super) async fn concerns(&mut self, machine: &Machine, stay: &[Concern], unreadable: &[(String, String)]) {
        for concern in stay {
            self.tell(machine, EventKind::Warning, STAYS, concern.to_string()).await;
        }
        for (name, problem) in unreadable {
            let note = format!("{name} cannot be read: {problem}");
            self.tell(machine, EventKind::Warning, UNREADABLE, note).await;
        }
    }

    async fn tell(&mut self, machine: &Machine, kind: EventKind, reason: &'static str, note: String) {
        let Some((node, events)) = self.events(machine).await else {
            return;
        };
        let regarding = ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Node".to_owned()),
            name: Some(node.clone()),
            // As kubelets name their Node in Events, so that `kubectl describe node` shows them together.
            uid: Some(node.clone()),
            ..ObjectReference::default()
        };
        events.publish(regarding, kind, reason, note).await;
    }

    /// Made at the first Event: a client follows its files, so it lives through every renewal.
    async fn events(&mut self, machine: &Machine) -> Option<&(String, Events)> {
        if self.events.is_none() {
            let node = machine.node_name()?;
            let identity = teller(machine);
            let settings = ClientSettings::new(machine.layout.kubeconfig(identity), "renewal");
            match connection::client(&settings, None).await {
                Ok(client) => {
                    let events = Events::new(client, &node).reported_by(CONTROLLER);
                    self.events = Some((node, events));
                }
                Err(error) => tracing::warn!("an Event could not be told: {}", chain(&error)),
            }
        }
        self.events.as_ref()
    }
}

/// Whose credential there is: a controller's administrator, elsewhere the kubelet.
fn teller(machine: &Machine) -> Identity {
    let controller = match &machine.origin {
        Origin::Stratum(state) => state.is_controller(),
        Origin::Kubeadm => machine.layout.kubeconfig(Identity::Admin).exists(),
    };
    if controller { Identity::Admin } else { Identity::Kubelet }
}
