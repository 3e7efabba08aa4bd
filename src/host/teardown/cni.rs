//! What network plugins did for our pods, undone by the plugins themselves.
//!
//! The kubelet would have had it done when each pod ended, but pods end here without it. libcni keeps what a plugin was
//! called with for each container (`/var/lib/cni/results`), so each is called again with the command `DEL`, in the reverse
//! order, as the specification of CNI 1.1 has it: rules of host ports, addresses and routes go, whatever plugin it is. A
//! plugin that fails is told, and stops nothing.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use base64::Engine;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::super::child::Program;
use super::super::layout::Layout;
use super::places;
use super::report::{Error, Report};
use super::tools::{self, Tools};

/// How long a plugin may take. One of a cluster that is gone may wait for an answer from it.
const LIMIT: Duration = Duration::from_secs(10);
/// The first version of the specification in which a plugin is told at `DEL` what it answered at `ADD`.
const WITH_RESULT: (u64, u64) = (0, 4);
/// Tables of nftables that the reference plugins share among all their callers and never delete: those of `portmap`, and of
/// the masquerading of `bridge` and `ptp`.
const TABLES: [(&str, &str); 3] = [
    ("ip", "cni_hostport"),
    ("ip6", "cni_hostport"),
    ("inet", "cni_plugins_masquerade"),
];

/// A container's attachment to a network, as libcni remembers it.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Attachment {
    container_id: String,
    if_name: String,
    /// The network's configuration, base64.
    config: String,
    #[serde(default)]
    netns: String,
    #[serde(default)]
    cni_args: Vec<[String; 2]>,
    #[serde(default)]
    capability_args: Map<String, Value>,
    #[serde(default)]
    result: Value,
}

/// The pods' sandboxes that our containerd knows, or whose containers ran.
pub(super) fn sandboxes(layout: &Layout) -> BTreeSet<String> {
    let known = layout.containerd().join("root/io.containerd.grpc.v1.cri/sandboxes");
    let folders = [places::containers(layout), known];
    let entries = folders
        .iter()
        .flat_map(|folder| std::fs::read_dir(folder).into_iter().flatten().flatten());
    entries
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect()
}

/// The attachments of our sandboxes.
pub(super) fn find(layout: &Layout) -> Vec<Attachment> {
    let ours = sandboxes(layout);
    let results = std::fs::read_dir(places::cni_state(layout).join("results"));
    let mut paths: Vec<PathBuf> = results
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .collect();
    paths.sort();
    let read = |path: &PathBuf| serde_json::from_slice::<Attachment>(&std::fs::read(path).ok()?).ok();
    let all = paths.iter().filter_map(read);
    all.filter(|attachment| ours.contains(&attachment.container_id))
        .collect()
}

/// Has the plugins undo what they did. The containers have ended; the names of their network namespaces are still there.
pub(super) async fn detach(layout: &Layout, attachments: &[Attachment], report: &mut Report) {
    let folder = places::cni_programs(layout).join("bin");
    // One that did not end in time would not the next time either.
    let mut given_up = BTreeSet::new();
    for attachment in attachments {
        let calls = attachment.calls();
        let mut whole = !calls.is_empty();
        if calls.is_empty() {
            let pod = &attachment.container_id;
            report.left(
                format!("what network plugins made for sandbox {pod:.13}, if anything"),
                "what is written of it names no plugin; it is gone when the machine restarts",
            );
        }
        for (kind, input) in calls {
            if given_up.contains(&kind) {
                whole = false;
                continue;
            }
            if let Err((why, gives_up)) = call(&folder, &kind, attachment, &input).await {
                whole = false;
                let pod = &attachment.container_id;
                report.left(
                    format!("what the network plugin {kind} made for pods, if anything"),
                    format!("it failed for sandbox {pod:.13} ({why}); it is gone when the machine restarts"),
                );
                if gives_up {
                    given_up.insert(kind);
                }
            }
        }
        if whole {
            report.removed(format!("network of sandbox {:.13}", attachment.container_id));
        }
    }
}

/// Why a plugin did not do it, and whether it is not called again.
async fn call(folder: &Path, kind: &str, attachment: &Attachment, input: &Value) -> Result<(), (String, bool)> {
    let path = folder.join(kind);
    if !path.is_file() {
        return Err((format!("there is no {}", path.display()), true));
    }
    let arguments: Vec<String> = attachment
        .cni_args
        .iter()
        .map(|[key, value]| format!("{key}={value}"))
        .collect();
    let program = Program::new(path)
        .variable("CNI_COMMAND", "DEL")
        .variable("CNI_CONTAINERID", &attachment.container_id)
        .variable("CNI_NETNS", &attachment.netns)
        .variable("CNI_IFNAME", &attachment.if_name)
        .variable("CNI_ARGS", arguments.join(";"))
        .variable("CNI_PATH", folder);
    let finished = match tokio::time::timeout(LIMIT, program.run(input.to_string().into_bytes())).await {
        Ok(finished) => finished.map_err(|error| (error.to_string(), true))?,
        Err(_) => return Err((format!("it did not end within {} s", LIMIT.as_secs()), true)),
    };
    if finished.exit.is_success() {
        return Ok(());
    }
    // Its error is JSON on its standard output.
    let said: Value = serde_json::from_slice(&finished.stdout).unwrap_or_default();
    let said = said["msg"].as_str().map(str::to_owned);
    Err((said.unwrap_or_else(|| finished.exit.to_string()), false))
}

