//! The scheduler.

use super::super::super::layout::Identity;
use super::super::Component;
use super::Context;
use super::elected::Elected;
use super::pod::Parts;

pub(super) fn parts(context: &Context<'_>) -> Parts {
    let scheduler = Elected {
        component: Component::KubeScheduler,
        identity: Identity::Scheduler,
        cpu: "100m",
        alive: "/livez",
        ready: "/readyz",
    };
    let mut arguments = scheduler.arguments(context);
    // Not kubeadm's: a debugging endpoint that nobody needs in a cluster, and the CIS benchmark asks for it.
    arguments.set("profiling", "false");
    scheduler.parts(context, arguments)
}
