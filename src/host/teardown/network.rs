//! What pods leave in the network of the machine.
//!
//! Only what is known to come from this node goes: the network namespaces that our containers name, the bridge of the one
//! network that containerd uses, once nothing is attached to it, and the tables and the link that kube-proxy makes for
//! itself. What a network plugin has made for pods it undoes ([`cni`]); what else it has made is the plugin's, and is listed.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use serde::Deserialize;

use super::super::clock;
use super::super::layout::Layout;
use super::report::{Error, Report};
use super::tools::{self, Tools};
use super::{cni, mounts, places};

/// The kernel takes a moment to take down a namespace and the ends of links in it.
const PATIENCE: Duration = Duration::from_secs(5);
const PACE: Duration = Duration::from_millis(200);
/// kube-proxy's own link in mode ipvs.
const IPVS_LINK: &str = "kube-ipvs0";
/// kube-proxy's own tables in mode nftables, by their families.
const TABLES: [&str; 2] = ["ip", "ip6"];
const TABLE: &str = "kube-proxy";
/// How links of well-known network plugins begin.
const PLUGINS: [&str; 7] = [
    "cali",
    "cilium",
    "flannel",
    "vxlan.calico",
    "weave",
    "antrea",
    "kube-bridge",
];

/// What there is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Network {
    /// Names below `/run/netns`.
    pub(super) namespaces: BTreeSet<String>,
    /// Links that go.
    pub(super) links: BTreeSet<String>,
    /// Links that stay.
    pub(super) others: BTreeSet<String>,
}

/// What the network that containerd uses is called, and the bridge it makes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct PodNetwork {
    pub(super) name: String,
    bridges: BTreeSet<String>,
}

#[derive(Deserialize)]
struct Configuration {
    name: String,
    #[serde(default)]
    plugins: Vec<Plugin>,
    #[serde(flatten)]
    single: Plugin,
}

#[derive(Deserialize)]
struct Plugin {
    #[serde(default, rename = "type")]
    kind: String,
    #[serde(default)]
    bridge: Option<String>,
}

/// A container's configuration (OCI runtime specification), as far as it names its network.
#[derive(Deserialize)]
struct Container {
    #[serde(default)]
    linux: Option<Linux>,
}

#[derive(Deserialize)]
struct Linux {
    #[serde(default)]
    namespaces: Vec<Namespace>,
}

#[derive(Deserialize)]
struct Namespace {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    path: String,
}

/// Looks for what there is.
pub(super) fn find(layout: &Layout) -> Network {
    let there = links(layout);
    let ours: BTreeSet<String> = pod_network(layout)
        .map(|network| network.bridges)
        .unwrap_or_default()
        .into_iter()
        .chain([IPVS_LINK.to_owned()])
        .collect();
    let plugins = |link: &&String| PLUGINS.iter().any(|plugin| link.starts_with(plugin));
    Network {
        namespaces: namespaces(layout),
        others: there.difference(&ours).filter(plugins).cloned().collect(),
        links: there.intersection(&ours).cloned().collect(),
    }
}

/// The links of this network namespace: `/sys` may be another's.
fn links(layout: &Layout) -> BTreeSet<String> {
    let table = std::fs::read_to_string(layout.root().join("proc/net/dev")).unwrap_or_default();
    let name = |line: &str| Some(line.split_once(':')?.0.trim().to_owned());
    table.lines().skip(2).filter_map(name).collect()
}

/// The network that containerd gives pods: the first of the folder, as it takes one.
pub(super) fn pod_network(layout: &Layout) -> Option<PodNetwork> {
    let entries = std::fs::read_dir(places::cni_configuration(layout)).ok()?.flatten();
    let mut files: Vec<_> = entries
        .map(|entry| entry.path())
        .filter(|path| is_network(path))
        .collect();
    files.sort();
    let text = std::fs::read(files.first()?).ok()?;
    let Configuration { name, plugins, single } = serde_json::from_slice(&text).ok()?;
    let bridge = |plugin: Plugin| (plugin.kind == "bridge").then(|| plugin.bridge.unwrap_or_else(|| "cni0".to_owned()));
    let bridges = plugins.into_iter().chain([single]).filter_map(bridge).collect();
    Some(PodNetwork { name, bridges })
}

fn is_network(path: &Path) -> bool {
    let extension = path.extension().and_then(|extension| extension.to_str());
    matches!(extension, Some("conf" | "conflist" | "json"))
}