impl Attachment {
    /// The plugins to call, in this order, and what each is told.
    fn calls(&self) -> Vec<(String, Value)> {
        let bytes = base64::engine::general_purpose::STANDARD
            .decode(&self.config)
            .unwrap_or_default();
        let Ok(Value::Object(network)) = serde_json::from_slice::<Value>(&bytes) else {
            return Vec::new();
        };
        let plugins = match network.get("plugins") {
            Some(Value::Array(plugins)) => plugins.clone(),
            Some(_) | None => vec![Value::Object(network.clone())],
        };
        let told = |plugin: Value| {
            let Value::Object(mut plugin) = plugin else { return None };
            let kind = plugin.get("type")?.as_str().filter(|kind| is_plain(kind))?.to_owned();
            for key in ["name", "cniVersion"] {
                if let Some(value) = network.get(key) {
                    plugin.insert(key.to_owned(), value.clone());
                }
            }
            let wants = |name: &str| plugin.get("capabilities").is_some_and(|all| all[name] == true);
            let runtime: Map<String, Value> = self
                .capability_args
                .iter()
                .filter(|(name, _)| wants(name))
                .map(|(name, value)| (name.clone(), value.clone()))
                .collect();
            if !runtime.is_empty() {
                plugin.insert("runtimeConfig".to_owned(), Value::Object(runtime));
            }
            let version = network.get("cniVersion").and_then(Value::as_str).unwrap_or_default();
            if !self.result.is_null() && is_told_results(version) {
                plugin.insert("prevResult".to_owned(), self.result.clone());
            }
            Some((kind, Value::Object(plugin)))
        };
        plugins.into_iter().rev().filter_map(told).collect()
    }
}

/// A name in the folder of plugins, and no path out of it.
fn is_plain(kind: &str) -> bool {
    !kind.is_empty() && !kind.contains('/') && !kind.starts_with('.')
}

fn is_told_results(version: &str) -> bool {
    let mut numbers = version.split('.').map(|number| number.parse::<u64>().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) >= WITH_RESULT
}

/// Takes away the tables that plugins share, when no container has a rule in them any more.
pub(super) async fn remove_tables(tools: &Tools, listed: &str, report: &mut Report) -> Result<(), Error> {
    let Some(nft) = &tools.nft else { return Ok(()) };
    for (family, table) in TABLES {
        let line = format!("table {family} {table}");
        if !listed.lines().any(|found| found.trim() == line) {
            continue;
        }
        let rules = tools::run("nft", nft, &["list", "table", family, table]).await?;
        if is_used(&rules) {
            report.left(
                format!("nftables {line}"),
                "network plugins keep rules of other containers in it",
            );
            continue;
        }
        tools::run("nft", nft, &["delete", "table", family, table]).await?;
        report.removed(format!("nftables {line}"));
    }
    Ok(())
}

