//! The command lines of both processes.

use std::path::PathBuf;

use super::super::layout::Layout;
use super::Settings;
use super::ports::Ports;

pub(super) fn etcd(settings: &Settings, layout: &Layout, ports: Ports) -> Vec<String> {
    let pki = |name: &str| layout.pki().join("etcd").join(name).display().to_string();
    let (client, peer) = (ports.etcd_url(), ports.etcd_peer_url());
    let mut arguments = vec![
        "--name=stratum-dev".to_owned(),
        format!("--data-dir={}", layout.etcd_data().display()),
        format!("--listen-client-urls={client}"),
        format!("--advertise-client-urls={client}"),
        format!("--listen-peer-urls={peer}"),
        format!("--initial-advertise-peer-urls={peer}"),
        format!("--initial-cluster=stratum-dev={peer}"),
        "--client-cert-auth=true".to_owned(),
        format!("--trusted-ca-file={}", pki("ca.crt")),
        format!("--cert-file={}", pki("server.crt")),
        format!("--key-file={}", pki("server.key")),
        "--peer-client-cert-auth=true".to_owned(),
        format!("--peer-trusted-ca-file={}", pki("ca.crt")),
        format!("--peer-cert-file={}", pki("peer.crt")),
        format!("--peer-key-file={}", pki("peer.key")),
    ];
    if settings.unsafe_no_fsync {
        arguments.push("--unsafe-no-fsync=true".to_owned());
    }
    arguments.extend(settings.etcd_arguments.iter().cloned());
    arguments
}

pub(super) fn api_server(settings: &Settings, layout: &Layout, ports: Ports) -> Vec<String> {
    let pki = |name: &str| layout.pki().join(name).display().to_string();
    let mut arguments = vec![
        format!("--etcd-servers={}", ports.etcd_url()),
        format!("--etcd-cafile={}", pki("etcd/ca.crt")),
        format!("--etcd-certfile={}", pki("apiserver-etcd-client.crt")),
        format!("--etcd-keyfile={}", pki("apiserver-etcd-client.key")),
        "--bind-address=127.0.0.1".to_owned(),
        "--advertise-address=127.0.0.1".to_owned(),
        // Endpoints on loopback are refused by the API server itself, so it would complain without end.
        "--endpoint-reconciler-type=none".to_owned(),
        format!("--secure-port={}", ports.api_server),
        format!("--tls-cert-file={}", pki("apiserver.crt")),
        format!("--tls-private-key-file={}", pki("apiserver.key")),
        format!("--client-ca-file={}", pki("ca.crt")),
        "--authorization-mode=Node,RBAC".to_owned(),
        "--enable-admission-plugins=NodeRestriction".to_owned(),
        "--service-cluster-ip-range=10.96.0.0/16".to_owned(),
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local".to_owned(),
        format!("--service-account-key-file={}", pki("sa.pub")),
        format!("--service-account-signing-key-file={}", pki("sa.key")),
        format!("--requestheader-client-ca-file={}", pki("front-proxy-ca.crt")),
        "--requestheader-allowed-names=front-proxy-client".to_owned(),
        "--requestheader-username-headers=X-Remote-User".to_owned(),
        "--requestheader-group-headers=X-Remote-Group".to_owned(),
        "--requestheader-extra-headers-prefix=X-Remote-Extra-".to_owned(),
        format!("--proxy-client-cert-file={}", pki("front-proxy-client.crt")),
        format!("--proxy-client-key-file={}", pki("front-proxy-client.key")),
        "--allow-privileged=true".to_owned(),
        "--profiling=false".to_owned(),
        // Without it a stop takes 30 to 60 s while watches are open.
        "--shutdown-watch-termination-grace-period=1s".to_owned(),
    ];
    if settings.audit_policy.is_some() {
        arguments.push(format!("--audit-policy-file={}", audit_policy(layout).display()));
        arguments.push(format!("--audit-log-path={}", audit_log(layout).display()));
        // In megabytes; a rotated log would hide the beginning of a long test.
        arguments.push("--audit-log-maxsize=10000".to_owned());
    }
    arguments.extend(settings.api_server_arguments.iter().cloned());
    arguments
}

pub(super) fn audit_policy(layout: &Layout) -> PathBuf {
    layout.state().join("audit-policy.yaml")
}

pub(super) fn audit_log(layout: &Layout) -> PathBuf {
    super::logs(layout).join("audit.log")
}
