//! The text of the kubelet's configuration. Each field that is not the kubelet's own default has its reason beside it.
//! <https://kubernetes.io/docs/reference/config-api/kubelet-config.v1beta1/>

use serde_json::{Map, Value, json};

use super::super::super::node_state::{NodeState, Profile};
use super::super::Inputs;
use super::super::cgroup::{CgroupDriver, CgroupVersion};
use super::super::error::{Error, text};
use super::super::facts::Facts;
use super::super::settings::{Kept, first_kept, merge};
use super::fields::FIELDS;
use super::{SERVING_CERTIFICATE, SERVING_KEY, cluster_dns_ip};

/// The kubelet's configuration, with the section `kubelet` of config.yaml merged in.
pub(super) fn config(inputs: Inputs<'_>, state: &NodeState, serving_bootstrapped: bool) -> Result<String, Error> {
    let given = &inputs.settings.kubelet;
    check(given)?;
    let mut fields = Map::new();
    identity(&mut fields, inputs, serving_bootstrapped)?;
    node(&mut fields, inputs, state)?;
    machine(&mut fields, inputs.facts)?;
    match state.profile {
        Profile::Default => {}
        Profile::Cis => cis(&mut fields),
    }
    merge(&mut fields, given);
    // First, as people expect it; the rest is sorted.
    let body = serde_saphyr::to_string(&fields).map_err(|error| Error::Render {
        what: "the kubelet's configuration",
        source: Box::new(error),
    })?;
    Ok(format!(
        "# Written by stratum; changes go to section `kubelet` of config.yaml.\n\
         apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n{body}"
    ))
}

fn put(fields: &mut Map<String, Value>, more: Value) {
    if let Value::Object(more) = more {
        fields.extend(more);
    }
}

/// Who may ask the kubelet, and how it proves itself.
fn identity(fields: &mut Map<String, Value>, inputs: Inputs<'_>, serving_bootstrapped: bool) -> Result<(), Error> {
    let pki = inputs.layout.pki();
    let authorities = pki.join("ca-bundle.crt");
    put(
        fields,
        json!({
            // The first two are the defaults, said because everything stands on them.
            "authentication": {
                "anonymous": {"enabled": false},
                "webhook": {"enabled": true},
                // The bundle: during a rotation API servers come with certificates of both authorities.
                "x509": {"clientCAFile": text(&authorities)?},
            },
            "authorization": {"mode": "Webhook"},
            // Its client certificate lasts a year; it asks for the next one itself.
            "rotateCertificates": true,
        }),
    );
    if serving_bootstrapped {
        put(fields, json!({"serverTLSBootstrap": true}));
    } else {
        // Else it would sign one itself, and API servers verify it.
        put(
            fields,
            json!({
                "tlsCertFile": text(&pki.join(SERVING_CERTIFICATE))?,
                "tlsPrivateKeyFile": text(&pki.join(SERVING_KEY))?,
            }),
        );
    }
    Ok(())
}

/// What the node was told.
fn node(fields: &mut Map<String, Value>, inputs: Inputs<'_>, state: &NodeState) -> Result<(), Error> {
    let layout = inputs.layout;
    put(
        fields,
        json!({
            "clusterDNS": [cluster_dns_ip(state)?.to_string()],
            "clusterDomain": state.networks.domain,
            "containerRuntimeEndpoint": format!("unix://{}", text(&layout.containerd_socket())?),
            "podLogsDir": text(&layout.root().join("var/log/pods"))?,
            // The default is made below /usr/libexec, which may be read-only, and would stay after an uninstall.
            "volumePluginDir": text(&layout.kubelet_root().join("volumeplugins"))?,
            // So that one threshold in config.yaml does not turn the others off.
            "mergeDefaultEvictionSettings": true,
        }),
    );
    if state.is_controller() {
        // A worker has none: whoever can write a file there would have a pod that no API server admitted.
        put(fields, json!({"staticPodPath": text(&layout.static_pods())?}));
        // A restart ends the process of a static pod, and after a few of them the default would keep the next one from
        // being started for up to five minutes; as it would a control plane whose etcd was down, or whose leaves expired.
        put(fields, json!({"crashLoopBackOff": {"maxContainerRestartPeriod": "1s"}}));
    }
    if !state.taints.is_empty() {
        let taints: Vec<Value> = state
            .taints
            .iter()
            .map(|taint| {
                let value = taint.value.as_deref().unwrap_or_default();
                json!({"key": taint.key, "value": value, "effect": taint.effect})
            })
            .collect();
        // Here and not as a flag: that one is deprecated.
        put(fields, json!({"registerWithTaints": taints}));
    }
    Ok(())
}