/// Every rule that is a container's ends in a comment with its id. A table may have a comment of its own, on its own line.
fn is_used(rules: &str) -> bool {
    rules.lines().any(|line| line.trim().contains(" comment \""))
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::tests::{put, tool};
    use super::*;

    pub(crate) const NETWORK: &str = r#"{"cniVersion": "1.0.0", "name": "pods", "plugins": [
        {"type": "bridge", "bridge": "cni0"},
        {"type": "portmap", "capabilities": {"portMappings": true, "bandwidth": false}},
        {"type": "../../bin/sh"}]}"#;

    /// As libcni writes it.
    pub(crate) fn result(sandbox: &str, network: &str) -> String {
        serde_json::json!({
            "kind": "cniCacheV1", "containerId": sandbox, "ifName": "eth0", "networkName": "pods",
            "config": base64::engine::general_purpose::STANDARD.encode(network),
            "netns": "/var/run/netns/cni-1", "cniArgs": [["K8S_POD_NAME", "web"], ["IgnoreUnknown", "1"]],
            "capabilityArgs": {"portMappings": [{"hostPort": 80, "containerPort": 8080}], "bandwidth": {"x": 1}, "dns": {}},
            "result": {"cniVersion": "1.0.0", "ips": [{"address": "10.1.0.2/24"}]},
        })
        .to_string()
    }

    fn attachment(network: &str) -> Attachment {
        serde_json::from_str(&result("abc", network)).unwrap()
    }

    #[test]
    fn plugins_are_called_backwards_and_told_what_they_were_told_before() {
        let calls = attachment(NETWORK).calls();
        let kinds: Vec<&str> = calls.iter().map(|(kind, _)| kind.as_str()).collect();
        assert_eq!(kinds, ["portmap", "bridge"], "and no program outside of their folder");
        let (portmap, bridge) = (&calls[0].1, &calls[1].1);
        assert_eq!(
            (&portmap["name"], &portmap["cniVersion"]),
            (&"pods".into(), &"1.0.0".into())
        );
        let runtime = &portmap["runtimeConfig"];
        assert_eq!(runtime["portMappings"][0]["hostPort"], 80);
        assert_eq!(
            runtime.as_object().unwrap().len(),
            1,
            "only what it is capable of: {runtime}"
        );
        assert!(bridge.get("runtimeConfig").is_none());
        assert_eq!(bridge["prevResult"]["ips"][0]["address"], "10.1.0.2/24");

        let old = attachment(r#"{"cniVersion": "0.3.1", "name": "old", "type": "ptp"}"#).calls();
        assert_eq!(old.len(), 1);
        assert_eq!((old[0].0.as_str(), old[0].1.get("prevResult")), ("ptp", None));
        assert_eq!(attachment("{").calls(), []);
    }

    fn machine() -> (tempfile::TempDir, Layout) {
        let folder = tempfile::tempdir().unwrap();
        let layout = Layout::under(folder.path());
        for sandbox in ["abc", "abd"] {
            put(
                &folder.path().join(format!("var/lib/cni/results/pods-{sandbox}-eth0")),
                result(sandbox, NETWORK).as_bytes(),
            );
        }
        put(&folder.path().join("var/lib/cni/results/broken"), b"{");
        put(&places::containers(&layout).join("abc/config.json"), b"{}");
        std::fs::create_dir_all(folder.path().join("opt/cni/bin")).unwrap();
        (folder, layout)
    }

    #[tokio::test]
    async fn a_result_that_names_no_plugin_is_not_said_to_be_undone() {
        let (_folder, layout) = machine();
        let mut report = Report::default();
        detach(&layout, &[attachment("{")], &mut report).await;
        assert!(report.removed.is_empty() && report.left.len() == 1, "{report:?}");
    }

    #[tokio::test]
    async fn only_our_sandboxes_are_detached() {
        let (folder, layout) = machine();
        let log = folder.path().join("log");
        for name in ["bridge", "portmap"] {
            let script = format!(
                "echo {name} $CNI_COMMAND $CNI_CONTAINERID $CNI_NETNS $CNI_IFNAME $CNI_ARGS `cut -c1 -` >> {}",
                log.display()
            );
            tool(&folder.path().join("opt/cni/bin"), name, &script);
        }
        let found = find(&layout);
        assert_eq!(found, [attachment(NETWORK)]);
        let mut report = Report::default();
        detach(&layout, &found, &mut report).await;
        let line =
            |name: &str| format!("{name} DEL abc /var/run/netns/cni-1 eth0 K8S_POD_NAME=web;IgnoreUnknown=1 {{\n");
        assert_eq!(std::fs::read_to_string(log).unwrap(), line("portmap") + &line("bridge"));
        assert_eq!((report.removed.len(), report.left.len()), (1, 0), "{report:?}");
    }

    #[tokio::test]
    async fn a_plugin_that_fails_or_is_gone_is_told_and_stops_no_other() {
        let (folder, layout) = machine();
        let log = folder.path().join("log");
        let plugins = folder.path().join("opt/cni/bin");
        tool(
            &plugins,
            "portmap",
            r#"echo '{"code": 7, "msg": "no such table"}'; exit 1"#,
        );
        tool(&plugins, "bridge", &format!("echo bridge >> {}", log.display()));
        let mut report = Report::default();
        detach(&layout, &find(&layout), &mut report).await;
        assert_eq!(std::fs::read_to_string(&log).unwrap(), "bridge\n");
        assert_eq!(report.removed, Vec::<String>::new());
        assert!(report.left[0].why.contains("sandbox abc (no such table)"), "{report:?}");

        std::fs::remove_file(plugins.join("portmap")).unwrap();
        let mut report = Report::default();
        detach(&layout, &find(&layout), &mut report).await;
        assert!(report.left[0].why.contains("there is no"), "{report:?}");
    }

    #[tokio::test]
    async fn shared_tables_go_when_they_are_nobodys() {
        let folder = tempfile::tempdir().unwrap();
        let script = "case \"$1 $3\" in 'list ip6') printf 'table ip6 x {\\n  tcp dport 80 comment \"abc\"\\n}\\n';; \
                      list*) printf 'table ip x {\\n comment \"CNI portmap plugin\"\\n}\\n';; esac";
        let tools = Tools {
            nft: Some(tool(folder.path(), "nft", script)),
            ..Tools::default()
        };
        let listed = "table ip cni_hostport\ntable ip6 cni_hostport\ntable ip nat\n";
        let mut report = Report::default();
        remove_tables(&tools, listed, &mut report).await.unwrap();
        assert_eq!(report.removed, ["nftables table ip cni_hostport"]);
        assert_eq!(report.left.len(), 1);
        assert_eq!(report.left[0].what, "nftables table ip6 cni_hostport");
    }
}
