//! What kube-controller-manager and kube-scheduler have in common: of the instances of each one works at a time, and all
//! are clients of the API server beside them.

use super::super::super::layout::Identity;
use super::super::Component;
use super::pod::{Mount, Parts, Probes, text};
use super::{Arguments, Context};

/// One of the two.
pub(super) struct Elected {
    pub(super) component: Component,
    pub(super) identity: Identity,
    /// The processor time that is asked for.
    pub(super) cpu: &'static str,
    pub(super) alive: &'static str,
    pub(super) ready: &'static str,
}

impl Elected {
    /// The arguments it begins with.
    pub(super) fn arguments(&self, context: &Context<'_>) -> Arguments {
        let kubeconfig = text(&context.layout.kubeconfig(self.identity));
        let mut arguments = Arguments::default();
        // kubeadm has 127.0.0.1 always.
        arguments.set("bind-address", context.state.loopback().to_string());
        arguments.set("leader-elect", "true");
        arguments.set("kubeconfig", kubeconfig.clone());
        arguments.set("authentication-kubeconfig", kubeconfig.clone());
        arguments.set("authorization-kubeconfig", kubeconfig);
        arguments
    }

    pub(super) fn parts(self, context: &Context<'_>, arguments: Arguments) -> Parts {
        Parts {
            names_program: true,
            arguments: context.finish(self.component, arguments),
            mounts: vec![
                // kubeadm's kubeconfig of the scheduler holds the certificate, ours name files, which are read again when
                // renewed. And it also mounts the authorities of the world: both talk to the API server only.
                Mount::folder("pki", context.layout.pki()),
                Mount::file("kubeconfig", context.layout.kubeconfig(self.identity)),
            ],
            probes: Some(Probes {
                port: self.component.listener().unwrap_or_default(),
                scheme: "HTTPS",
                alive: self.alive,
                ready: self.ready,
            }),
            requests: vec![("cpu", self.cpu)],
            // It keeps nothing and ends at once; the rest is for a machine under load.
            grace: 10,
            ..Parts::default()
        }
    }
}
