use super::super::layout::Layout;
use super::super::node_state::{self, Role};
use super::*;
use crate::host::atomic_file::{Access, create_folder, write};

fn state() -> NodeState {
    let yaml = "version: 1\nnodeName: alpha\nrole: controller\nprofile: default\naddresses: [10.0.0.1]\n\
                networks: {services: [10.96.0.0/12], pods: [10.244.0.0/16], domain: cluster.local}\n\
                endpoint: {host: 10.0.0.1, port: 6443}\n...\n";
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("node.yaml");
    write(&path, yaml.as_bytes(), Access::Secret).unwrap();
    node_state::load(&path).unwrap()
}

fn good() -> Facts {
    Facts {
        user: 0,
        listeners: BTreeMap::from([(22, None)]),
        swaps: Vec::new(),
        forwarding: Forwarding {
            four: Some(true),
            six: None,
        },
        overlay: true,
        cgroups: ["cpuset", "cpu", "io", "memory", "pids"].map(str::to_owned).to_vec(),
        addresses: vec!["127.0.0.1".parse().unwrap(), "10.0.0.1".parse().unwrap()],
        machine_id: Some("0123456789abcdef0123456789abcdef".to_owned()),
        disk: ("/var/lib/stratum".into(), DISK_NEEDED),
        program_written: Some(now()),
        traces: Vec::new(),
    }
}

fn now() -> Timestamp {
    "2026-06-01T12:00:00Z".parse().unwrap()
}

#[test]
fn a_good_machine_has_no_problem() {
    assert_eq!(judge(&good(), &state(), false, now()), []);
}

/// One change each, one problem each, with the words that tell what to do.
#[test]
fn each_thing_that_is_wrong_is_told() {
    type Change = fn(&mut Facts, &mut NodeState);
    let port = |facts: &mut Facts, port: u16| {
        let process = Process {
            id: 7,
            name: "haproxy".to_owned(),
        };
        facts.listeners.insert(port, Some(process));
    };
    let cases: [(Change, &str); 17] = [
        (|facts, _| facts.user = 1000, "run it as root"),
        (
            |facts, _| facts.swaps.push("/dev/sda2".to_owned()),
            "/dev/sda2: swapoff -a",
        ),
        (|facts, _| facts.forwarding.four = Some(false), "net.ipv4.ip_forward=1"),
        (|facts, _| facts.forwarding.four = None, "net.ipv4.ip_forward=1"),
        (|facts, _| facts.overlay = false, "modprobe overlay"),
        (
            |facts, _| facts.cgroups.retain(|name| name != "memory"),
            "controller memory",
        ),
        (
            |facts, _| facts.addresses.clear(),
            "no interface of this machine has 10.0.0.1",
        ),
        (|facts, _| facts.machine_id = None, "systemd-machine-id-setup makes one"),
        (
            |facts, _| facts.machine_id = Some("uninitialized".to_owned()),
            "no machine id",
        ),
        (|facts, _| facts.machine_id = Some("0".repeat(32)), "no machine id"),
        (|facts, _| facts.disk.1 -= 1, "2047 MiB free"),
        (
            |facts, _| facts.program_written = Some(now() + CLOCK_BEHIND + SignedDuration::from_secs(1)),
            "set the clock",
        ),
        (
            |facts, _| facts.traces.push("/etc/kubernetes/manifests".into()),
            "uninstall it first",
        ),
        (|_, state| state.node_name = "Alpha".to_owned(), "--node-name"),
        (|_, state| state.node_name = "a_b".to_owned(), "--node-name"),
        (
            |_, state| state.node_name = format!("a.{}", "b".repeat(62)),
            "--node-name",
        ),
        (|_, state| state.node_name = "a..b".to_owned(), "--node-name"),
    ];
    for (number, (change, words)) in cases.into_iter().enumerate() {
        let (mut facts, mut state) = (good(), state());
        change(&mut facts, &mut state);
        let found = judge(&facts, &state, false, now());
        let texts: Vec<String> = found.iter().map(ToString::to_string).collect();
        assert!(
            found.len() == 1 && texts[0].contains(words) && texts[0].lines().count() == 1,
            "{number}: {texts:?}"
        );
    }
    for (number, needed) in [
        (6443, true),
        (2379, true),
        (10259, true),
        (9440, true),
        (10250, true),
        (80, false),
    ] {
        let mut facts = good();
        port(&mut facts, number);
        let found = judge(&facts, &state(), false, now());
        assert_eq!(found.len(), usize::from(needed), "{number}");
        assert!(
            found
                .iter()
                .all(|problem| problem.to_string().contains("by haproxy (process 7)")),
            "{found:?}"
        );
    }
}

