//! A cluster that takes bootstrap tokens and publishes itself, and this controller's files beside it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client};
use stratum::controllers::joining::discovery::{self, Discovered, DiscoveryError, Told};
use stratum::controllers::joining::publishing::publish_cluster_info;
use stratum::controllers::joining::tokens;
use stratum::controllers::joining::wire::Limits;
use stratum::host::child::{Finished, Program};
use stratum::host::clock;
use stratum::host::node_state::{self, Endpoint, Etcd, EtcdAuthority, InitialClusterState, Networks, NodeState, Role};
use stratum::host::node_state::{CLUSTER_DOMAIN, Profile};
use stratum::pki::authority::Authority;
use stratum::pki::certificate::Certificate;
use stratum::pki::key::{Key, KeyKind, Serial};
use stratum::pki::pin::Pin;
use stratum::pki::seal::CertificateKey;
use stratum::reconcilers::bootstrap_token::BootstrapToken;
use stratum::reconcilers::joining::access::CONTROLLER_ROLE;
use stratum::reconcilers::joining::token::Kind;
use tokio::sync::OnceCell;

use crate::support::{Cluster, Options, stratum};

pub(crate) const NAMESPACE: &str = "kube-system";

/// Patience for what is not going to pass.
pub(crate) const BRIEF: Limits = Limits {
    connect: Duration::from_secs(3),
    answer: Duration::from_secs(10),
    patience: Duration::from_secs(1),
};

pub(crate) struct Bed {
    pub(crate) cluster: Cluster,
}

impl Bed {
    /// The one that tests share which leave cluster-info as it is.
    pub(crate) async fn shared() -> &'static Self {
        static SHARED: OnceCell<Bed> = OnceCell::const_new();
        SHARED.get_or_init(Self::new).await
    }

    pub(crate) async fn new() -> Self {
        let cluster = Cluster::dedicated(Options {
            api_server_arguments: vec!["--enable-bootstrap-token-auth=true".to_owned()],
            ..Options::default()
        })
        .await;
        let bed = Self { cluster };
        node_state::save(&bed.cluster.plane.layout().node_state(), &bed.state()).unwrap();
        bed.publish(&[bed.authority()]).await;
        bed
    }

    /// A client of the administrator, for this test's runtime.
    pub(crate) async fn admin(&self) -> Client {
        self.cluster.client().await
    }

    pub(crate) fn endpoint(&self) -> Endpoint {
        let server: http::Uri = self.cluster.plane.server().parse().unwrap();
        Endpoint {
            host: server.host().unwrap().to_owned(),
            port: server.port_u16().unwrap(),
        }
    }

    pub(crate) fn authority(&self) -> Certificate {
        Certificate::from_pem(self.cluster.plane.authority().as_bytes()).unwrap()
    }

    pub(crate) fn pin(&self) -> Pin {
        Pin::of(&self.authority())
    }

    /// A controller of this cluster.
    pub(crate) fn state(&self) -> NodeState {
        NodeState {
            node_name: "alpha".to_owned(),
            role: Role::Controller,
            profile: Profile::Default,
            addresses: vec!["127.0.0.1".parse().unwrap()],
            networks: Networks {
                services: vec!["10.96.0.0/16".parse().unwrap()],
                pods: Vec::new(),
                domain: CLUSTER_DOMAIN.to_owned(),
                learned_dns: None,
            },
            endpoint: self.endpoint(),
            vip: None,
            extra_names: Vec::new(),
            etcd: Some(Etcd {
                authority: EtcdAuthority::Own,
                initial_cluster: Vec::new(),
                initial_cluster_state: InitialClusterState::New,
            }),
            labels: BTreeMap::new(),
            taints: Vec::new(),
            keys: KeyKind::default(),
        }
    }

    pub(crate) async fn publish(&self, bundle: &[Certificate]) {
        let server = self.cluster.plane.server();
        publish_cluster_info(&self.admin().await, NAMESPACE, &server, bundle)
            .await
            .unwrap();
    }

    /// A token that lives so many seconds, which nothing is signed under yet.
    pub(crate) async fn token(&self, kind: Kind, seconds: i64) -> BootstrapToken {
        let end = clock::now() + jiff::SignedDuration::from_secs(seconds);
        let made = tokens::create(&self.admin().await, NAMESPACE, kind, Some(end), None).await;
        made.unwrap().0
    }

    /// What a worker finds, with little patience.
    pub(crate) async fn find(&self, token: &BootstrapToken, pins: &[Pin]) -> Result<Discovered, DiscoveryError> {
        self.find_at(&self.endpoint(), token, pins).await
    }

    pub(crate) async fn find_at(
        &self,
        endpoint: &Endpoint,
        token: &BootstrapToken,
        pins: &[Pin],
    ) -> Result<Discovered, DiscoveryError> {
        let told = Told {
            endpoint,
            token,
            pins,
            kind: Kind::Worker,
        };
        discovery::discover(&told, BRIEF, clock::now()).await
    }

    /// The client of a machine that joins as a controller, with nothing but its token.
    pub(crate) async fn find_as_controller(&self, command: &Command) -> Client {
        let told = Told {
            endpoint: &self.endpoint(),
            token: command.token(),
            pins: &command.pins,
            kind: Kind::Controller,
        };
        let found = discovery::discover(&told, BRIEF, clock::now()).await.unwrap();
        found.client(command.token())
    }

    /// Gives the role of joining controllers other rules.
    pub(crate) async fn set_rules(&self, rules: &[serde_json::Value]) {
        let patch = serde_json::json!({"rules": rules}).to_string();
        let arguments = ["patch", "role", CONTROLLER_ROLE, "--type=merge", "-p", &patch];
        self.cluster.kubectl_in(NAMESPACE, &arguments).await;
    }

    pub(crate) async fn cluster_info(&self) -> ConfigMap {
        let api: Api<ConfigMap> = Api::namespaced(self.admin().await, "kube-public");
        api.get("cluster-info").await.unwrap()
    }

    /// Changes the data of cluster-info, as somebody who writes by hand.
    pub(crate) async fn patch(&self, data: &serde_json::Value) {
        let patch = serde_json::json!({"data": data}).to_string();
        let arguments = ["patch", "configmap", "cluster-info", "--type=merge", "-p", &patch];
        self.cluster.kubectl_in("kube-public", &arguments).await;
    }

    /// Runs our command on this controller.
    pub(crate) async fn stratum(&self, arguments: &[&str]) -> Finished {
        self.stratum_at(self.cluster.plane.layout().root().to_owned(), arguments)
            .await
    }

    pub(crate) async fn stratum_at(&self, root: PathBuf, arguments: &[&str]) -> Finished {
        let program = Program::new(stratum())
            .arguments(arguments.iter().copied())
            .variable("STRATUM_ROOT", root);
        program.run(Vec::new()).await.unwrap()
    }

    /// The same, with success expected; what it printed.
    pub(crate) async fn done(&self, arguments: &[&str]) -> String {
        let finished = self.stratum(arguments).await;
        let stderr = String::from_utf8_lossy(&finished.stderr);
        assert!(finished.exit.is_success(), "{arguments:?}: {}: {stderr}", finished.exit);
        String::from_utf8(finished.stdout).unwrap()
    }

    /// kubectl with nothing but a token.
    pub(crate) async fn kubectl_with_token(&self, token: &BootstrapToken, arguments: &[&str]) -> Finished {
        let authority = self.cluster.plane.layout().pki().join("ca.crt");
        Program::new(crate::support::kubectl().await)
            .arguments([
                "--kubeconfig=/dev/null",
                "--server",
                &self.cluster.plane.server(),
                "--token",
            ])
            .arguments([token.expose().as_str()])
            .arguments(["--certificate-authority".into(), authority.into_os_string()])
            .arguments(arguments.iter().copied())
            .variable("KUBECACHEDIR", self.cluster.plane.layout().state().join("cache"))
            .run(Vec::new())
            .await
            .unwrap()
    }
}

