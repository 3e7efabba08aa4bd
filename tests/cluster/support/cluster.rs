//! A control plane for tests, and the command lines that judge it.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use stratum::controllers::cluster::CONTROL_PLANE_LABEL;
use stratum::host::assets::{Source, Tool};
use stratum::host::atomic_file::{self, Access};
use stratum::host::child::{Finished, Program};
use stratum::host::clock;
use stratum::host::dev_plane::{DevPlane, Settings};
use stratum::host::kubeconfig::Kubeconfig;
use stratum::host::layout::Identity;
use stratum::host::lock::{Attempt, Lock};
use tokio::sync::OnceCell;

/// An audit policy that keeps every request's metadata, once it was answered.
pub(crate) const AUDIT_EVERYTHING: &str =
    "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nrules:\n- level: Metadata\n";

/// What the three identities may do: what the product gives them, and no more. A right that the operator lacks fails the
/// test that needs it.
const RBAC: &str = include_str!("../../../deploy/bootstrap/rbac.yaml");
/// The kind the operator keeps its memory of node names in.
const IDENTITIES: &str = include_str!("../../../deploy/bootstrap/nodeidentities.yaml");

/// How a control plane of a test's own differs from the shared one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Options {
    /// Keep an audit log by this policy.
    pub(crate) audit_policy: Option<String>,
    /// More arguments for kube-apiserver.
    pub(crate) api_server_arguments: Vec<String>,
    /// More arguments for etcd.
    pub(crate) etcd_arguments: Vec<String>,
    /// Keep everything in this folder instead of one that goes with the value.
    pub(crate) data: Option<PathBuf>,
}

/// A running control plane.
pub(crate) struct Cluster {
    // Dropped before its folder.
    pub(crate) plane: DevPlane,
    folder: Folder,
    kubectl: PathBuf,
    etcdctl: PathBuf,
}

/// The executable under test.
pub(crate) fn stratum() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_stratum"))
}

/// The kubectl that is made for this API server. Panics without one.
pub(crate) async fn kubectl() -> PathBuf {
    let source = Source::choose(|name| std::env::var_os(name), Some(stratum().to_owned()));
    let source = source.unwrap_or_else(|error| fail(&error));
    let [kubectl] = source
        .provide([Tool::Kubectl])
        .await
        .unwrap_or_else(|error| fail(&error));
    kubectl
}