#[test]
fn a_worker_needs_fewer_ports_and_a_tolerant_kubelet_bears_swap() {
    let mut facts = good();
    facts.listeners = BTreeMap::from([(6443, None), (2379, None), (10250, None)]);
    facts.swaps.push("/swap".to_owned());
    let mut worker = state();
    worker.role = Role::Worker;
    let found: Vec<String> = judge(&facts, &worker, true, now())
        .iter()
        .map(ToString::to_string)
        .collect();
    assert!(
        found.len() == 1 && found[0].contains("10250") && found[0].contains("ss -tlnp"),
        "{found:?}"
    );
}

#[test]
fn the_machine_is_read_as_the_kernel_tells_it() {
    let folder = tempfile::tempdir().unwrap();
    let put = |path: &str, text: &str| {
        let path = folder.path().join(path);
        create_folder(path.parent().unwrap(), Access::Public).unwrap();
        write(&path, text.as_bytes(), Access::Public).unwrap();
    };
    put("proc/sys/net/ipv4/ip_forward", "1\n");
    put("proc/swaps", "Filename\tType\n/dev/dm-1  partition 1 0 -2\n");
    put("proc/filesystems", "nodev\tsysfs\n\text4\nnodev\toverlay\n");
    put(
        "proc/cgroups",
        "#subsys_name\thierarchy\tnum_cgroups\tenabled\ncpu\t1\t2\t1\nmemory\t2\t2\t0\n",
    );
    put(
        "proc/net/fib_trie",
        "Main:\n  +-- 0.0.0.0/0 3 0 5\n        |-- 10.0.0.0\n           /24 link UNICAST\n        |-- 10.0.0.7\n           /32 host LOCAL\n",
    );
    put(
        "proc/net/if_inet6",
        "00000000000000000000000000000001 01 80 10 80       lo\n",
    );
    let line = "   0: 00000000:192B 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4711 1\n";
    put(
        "proc/net/tcp",
        &format!(
            "  sl  local_address\n{line}{}",
            line.replace(" 0A ", " 01 ").replace("192B", "0016")
        ),
    );
    put("proc/9/comm", "haproxy\n");
    create_folder(&folder.path().join("proc/9/fd"), Access::Public).unwrap();
    std::os::unix::fs::symlink("socket:[4711]", folder.path().join("proc/9/fd/3")).unwrap();
    put("etc/machine-id", "0123456789abcdef0123456789abcdef\n");
    put("var/lib/stratum/etcd/member", "");

    let layout = Layout::under(folder.path());
    let facts = observe(&layout, None).unwrap();
    let process = Process {
        id: 9,
        name: "haproxy".to_owned(),
    };
    assert_eq!(facts.listeners, BTreeMap::from([(6443, Some(process))]));
    assert_eq!(
        (facts.swaps, facts.forwarding.four, facts.forwarding.six),
        (vec!["/dev/dm-1".to_owned()], Some(true), None)
    );
    assert!(facts.overlay);
    assert_eq!(facts.cgroups, ["cpu"]);
    let addresses: Vec<String> = facts.addresses.iter().map(ToString::to_string).collect();
    assert_eq!(addresses, ["10.0.0.7", "::1"]);
    assert_eq!(facts.machine_id.as_deref(), Some("0123456789abcdef0123456789abcdef"));
    assert_eq!(facts.traces, [layout.etcd_data()]);
    for ours in ["node.yaml", "joining"] {
        let path = format!("var/lib/stratum/{ours}");
        put(&path, "x");
        assert_eq!(observe(&layout, None).unwrap().traces, [] as [PathBuf; 0], "{ours}");
        std::fs::remove_file(folder.path().join(path)).unwrap();
    }
    put("sys/fs/cgroup/cgroup.controllers", "cpu memory\n");
    assert_eq!(observe(&layout, None).unwrap().cgroups, ["cpu", "memory"]);
}
