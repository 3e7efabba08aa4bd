//! The scheduler.

use super::super::super::layout::Identity;
use super::super::Component;
use super::pod::{Mount, Parts, Probes, text};
use super::{Arguments, Context};

const COMPONENT: Component = Component::KubeScheduler;

pub(super) fn parts(context: &Context<'_>) -> Parts {
    let kubeconfig = context.layout.kubeconfig(Identity::Scheduler);
    Parts {
        names_program: true,
        arguments: context.finish(COMPONENT, arguments(context)),
        mounts: vec![
            // Not kubeadm's: its kubeconfig holds the certificate, ours names files, which are read again when renewed.
            Mount::folder("pki", context.layout.pki()),
            Mount::file("kubeconfig", kubeconfig),
        ],
        probes: Some(Probes {
            port: COMPONENT.listener().unwrap_or_default(),
            scheme: "HTTPS",
            alive: "/livez",
            ready: "/readyz",
        }),
        requests: vec![("cpu", "100m")],
        // It keeps nothing and ends at once; the rest is for a machine under load.
        grace: 10,
        ..Parts::default()
    }
}

fn arguments(context: &Context<'_>) -> Arguments {
    let kubeconfig = text(&context.layout.kubeconfig(Identity::Scheduler));
    let mut arguments = Arguments::default();
    // kubeadm has 127.0.0.1 always.
    arguments.set("bind-address", context.loopback().to_string());
    arguments.set("leader-elect", "true");
    arguments.set("kubeconfig", kubeconfig.clone());
    arguments.set("authentication-kubeconfig", kubeconfig.clone());
    arguments.set("authorization-kubeconfig", kubeconfig);
    // Not kubeadm's: a debugging endpoint that nobody needs in a cluster, and the CIS benchmark asks for it.
    arguments.set("profiling", "false");
    arguments
}
