//! A manifests folder, a namespace of its own on an API server (the shared one, if a test does not break it), and passes
//! over them.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use stratum::controllers::connection::{self, ClientSettings};
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

pub(crate) struct Fixture<'c> {
    cluster: &'c Cluster,
    client: kube::Client,
    namespace: String,
    folders: TempDir,
    manifests: Manifests,
    resync: Duration,
    max_share: Option<f64>,
}

/// A folder that has been the same for longer than this is believed.
const SETTLED: Duration = Duration::from_millis(1050);
/// Between two comparisons with the cluster, unless a test is about them.
const RESYNC: Duration = Duration::from_secs(300);

impl Fixture<'static> {
    pub(crate) async fn new(purpose: &str) -> Self {
        Self::with(Cluster::shared().await, purpose, RESYNC, None).await
    }

    pub(crate) async fn with_resync(purpose: &str, resync: Duration) -> Self {
        Self::with(Cluster::shared().await, purpose, resync, None).await
    }

    pub(crate) async fn with_brake(purpose: &str, max_share: f64) -> Self {
        Self::with(Cluster::shared().await, purpose, RESYNC, Some(max_share)).await
    }
}

impl<'c> Fixture<'c> {
    /// On a control plane of the test's own.
    pub(crate) async fn on(cluster: &'c Cluster, purpose: &str) -> Self {
        Self::with(cluster, purpose, RESYNC, None).await
    }

    /// On a control plane of the test's own, comparing with it again after so long.
    pub(crate) async fn on_with_resync(cluster: &'c Cluster, purpose: &str, resync: Duration) -> Self {
        Self::with(cluster, purpose, resync, None).await
    }

    /// The namespace is also the operator's system namespace: its inventory is its own.
    async fn with(cluster: &'c Cluster, purpose: &str, resync: Duration, max_share: Option<f64>) -> Self {
        let namespace = cluster.namespace(purpose).await;
        let folders = tempfile::tempdir().unwrap();
        fs::create_dir(folders.path().join("manifests")).unwrap();
        let settings = settings(&folders, &namespace, resync, max_share);
        let deployer = client(cluster, Identity::Deployer).await;
        let operator = client(cluster, Identity::Operator).await;
        let manifests = Manifests::new(settings, deployer, operator).0;
        let client = client(cluster, Identity::Admin).await;
        let fixture = Self {
            cluster,
            client,
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
    pub(crate) fn restarted(&self) -> Restarted<'_, 'c> {
        Restarted(self)
    }

    pub(crate) fn cluster(&self) -> &'c Cluster {
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
        self.write_in_place(&temporary, text);
        fs::rename(temporary, path).unwrap();
    }

    /// Empties a file and writes it anew, as a shell's `>` does.
    pub(crate) fn write_in_place(&self, path: &Path, text: &str) {
        let text = self.text(text);
        fs::File::create(self.path("").join(path))
            .and_then(|mut file| file.write_all(text.as_bytes()))
            .unwrap();
    }

    /// Writes on at the end of a file.
    pub(crate) fn append(&self, path: &str, text: &str) {
        let text = self.text(text);
        fs::OpenOptions::new()
            .append(true)
            .open(self.path(path))
            .and_then(|mut file| file.write_all(text.as_bytes()))
            .unwrap();
    }

    /// A text as it is written: with the fixture's namespace in it.
    pub(crate) fn text(&self, text: &str) -> String {
        text.replace("NAMESPACE", &self.namespace)
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

    /// One look, and what follows from it: nothing is looked at a second time, so nothing can be pruned that this fixture
    /// has not seen missing before.
    pub(crate) async fn glance(&self) -> Report {
        self.manifests.pass_and_report().await.unwrap().1
    }

    /// A pass at a moment when the folder has been the same for a second: what is missing now is believed to be gone.
    pub(crate) async fn settled_pass(&self) -> Report {
        self.glance().await;
        clock::sleep(SETTLED).await;
        self.glance().await
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
        self.cluster.kubectl_in(&self.namespace, arguments).await
    }

    /// The ConfigMaps of the namespace that a test made, by name with their UIDs.
    pub(crate) async fn uids(&self) -> BTreeMap<String, String> {
        let api: kube::Api<ConfigMap> = kube::Api::namespaced(self.client.clone(), &self.namespace);
        let found = api.list_metadata(&Default::default()).await.unwrap();
        found
            .items
            .into_iter()
            .map(|item| (item.metadata.name.unwrap(), item.metadata.uid.unwrap()))
            .filter(|(name, _)| *name != "kube-root-ca.crt" && *name != "stratum-addon-inventory")
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
pub(crate) struct Restarted<'a, 'c>(&'a Fixture<'c>);

impl Restarted<'_, '_> {
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
        let deployer = client(cluster, Identity::Deployer).await;
        let operator = client(cluster, Identity::Operator).await;
        let manifests = Manifests::new(settings, deployer, operator).0;
        once::complete_pass(&manifests).await.unwrap()
    }
}

/// As the operator's own: nothing is retried in a call.
async fn client(cluster: &Cluster, identity: Identity) -> kube::Client {
    let settings = ClientSettings::new(cluster.kubeconfig(identity), "manifests");
    connection::client(&settings, None).await.unwrap()
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
