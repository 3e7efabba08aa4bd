//! Where this node's CoreDNS pods ask for names outside the cluster.
//!
//! A pod that takes over a resolv.conf which names `127.0.0.53` would ask itself: CoreDNS then loops, and finds nothing
//! else. Where the node has a list of the servers behind that address (systemd-resolved keeps one), CoreDNS gets a copy
//! of it in a folder it mounts. Only CoreDNS reads the copy.

use std::io::Write;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use super::super::atomic_file::{self, Access};
use super::super::layout::Layout;
use super::error::Error;
use super::tell;

/// Where the node asks for names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resolvers {
    /// Its `/etc/resolv.conf` names a server that pods can reach too.
    Node,
    /// Its `/etc/resolv.conf` names itself alone, and this file has the servers behind it.
    Behind {
        /// The file: systemd-resolved's list.
        list: PathBuf,
        /// The servers in it that pods can reach.
        servers: Vec<IpAddr>,
    },
    /// Its `/etc/resolv.conf` names itself alone, and nothing says what is behind it.
    LoopbackOnly,
}

impl Resolvers {
    /// Looks at the machine below `root`.
    #[must_use]
    pub fn detect(root: &Path) -> Self {
        if !usable(&root.join("etc/resolv.conf")).is_empty() {
            return Self::Node;
        }
        let list = root.join("run/systemd/resolve/resolv.conf");
        let servers = usable(&list);
        if servers.is_empty() {
            Self::LoopbackOnly
        } else {
            Self::Behind { list, servers }
        }
    }

    /// The resolv.conf that pods get which ask as the node does: systemd-resolved's list where the node's own names
    /// itself, as kubeadm has it; `None` leaves the node's own.
    #[must_use]
    pub fn for_pods(&self) -> Option<&Path> {
        match self {
            Self::Behind { list, .. } => Some(list),
            Self::Node | Self::LoopbackOnly => None,
        }
    }
}

/// The file CoreDNS forwards through when it exists.
#[must_use]
pub fn coredns_upstream(layout: &Layout) -> PathBuf {
    layout.coredns().join("resolv.conf")
}

/// Writes [`coredns_upstream`], or removes it where the node's own resolv.conf serves, and tells `writer` the choice unless
/// it is that one. The list behind systemd-resolved changes with the network: call it again while the node runs.
///
/// # Errors
/// When the file cannot be written or removed.
pub fn write_coredns_upstream(layout: &Layout, resolvers: &Resolvers, writer: &mut dyn Write) -> Result<(), Error> {
    let path = coredns_upstream(layout);
    // Also without the file: CoreDNS pods mount the folder.
    atomic_file::create_folder(&layout.coredns(), Access::Public)?;
    match resolvers {
        Resolvers::Node => {
            atomic_file::remove(&path)?;
        }
        Resolvers::Behind { list, servers } => {
            atomic_file::write_if_changed(&path, text(list, servers).as_bytes(), Access::Public)?;
            let servers: Vec<String> = servers.iter().map(ToString::to_string).collect();
            tell(
                writer,
                format_args!(
                    "CoreDNS on this node asks {} for names outside the cluster: /etc/resolv.conf names only this machine, and {} has those",
                    servers.join(", "),
                    list.display()
                ),
            );
        }
        Resolvers::LoopbackOnly => {
            atomic_file::remove(&path)?;
            tell(
                writer,
                format_args!(
                    "warning: /etc/resolv.conf names only this machine, and no list of the servers behind it was found: pods will not resolve names outside the cluster; name a server there that pods can reach"
                ),
            );
        }
    }
    Ok(())
}

fn text(list: &Path, servers: &[IpAddr]) -> String {
    let mut text = format!("# Written by stratum from {}.\n", list.display());
    for server in servers {
        text.push_str(&format!("nameserver {server}\n"));
    }
    text
}

/// The servers of a resolv.conf that mean the same in a pod. A file that is missing or names none means the machine
/// itself (resolv.conf(5)), so it has none.
fn usable(path: &Path) -> Vec<IpAddr> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let servers = text.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        (words.next() == Some("nameserver")).then(|| words.next()?.parse::<IpAddr>().ok())?
    });
    servers.filter(is_usable).collect()
}