impl Cluster {
    /// The one all tests of this process share; it keeps an audit log of everything. Ends with the process.
    pub(crate) async fn shared() -> &'static Self {
        static SHARED: OnceCell<Cluster> = OnceCell::const_new();
        let start = || {
            Self::dedicated(Options {
                audit_policy: Some(AUDIT_EVERYTHING.to_owned()),
                ..Options::default()
            })
        };
        SHARED.get_or_init(start).await
    }

    /// One of the test's own; ends when it is dropped.
    pub(crate) async fn dedicated(options: Options) -> Self {
        let source = Source::choose(|name| std::env::var_os(name), Some(stratum().to_owned()))
            .unwrap_or_else(|error| fail(&error));
        let tools = [Tool::Etcd, Tool::KubeApiserver, Tool::Kubectl, Tool::Etcdctl];
        let [etcd, kube_apiserver, kubectl, etcdctl] = source.provide(tools).await.unwrap_or_else(|error| fail(&error));
        let folder = options.data.map_or_else(Folder::temporary, Folder::kept);
        let settings = Settings {
            audit_policy: options.audit_policy,
            unsafe_no_fsync: true,
            api_server_arguments: options.api_server_arguments,
            etcd_arguments: options.etcd_arguments,
            ..Settings::new(&folder.path, [etcd, kube_apiserver], stratum())
        };
        let plane = DevPlane::start(&settings).await.unwrap_or_else(|error| fail(&error));
        let cluster = Self {
            plane,
            folder,
            kubectl,
            etcdctl,
        };
        cluster.bind().await;
        cluster
    }

    /// The kubeconfig file of an identity.
    pub(crate) fn kubeconfig(&self, identity: Identity) -> PathBuf {
        self.plane.layout().kubeconfig(identity)
    }

    /// A client that may do everything. One for each test: a client lives in the runtime that made it.
    pub(crate) async fn client(&self) -> kube::Client {
        self.client_as(Identity::Admin).await
    }

    /// A client that may do what an identity may.
    pub(crate) async fn client_as(&self, identity: Identity) -> kube::Client {
        let kubeconfig = kube::config::Kubeconfig::read_from(self.kubeconfig(identity)).unwrap();
        let config = kube::Config::from_custom_kubeconfig(kubeconfig, &Default::default())
            .await
            .unwrap();
        kube::Client::try_from(config).unwrap()
    }

    /// Runs kubectl as administrator and returns what it printed. Panics if it fails.
    pub(crate) async fn kubectl(&self, arguments: &[&str]) -> String {
        let finished = self.kubectl_as(Identity::Admin, arguments, "").await;
        let stderr = String::from_utf8_lossy(&finished.stderr);
        assert!(
            finished.exit.is_success(),
            "kubectl {arguments:?}: {}: {stderr}",
            finished.exit
        );
        String::from_utf8(finished.stdout).unwrap()
    }

    /// Runs kubectl in a namespace, otherwise as [`Cluster::kubectl`].
    pub(crate) async fn kubectl_in(&self, namespace: &str, arguments: &[&str]) -> String {
        self.kubectl(&[&["-n", namespace], arguments].concat()).await
    }

    /// Registers Nodes that are labelled as control plane.
    pub(crate) async fn register(&self, names: &[&str]) {
        let node = |name: &&str| {
            format!("apiVersion: v1\nkind: Node\nmetadata: {{name: {name}, labels: {{{CONTROL_PLANE_LABEL}: ''}}}}\n")
        };
        self.apply(&names.iter().map(node).collect::<Vec<_>>().join("---\n"))
            .await;
    }

    /// Runs kubectl with somebody's credential, feeding it `input`; a failure is the caller's to judge.
    pub(crate) async fn kubectl_as(&self, identity: Identity, arguments: &[&str], input: &str) -> Finished {
        self.kubectl_with(&self.kubeconfig(identity), arguments, input).await
    }

    /// Applies YAML as administrator. Panics if it fails.
    pub(crate) async fn apply(&self, yaml: &str) {
        let arguments = ["apply", "--server-side", "-f", "-"];
        let finished = self.kubectl_as(Identity::Admin, &arguments, yaml).await;
        assert!(
            finished.exit.is_success(),
            "{}",
            String::from_utf8_lossy(&finished.stderr)
        );
    }

    /// Runs etcdctl and returns what it printed. Panics if it fails.
    pub(crate) async fn etcdctl(&self, arguments: &[&str]) -> String {
        let [authority, certificate, key] = self.plane.etcd_client();
        let program = Program::new(&self.etcdctl)
            .arguments(["--endpoints", &self.plane.etcd_server()])
            .arguments([OsString::from("--cacert"), authority.into()])
            .arguments([OsString::from("--cert"), certificate.into(), "--key".into(), key.into()])
            .arguments(arguments.iter().copied());
        let finished = program.run(Vec::new()).await.unwrap();
        let stderr = String::from_utf8_lossy(&finished.stderr);
        assert!(
            finished.exit.is_success(),
            "etcdctl {arguments:?}: {}: {stderr}",
            finished.exit
        );
        String::from_utf8(finished.stdout).unwrap()
    }

    /// Makes a namespace nobody else uses and returns its name. The operator has the rights in it that it has in
    /// kube-system, so that a test may give it to an operator of its own for that.
    pub(crate) async fn namespace(&self, purpose: &str) -> String {
        static COUNTER: AtomicU32 = AtomicU32::new(0);
        let name = format!("{purpose}-{}", COUNTER.fetch_add(1, Ordering::Relaxed));
        let namespace = format!("apiVersion: v1\nkind: Namespace\nmetadata:\n  name: {name}\n");
        let system = "\n  namespace: kube-system\n";
        let rights = RBAC.split("\n---\n").filter(|document| document.contains(system));
        let rights = rights.map(|document| document.replace(system, &format!("\n  namespace: {name}\n")));
        let documents: Vec<String> = std::iter::once(namespace).chain(rights).collect();
        assert_eq!(documents.len(), 3, "a Role and its binding");
        self.apply(&documents.join("\n---\n")).await;
        name
    }

    /// Every finished event of the audit log so far, in the order in which requests were answered.
    pub(crate) fn audit_events(&self) -> Vec<serde_json::Value> {
        let text = fs::read_to_string(self.plane.audit_log()).unwrap();
        // The API server may be in the middle of writing the last line.
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        whole.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Runs an editing kubectl command as administrator, with a shell script as the editor; `$1` is the file. Panics if it
    /// fails.
    pub(crate) async fn kubectl_edit(&self, arguments: &[&str], script: &str) {
        let folder = tempfile::tempdir().unwrap();
        let editor = folder.path().join("editor");
        atomic_file::write(&editor, format!("{script}\n").as_bytes(), Access::Public).unwrap();
        let program = self
            .kubectl_program(&self.kubeconfig(Identity::Admin), arguments)
            .variable("PATH", "/usr/bin:/bin")
            .variable("KUBE_EDITOR", format!("sh {}", editor.display()));
        let finished = program.run(Vec::new()).await.unwrap();
        let stderr = String::from_utf8_lossy(&finished.stderr);
        assert!(
            finished.exit.is_success(),
            "kubectl {arguments:?}: {}: {stderr}",
            finished.exit
        );
    }

    fn kubectl_program(&self, kubeconfig: &Path, arguments: &[&str]) -> Program {
        Program::new(&self.kubectl)
            .arguments([OsString::from("--kubeconfig"), kubeconfig.into()])
            .arguments(arguments.iter().copied())
            // Its discovery cache, apart from the user's.
            .variable("KUBECACHEDIR", self.folder.path.join("kubectl-cache"))
            .dies_with_us(stratum())
    }

    async fn kubectl_with(&self, kubeconfig: &Path, arguments: &[&str], input: &str) -> Finished {
        let program = self.kubectl_program(kubeconfig, arguments);
        program.run(input.as_bytes().to_vec()).await.unwrap()
    }

    /// As `stratum dev` does it: with the bootstrap credential, which is written only for kubectl, and for a moment.
    async fn bind(&self) {
        let credential = self
            .plane
            .bootstrap_credential(clock::now())
            .unwrap_or_else(|error| fail(&error));
        let file = |name: &str| self.folder.path.join(name);
        let [authority, certificate, key, path] = ["b-ca.crt", "b.crt", "b.key", "b.conf"].map(file);
        atomic_file::write(&authority, self.plane.authority().as_bytes(), Access::Public).unwrap();
        atomic_file::write(&certificate, credential.certificate.as_bytes(), Access::Secret).unwrap();
        atomic_file::write(&key, credential.key.expose().as_bytes(), Access::Secret).unwrap();
        let kubeconfig = Kubeconfig {
            server: self.plane.server(),
            user: "bootstrap".to_owned(),
            certificate_authority: authority.clone(),
            client_certificate: certificate.clone(),
            client_key: key.clone(),
        };
        kubeconfig.write(&path).unwrap();
        let bootstrap = format!("{RBAC}\n---\n{IDENTITIES}");
        let finished = self
            .kubectl_with(&path, &["apply", "--server-side", "-f", "-"], &bootstrap)
            .await;
        assert!(
            finished.exit.is_success(),
            "{}",
            String::from_utf8_lossy(&finished.stderr)
        );
        for file in [authority, certificate, key, path] {
            atomic_file::remove(&file).unwrap();
        }
    }
}