/// What the machine asks for.
fn machine(fields: &mut Map<String, Value>, facts: &Facts) -> Result<(), Error> {
    let Facts {
        driver,
        cgroup,
        may_lower_oom_score: _,
        selinux: _,
        resolvers,
    } = facts;
    put(fields, json!({"cgroupDriver": driver.to_string()}));
    match driver {
        // systemd-logind tells of a shutdown, and pods get the time to end: the API servers and etcd the last third.
        CgroupDriver::Systemd => put(
            fields,
            json!({"shutdownGracePeriod": "30s", "shutdownGracePeriodCriticalPods": "10s"}),
        ),
        // Nobody would tell; the kubelet would log an error at each start.
        CgroupDriver::Cgroupfs => {}
    }
    match cgroup {
        // Pods are kept out of swap there (`NoSwap`, the default), so a machine that has some, as many do (zram), still
        // gets its node. With the older generation nothing keeps them out, and the default, to refuse, holds.
        CgroupVersion::Two => put(fields, json!({"failSwapOn": false})),
        // The kubelet would refuse such a machine, which works.
        CgroupVersion::One => put(fields, json!({"failCgroupV1": false})),
    }
    if let Some(path) = resolvers.for_pods() {
        // Pods cannot reach the server the node's own file names: itself.
        put(fields, json!({"resolvConf": text(path)?}));
    }
    Ok(())
}

/// What the CIS Kubernetes Benchmark asks of the kubelet beyond the above (section 4.2).
fn cis(fields: &mut Map<String, Value>) {
    put(
        fields,
        json!({
            // 4.2.6: the kernel's settings are the administrator's; see `KERNEL_SETTINGS`.
            "protectKernelDefaults": true,
            // 4.2.5: an idle exec or port-forward does not stay open for the default four hours.
            "streamingConnectionIdleTimeout": "5m0s",
            // 4.2.7
            "makeIPTablesUtilChains": true,
            // 4.2.12: forward secrecy and authenticated encryption only; TLS 1.3 has nothing else.
            "tlsMinVersion": "VersionTLS12",
            "tlsCipherSuites": [
                "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
                "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
                "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
                "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
                "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
                "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
            ],
            // 4.2.13: one pod cannot take every process id of the node.
            "podPidsLimit": 4096,
            // 4.2.14: system calls are filtered unless a pod says otherwise.
            "seccompDefault": true,
        }),
    );
}

const SECTION: &str = "kubelet";

/// What a user may not change: without these the node is not the cluster's, or not safe in it.
const KEPT: [Kept; 20] = [
    kept(&["apiVersion"], "stratum writes it"),
    kept(&["kind"], "stratum writes it"),
    kept(&["staticPodPath"], "stratum keeps the control plane there"),
    kept(
        &["containerRuntimeEndpoint"],
        "the containerd that stratum runs is there",
    ),
    kept(&["imageServiceEndpoint"], "the containerd that stratum runs is there"),
    kept(
        &["cgroupDriver"],
        "it must be containerd's driver, and follows what PID 1 is",
    ),
    kept(
        &["clusterDomain"],
        "it is the cluster's, and was chosen when it was made",
    ),
    kept(
        &["authentication", "x509"],
        "API servers prove themselves by it, and rotation changes the file",
    ),
    kept(&["authentication", "anonymous"], "everybody could ask the kubelet"),
    kept(&["authentication", "webhook", "enabled"], "tokens would not be checked"),
    kept(&["authorization", "mode"], "everybody who is known could do everything"),
    kept(
        &["rotateCertificates"],
        "the node would be lost when its certificate ends",
    ),
    kept(&["serverTLSBootstrap"], "the profile and the node's role decide it"),
    kept(
        &["tlsCertFile"],
        "API servers verify the certificate that stratum provides",
    ),
    kept(
        &["tlsPrivateKeyFile"],
        "API servers verify the certificate that stratum provides",
    ),
    kept(&["port"], "stratum asks the kubelet there"),
    kept(&["healthzPort"], "stratum asks the kubelet there"),
    kept(&["healthzBindAddress"], "stratum asks the kubelet there"),
    kept(&["enableServer"], "logs, exec and the static pods' state would be gone"),
    kept(&["registerNode"], "a node that does not register is none"),
];

const fn kept(path: &'static [&'static str], reason: &'static str) -> Kept {
    Kept { path, reason }
}

fn check(given: &Map<String, Value>) -> Result<(), Error> {
    if let Some(kept) = first_kept(given, &KEPT) {
        return Err(Error::Refused {
            section: SECTION,
            key: kept.path.join("."),
            reason: kept.reason,
        });
    }
    match given.keys().find(|key| FIELDS.binary_search(&key.as_str()).is_err()) {
        Some(key) => Err(Error::Unknown {
            section: SECTION,
            key: key.clone(),
        }),
        None => Ok(()),
    }
}