/// An address with a zone (`fe80::1%eth0`) does not even parse: the interface is not in the pod.
fn is_usable(server: &IpAddr) -> bool {
    let server = server.to_canonical();
    let link_local = matches!(server, IpAddr::V6(six) if six.is_unicast_link_local());
    !server.is_loopback() && !server.is_unspecified() && !link_local
}

#[cfg(test)]
mod tests {
    use super::super::tests::machine;
    use super::*;

    const STUB: (&str, &str) = ("etc/resolv.conf", "# stub\nnameserver 127.0.0.53\noptions edns0\n");
    const LIST: &str = "run/systemd/resolve/resolv.conf";

    fn detected(files: &[(&str, &str)]) -> Resolvers {
        match Resolvers::detect(machine(files).path()) {
            // The folder's name is a random one.
            Resolvers::Behind { servers, .. } => Resolvers::Behind {
                list: LIST.into(),
                servers,
            },
            other => other,
        }
    }

    fn behind(servers: &[&str]) -> Resolvers {
        Resolvers::Behind {
            list: LIST.into(),
            servers: servers.iter().map(|server| server.parse().unwrap()).collect(),
        }
    }

    #[test]
    fn the_list_is_used_only_where_the_node_names_itself_alone() {
        let list = (LIST, "nameserver 10.0.0.2\nnameserver fd00::2\nsearch example.org\n");
        assert_eq!(detected(&[STUB, list]), behind(&["10.0.0.2", "fd00::2"]));
        assert_eq!(
            detected(&[("etc/resolv.conf", "nameserver ::1\nnameserver 0.0.0.0\n"), list]),
            behind(&["10.0.0.2", "fd00::2"])
        );
        // No server named means the machine itself.
        assert_eq!(
            detected(&[("etc/resolv.conf", "search x\n#nameserver 1.1.1.1\n"), list]),
            behind(&["10.0.0.2", "fd00::2"])
        );
        assert_eq!(detected(&[list]), behind(&["10.0.0.2", "fd00::2"]));
        // One that pods can reach is enough.
        let mixed = ("etc/resolv.conf", "nameserver 127.0.0.1\nnameserver 10.0.0.9\n");
        assert_eq!(detected(&[mixed, list]), Resolvers::Node);
        assert_eq!(
            detected(&[("etc/resolv.conf", "nameserver\t10.0.0.9"), list]),
            Resolvers::Node
        );
        assert_eq!(detected(&[STUB]), Resolvers::LoopbackOnly);
        let useless = (
            LIST,
            "nameserver 127.0.0.1\nnameserver fe80::1%eth0\nnameserver fe80::1\nnameserver x\n",
        );
        assert_eq!(detected(&[STUB, useless]), Resolvers::LoopbackOnly);
        assert_eq!(
            detected(&[STUB, (LIST, "nameserver ::ffff:127.0.0.1\nnameserver 1.1.1.1\n")]),
            behind(&["1.1.1.1"])
        );
    }

    #[test]
    fn the_file_follows_the_choice_and_the_choice_is_told() {
        let root = tempfile::tempdir().unwrap();
        let layout = Layout::under(root.path());
        let path = coredns_upstream(&layout);
        let told = |resolvers: &Resolvers| {
            let mut lines = Vec::new();
            write_coredns_upstream(&layout, resolvers, &mut lines).unwrap();
            String::from_utf8(lines).unwrap()
        };
        assert_eq!(told(&Resolvers::Node), "");
        assert!(!path.exists() && layout.coredns().is_dir());
        let line = told(&behind(&["10.0.0.2", "fd00::2"]));
        assert!(line.contains("10.0.0.2, fd00::2") && line.contains(LIST), "{line}");
        assert_eq!(
            std::fs::read_to_string(&path).unwrap(),
            "# Written by stratum from run/systemd/resolve/resolv.conf.\nnameserver 10.0.0.2\nnameserver fd00::2\n"
        );
        assert!(told(&Resolvers::LoopbackOnly).starts_with("warning: "));
        assert!(!path.exists());
        told(&behind(&["10.0.0.2"]));
        assert_eq!(told(&Resolvers::Node), "");
        assert!(!path.exists());
    }
}