/// The namespaces our containers are in. Only a plain name of the form that containerd gives, in the folder for such names.
fn namespaces(layout: &Layout) -> BTreeSet<String> {
    let containers = std::fs::read_dir(places::containers(layout))
        .into_iter()
        .flatten()
        .flatten();
    let mut found = BTreeSet::new();
    for container in containers {
        let text = std::fs::read(container.path().join("config.json")).unwrap_or_default();
        let Ok(Container { linux: Some(linux) }) = serde_json::from_slice(&text) else {
            continue;
        };
        let networks = linux
            .namespaces
            .into_iter()
            .filter(|namespace| namespace.kind == "network");
        found.extend(networks.filter_map(|namespace| namespace_name(&namespace.path)));
    }
    found.retain(|name| places::network_namespaces(layout).join(name).exists());
    found
}

fn namespace_name(path: &str) -> Option<String> {
    let name = ["/var/run/netns/", "/run/netns/"]
        .iter()
        .find_map(|folder| path.strip_prefix(folder))?;
    let digits = name.strip_prefix("cni-")?;
    let plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-');
    plain.then(|| name.to_owned())
}

/// Takes away what `found` says goes; nobody is in it any more.
pub(super) async fn remove(layout: &Layout, tools: &Tools, found: &Network, report: &mut Report) -> Result<(), Error> {
    for name in &found.namespaces {
        let path = places::network_namespaces(layout).join(name);
        let failed = |source| Error::Remove {
            path: path.clone(),
            source,
        };
        let removed = match std::fs::remove_file(&path) {
            // A namespace is mounted there.
            Err(error) if error.kind() == std::io::ErrorKind::ResourceBusy => {
                mounts::drop_name(&path).and_then(|()| std::fs::remove_file(&path))
            }
            other => other,
        };
        match removed {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(failed(error)),
            Ok(()) | Err(_) => report.removed(format!("network namespace {name}")),
        }
    }
    // containerd makes the folder; it stays when somebody else has a name in it.
    let _ = std::fs::remove_dir(places::network_namespaces(layout));
    for link in &found.links {
        remove_link(tools, link, report).await?;
    }
    for link in &found.others {
        report.left(
            format!("link {link}"),
            "a network plugin made it, maybe not on behalf of this node; it is gone when the machine restarts",
        );
    }
    remove_tables(tools, report).await
}

async fn remove_link(tools: &Tools, link: &str, report: &mut Report) -> Result<(), Error> {
    let what = || format!("link {link}");
    let Some(ip) = &tools.ip else {
        report.left(what(), "there is no program `ip`; it is gone when the machine restarts");
        return Ok(());
    };
    let began = clock::monotonic();
    while !tools::run("ip", ip, &["-o", "link", "show", "master", link])
        .await?
        .trim()
        .is_empty()
    {
        if began.elapsed() > PATIENCE {
            report.left(what(), "something else is attached to it");
            return Ok(());
        }
        clock::sleep(PACE).await;
    }
    tools::run("ip", ip, &["link", "delete", link]).await?;
    report.removed(what());
    Ok(())
}

async fn remove_tables(tools: &Tools, report: &mut Report) -> Result<(), Error> {
    let Some(nft) = &tools.nft else {
        report.left(
            "nftables tables ip kube-proxy and ip6 kube-proxy, if there are",
            "there is no program `nft`; they are gone when the machine restarts",
        );
        return Ok(());
    };
    let listed = match tools::run("nft", nft, &["list", "tables"]).await {
        Ok(listed) => listed,
        // A kernel without nftables has no tables.
        Err(error) => {
            report.left("nftables tables of kube-proxy, if there are", error.to_string());
            return Ok(());
        }
    };
    for family in TABLES {
        if listed
            .lines()
            .any(|line| line.trim() == format!("table {family} {TABLE}"))
        {
            tools::run("nft", nft, &["delete", "table", family, TABLE]).await?;
            report.removed(format!("nftables table {family} {TABLE}"));
        }
    }
    cni::remove_tables(tools, &listed, report).await
}

#[cfg(test)]
mod tests {
    use super::super::tests::{put, tool};
    use super::*;

    fn machine(files: &[(&str, &str)]) -> (tempfile::TempDir, Layout) {
        let folder = tempfile::tempdir().unwrap();
        for (path, text) in files {
            put(&folder.path().join(path), text.as_bytes());
        }
        let layout = Layout::under(folder.path());
        (folder, layout)
    }