/// An authority of another cluster.
pub(crate) fn other_authority() -> Authority {
    let key = Key::generate(KeyKind::default()).unwrap();
    Authority::make("other", key, Serial::random().unwrap(), clock::now()).unwrap()
}

/// A join command as a machine would read it.
#[derive(Debug, Default)]
pub(crate) struct Command {
    pub(crate) endpoint: String,
    pub(crate) token: Option<BootstrapToken>,
    pub(crate) pins: Vec<Pin>,
    pub(crate) certificate_key: Option<CertificateKey>,
    pub(crate) control_plane: bool,
    pub(crate) service_ranges: Option<String>,
}

impl Command {
    /// Lets a shell take the line apart.
    pub(crate) async fn read(line: &str) -> Self {
        let shell = Program::new("/bin/sh").arguments(["-c", &format!("printf '%s\\n' {line}")]);
        let words = String::from_utf8(shell.run(Vec::new()).await.unwrap().stdout).unwrap();
        let mut words = words.lines();
        assert_eq!((words.next(), words.next()), (Some("stratum"), Some("join")), "{line}");
        let mut command = Self {
            endpoint: words.next().unwrap().to_owned(),
            ..Self::default()
        };
        while let Some(flag) = words.next() {
            let mut value = || words.next().unwrap();
            match flag {
                "--token" => command.token = Some(value().parse().unwrap()),
                "--ca-cert-hash" => command.pins.push(value().parse().unwrap()),
                "--certificate-key" => command.certificate_key = Some(value().parse().unwrap()),
                "--service-cidr" => command.service_ranges = Some(value().to_owned()),
                "--control-plane" => command.control_plane = true,
                other => panic!("{other} in {line}"),
            }
        }
        command
    }

    pub(crate) fn token(&self) -> &BootstrapToken {
        self.token.as_ref().unwrap()
    }
}