struct Folder {
    path: PathBuf,
    is_temporary: bool,
}

impl Folder {
    fn kept(path: PathBuf) -> Self {
        Self {
            path,
            is_temporary: false,
        }
    }

    /// A folder below `target`, where those of dead test processes are swept first: a shared control plane is never
    /// dropped, and so removes nothing.
    fn temporary() -> Self {
        static COUNTER: AtomicU32 = AtomicU32::new(0);
        let parent = Path::new(env!("CARGO_TARGET_TMPDIR")).join("planes");
        fs::create_dir_all(&parent).unwrap();
        for entry in fs::read_dir(&parent).unwrap().flatten() {
            let lock = entry.path().join("run/stratum/node.lock");
            // One without a lock file may be being made at this moment.
            if lock.is_file() && matches!(Lock::attempt(&lock, "sweeping"), Ok(Attempt::Taken(_))) {
                let _ = fs::remove_dir_all(entry.path());
            }
        }
        let path = parent.join(format!(
            "{}-{}",
            std::process::id(),
            COUNTER.fetch_add(1, Ordering::Relaxed)
        ));
        fs::create_dir_all(&path).unwrap();
        Self {
            path,
            is_temporary: true,
        }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if self.is_temporary {
            // The killed processes may still write for a moment; what is left over goes with the next run.
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}

/// Panics with the whole chain of an error on one line.
fn fail(error: &dyn std::error::Error) -> ! {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text = format!("{text}: {error}");
        source = error.source();
    }
    panic!("{text}")
}
