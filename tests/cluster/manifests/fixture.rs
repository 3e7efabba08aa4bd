//! A manifests folder, a namespace of its own on the shared API server, and passes over them.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use stratum::controllers::inventory::store::Store;
use stratum::controllers::manifests::{Manifests, Settings};
use stratum::controllers::once;
use stratum::host::clock;
use stratum::host::layout::Identity;
use stratum::reconcilers::inventory::migration::{LocalRecord, Observed, decide};
use stratum::reconcilers::manifests::report::Report;
use tempfile::TempDir;

use crate::support::Cluster;

/// One ConfigMap; the namespace is filled in when it is written.
pub(crate) fn config_map(name: &str, value: &str) -> String {
    format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {name}\n  namespace: NAMESPACE\ndata:\n  key: \"{value}\"\n"
    )
}

/// Several ConfigMaps in one file.
pub(crate) fn config_maps(names: &[&str]) -> String {
    let documents: Vec<String> = names.iter().map(|name| config_map(name, "1")).collect();
    documents.join("---\n")
}

pub(crate) struct Fixture {
    cluster: &'static Cluster,
    namespace: String,
    folders: TempDir,
    manifests: Manifests,
    resync: Duration,
    max_share: Option<f64>,
}

impl Fixture {
    pub(crate) async fn new(purpose: &str) -> Self {
        Self::with(purpose, Duration::from_secs(300), None).await
    }

    pub(crate) async fn with_resync(purpose: &str, resync: Duration) -> Self {
        Self::with(purpose, resync, None).await
    }

    pub(crate) async fn with_brake(purpose: &str, max_share: f64) -> Self {
        Self::with(purpose, Duration::from_secs(300), Some(max_share)).await
    }

    /// The namespace is also the operator's system namespace: its inventory is its own.
    async fn with(purpose: &str, resync: Duration, max_share: Option<f64>) -> Self {
        let cluster = Cluster::shared().await;
        let namespace = cluster.namespace(purpose).await;
        let folders = tempfile::tempdir().unwrap();
        fs::create_dir(folders.path().join("manifests")).unwrap();
        let settings = settings(&folders, &namespace, resync, max_share);
        let deployer = cluster.client_as(Identity::Deployer).await;
        let operator = cluster.client_as(Identity::Operator).await;
        let manifests = Manifests::new(settings, deployer, operator).0;
        let fixture = Self {
            cluster,
            namespace,
            folders,
            manifests,
            resync,
            max_share,
        };
        fixture.close_migration().await;
        fixture
    }

    /// As the inventory sync does it on a cluster whose only control-plane Node is this one.
    async fn close_migration(&self) {
        self.store()
            .await
            .commit(None, None, |documents| {
                let observed = Observed {
                    inventory: documents.inventory.clone(),
                    control_plane: ["node".to_owned()].into(),
                    node: "node".to_owned(),
                    local: LocalRecord::Absent,
                };
                decide(&observed, clock::now()).carry_out("node", &mut documents.inventory);
                Ok(())
            })
            .await
            .unwrap();
    }

    pub(crate) async fn store(&self) -> Store {
        Store::new(self.cluster.client().await, &self.namespace)
    }

    /// The same folder under another process: nothing is remembered but what is on disk and in the cluster.
    pub(crate) fn restarted(&self) -> Restarted<'_> {
        Restarted(self)
    }

    pub(crate) fn cluster(&self) -> &'static Cluster {
        self.cluster
    }

    pub(crate) fn namespace(&self) -> &str {
        &self.namespace
    }

    pub(crate) fn path(&self, path: &str) -> PathBuf {
        self.folders.path().join("manifests").join(path)
    }

    /// Writes a file by rename, as a careful editor does.
    pub(crate) fn write(&self, path: &str, text: &str) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let temporary = path.with_extension("tmp");
        let text = text.replace("NAMESPACE", &self.namespace);
        fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .open(&temporary)
            .and_then(|mut file| std::io::Write::write_all(&mut file, text.as_bytes()))
            .unwrap();
        fs::rename(temporary, path).unwrap();
    }

    pub(crate) fn remove(&self, path: &str) {
        let path = self.path(path);
        if path.is_dir() {
            fs::remove_dir_all(path).unwrap();
        } else {
            fs::remove_file(path).unwrap();
        }
    }

    pub(crate) fn rename(&self, from: &str, to: &str) {
        let to = self.path(to);
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::rename(self.path(from), to).unwrap();
    }

    /// One complete pass.
    pub(crate) async fn pass(&self) -> Report {
        once::complete_pass(&self.manifests).await.unwrap()
    }

    /// One pass that fails as a whole.
    pub(crate) async fn failing_pass(&self) -> String {
        let error = once::complete_pass(&self.manifests).await.unwrap_err();
        stratum::controllers::concern::chain(&error)
    }

    /// What a person would see of the next pass.
    pub(crate) async fn preview(&self, client: kube::Client) -> stratum::controllers::manifests::preview::Preview {
        let settings = settings(&self.folders, &self.namespace, self.resync, self.max_share);
        Manifests::new(settings, client.clone(), client)
            .0
            .preview()
            .await
            .unwrap()
    }

    pub(crate) async fn kubectl(&self, arguments: &[&str]) -> String {
        let arguments: Vec<&str> = ["-n", &self.namespace]
            .into_iter()
            .chain(arguments.iter().copied())
            .collect();
        self.cluster.kubectl(&arguments).await
    }

    /// The ConfigMaps of the namespace that a test made, by name with their UIDs.
    pub(crate) async fn uids(&self) -> BTreeMap<String, String> {
        let format = r#"jsonpath={range .items[*]}{.metadata.name} {.metadata.uid}{"\n"}{end}"#;
        let found = self.kubectl(&["get", "configmaps", "-o", format]).await;
        found
            .lines()
            .filter_map(|line| line.split_once(' '))
            .filter(|(name, _)| *name != "kube-root-ca.crt" && *name != "stratum-addon-inventory")
            .map(|(name, uid)| (name.to_owned(), uid.to_owned()))
            .collect()
    }

    pub(crate) async fn names(&self) -> Vec<String> {
        self.uids().await.into_keys().collect()
    }

    pub(crate) async fn labelled(&self, stack: &str) -> Vec<String> {
        let selector = format!("stratum.ciq.com/stack={stack}");
        let found = self
            .kubectl(&["get", "configmaps", "-l", &selector, "-o", "name"])
            .await;
        let mut names: Vec<String> = found
            .lines()
            .map(|name| name.trim_start_matches("configmap/").to_owned())
            .collect();
        names.sort();
        names
    }
}

/// A [`Fixture`] in the eyes of a new process.
pub(crate) struct Restarted<'a>(&'a Fixture);

impl Restarted<'_> {
    pub(crate) async fn pass(&self) -> Report {
        let Fixture {
            cluster,
            namespace,
            folders,
            resync,
            max_share,
            ..
        } = self.0;
        let settings = settings(folders, namespace, *resync, *max_share);
        let deployer = cluster.client_as(Identity::Deployer).await;
        let operator = cluster.client_as(Identity::Operator).await;
        let manifests = Manifests::new(settings, deployer, operator).0;
        once::complete_pass(&manifests).await.unwrap()
    }
}

fn settings(folders: &TempDir, namespace: &str, resync: Duration, max_share: Option<f64>) -> Settings {
    Settings {
        node: "node".to_owned(),
        folder: folders.path().join("manifests"),
        state: folders.path().join("state"),
        system_namespace: namespace.to_owned(),
        resync,
        max_share,
        term: None,
    }
}
