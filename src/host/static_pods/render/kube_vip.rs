//! kube-vip: one controller at a time announces the shared address, by ARP or neighbour discovery.
//!
//! kubeadm has nothing like it; the settings are those of <https://kube-vip.io/docs/installation/static/>.

use std::net::IpAddr;

use super::super::super::layout::Identity;
use super::super::super::node_state::API_SERVER_PORT;
use super::super::{Component, Error};
use super::pod::{Mount, Parts, text};
use super::{Arguments, Context};

const COMPONENT: Component = Component::KubeVip;

pub(super) fn parts(context: &Context<'_>) -> Result<Parts, Error> {
    let vip = context.state.vip.as_ref().ok_or(Error::NoVip)?;
    let kubeconfig = context.layout.kubeconfig(Identity::Admin);
    let subnet = match vip.address {
        IpAddr::V4(_) => "32",
        IpAddr::V6(_) => "128",
    };
    let mut arguments = Arguments::default();
    // Its metrics would be open to the network, and an empty variable does not turn them off.
    arguments.set("prometheusHTTPServer", "");
    let mut line = vec!["manager".to_owned()];
    line.extend(context.finish(COMPONENT, arguments));
    Ok(Parts {
        // The program is in the image's root folder, which is not searched: only its entrypoint knows.
        names_program: false,
        arguments: line,
        environment: vec![
            ("vip_arp", "true".to_owned()),
            ("vip_interface", vip.interface.clone()),
            ("vip_subnet", subnet.to_owned()),
            ("address", vip.address.to_string()),
            ("port", API_SERVER_PORT.to_string()),
            ("cp_enable", "true".to_owned()),
            ("cp_namespace", "kube-system".to_owned()),
            ("svc_enable", "false".to_owned()),
            ("vip_leaderelection", "true".to_owned()),
            ("vip_leasename", "plndr-cp-lock".to_owned()),
            // In seconds: another controller has the address 5 s after one died.
            ("vip_leaseduration", "5".to_owned()),
            ("vip_renewdeadline", "3".to_owned()),
            ("vip_retryperiod", "1".to_owned()),
            ("vip_nodename", context.state.node_name.clone()),
            ("k8s_config_file", text(&kubeconfig)),
        ],
        mounts: vec![
            Mount::folder("pki", context.layout.pki()),
            Mount::file("kubeconfig", kubeconfig),
        ],
        capabilities: vec!["NET_ADMIN", "NET_RAW"],
        // It asks the API server by this name: that of its own node, for the shared address is what it is to bring up.
        host_names: vec![(context.state.loopback().to_string(), "kubernetes")],
        // It takes the address off the interface when it ends.
        grace: 10,
        ..Parts::default()
    })
}