    fn set(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn only_namespaces_that_our_containers_name() {
        let bundle = |path: &str| {
            format!(r#"{{"linux": {{"namespaces": [{{"type": "pid"}}, {{"type": "network", "path": "{path}"}}]}}}}"#)
        };
        let at = |id: &str| format!("run/stratum/containerd/io.containerd.runtime.v2.task/k8s.io/{id}/config.json");
        let texts = [
            (at("1"), bundle("/var/run/netns/cni-0a1b-2c")),
            (at("2"), bundle("/proc/123/ns/net")),
            (at("3"), bundle("/var/run/netns/cni-../../../etc/shadow")),
            (at("4"), bundle("/var/run/netns/cni-dead")),
            (at("5"), "{".to_owned()),
            (at("6"), bundle("/run/netns/blue")),
        ];
        let mut files: Vec<(&str, &str)> = texts
            .iter()
            .map(|(path, text)| (path.as_str(), text.as_str()))
            .collect();
        // cni-dead is gone already; cni-ffff is another containerd's, blue an administrator's.
        files.extend([
            ("run/netns/cni-0a1b-2c", ""),
            ("run/netns/cni-ffff", ""),
            ("run/netns/blue", ""),
        ]);
        let (_folder, layout) = machine(&files);
        assert_eq!(find(&layout).namespaces, set(&["cni-0a1b-2c"]));
    }

    #[test]
    fn the_bridge_of_the_first_network_and_no_other() {
        const DEVICES: &str =
            "Inter-| x\n face |y\n    lo: 0\n  eth0: 1\n  cni0: 1\n cbr7: 2\n docker0: 3\n caliabc: 1\nkube-ipvs0: 0\n";
        let bridged = |text: &str| {
            let (_folder, layout) = machine(&[
                ("proc/net/dev", DEVICES),
                ("etc/cni/net.d/10-ours.conflist", text),
                (
                    "etc/cni/net.d/87-other.conflist",
                    r#"{"name": "o", "plugins": [{"type": "bridge", "bridge": "docker0"}]}"#,
                ),
                ("etc/cni/net.d/00-note.txt", "{}"),
            ]);
            let found = find(&layout);
            assert_eq!(found.others, set(&["caliabc"]));
            found.links
        };
        assert_eq!(
            bridged(r#"{"name": "n", "plugins": [{"type": "bridge"}, {"type": "portmap"}]}"#),
            set(&["cni0", IPVS_LINK])
        );
        assert_eq!(
            bridged(r#"{"name": "n", "type": "bridge", "bridge": "cbr7"}"#),
            set(&["cbr7", IPVS_LINK])
        );
        assert_eq!(bridged(r#"{"name": "n", "type": "ptp"}"#), set(&[IPVS_LINK]));
        assert_eq!(bridged("{"), set(&[IPVS_LINK]));
    }

    #[tokio::test]
    async fn links_in_use_stay_and_only_kube_proxys_tables_go() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        let tools = Tools {
            ip: Some(tool(
                folder.path(),
                "ip",
                &format!(
                    "echo ip $@ >> {}; case \"$*\" in *used*) echo 7: veth1;; esac",
                    log.display()
                ),
            )),
            nft: Some(tool(
                folder.path(),
                "nft",
                &format!(
                    "echo nft $@ >> {}; [ $1 = list ] && printf 'table inet filter\\ntable ip kube-proxy\\ntable ip kube-proxy2\\ntable ip cni_hostport\\n'; true",
                    log.display()
                ),
            )),
            systemctl: None,
        };
        let found = Network {
            links: set(&["free0", "used0"]),
            ..Network::default()
        };
        let mut report = Report::default();
        remove(&Layout::under(folder.path()), &tools, &found, &mut report)
            .await
            .unwrap();
        let tables = ["nftables table ip kube-proxy", "nftables table ip cni_hostport"];
        assert_eq!(report.removed, [&["link free0"][..], &tables].concat());
        assert_eq!(report.left[0].what, "link used0");
        let log = std::fs::read_to_string(log).unwrap();
        let deleted: Vec<&str> = log.lines().filter(|line| line.contains("delete")).collect();
        let tables = ["nft delete table ip kube-proxy", "nft delete table ip cni_hostport"];
        assert_eq!(deleted, [&["ip link delete free0"][..], &tables].concat());
    }

    #[tokio::test]
    async fn without_programs_everything_is_told() {
        let (_folder, layout) = machine(&[]);
        let found = Network {
            links: set(&["cni0"]),
            ..Network::default()
        };
        let mut report = Report::default();
        remove(&layout, &Tools::default(), &found, &mut report).await.unwrap();
        assert_eq!((report.removed.len(), report.left.len()), (0, 2));
    }
}
