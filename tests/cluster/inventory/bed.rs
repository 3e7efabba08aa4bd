//! A system namespace with an inventory of its own, and instances of the operator that share it.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::api::ListParams;
use kube::{Api, Client};
use stratum::controllers::concern::{self, ConcernName, Observer, chain};
use stratum::controllers::inventory::store::Store;
use stratum::controllers::inventory::sync::{InventorySync, Standing};
use stratum::controllers::manifests::{Manifests, Settings};
use stratum::controllers::once;
use stratum::host::atomic_file::{self, Access};
use stratum::host::layout::Identity;
use stratum::reconcilers::manifests::report::Report;
use tempfile::TempDir;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::support::Cluster;

/// The inventory's ConfigMap.
pub(crate) const NAME: &str = "stratum-addon-inventory";

pub(crate) struct Bed<'a> {
    pub(crate) cluster: &'a Cluster,
    pub(crate) namespace: String,
    admin: Client,
    operator: Client,
    deployer: Client,
}

impl<'a> Bed<'a> {
    pub(crate) async fn new(cluster: &'a Cluster, purpose: &str) -> Self {
        Self {
            cluster,
            namespace: cluster.namespace(purpose).await,
            admin: cluster.client().await,
            operator: cluster.client_as(Identity::Operator).await,
            deployer: cluster.client_as(Identity::Deployer).await,
        }
    }

    pub(crate) async fn kubectl(&self, arguments: &[&str]) -> String {
        self.cluster.kubectl_in(&self.namespace, arguments).await
    }

    /// Creates ConfigMaps as stack `s` would have them, and returns their UIDs by name.
    pub(crate) async fn objects(&self, names: &[&str]) -> BTreeMap<String, String> {
        let items: Vec<String> = names
            .iter()
            .map(|name| {
                format!(
                    "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}, namespace: {}, labels: {{stratum.ciq.com/stack: s}}}}\n",
                    self.namespace
                )
            })
            .collect();
        self.cluster.apply(&items.join("---\n")).await;
        self.uids().await
    }

    /// Puts texts under keys of the inventory's ConfigMap, as a person with 'kubectl apply' does: keys that were put
    /// before and are not named go, and those of others stay.
    pub(crate) async fn put(&self, data: &[(&str, &str)]) {
        let data: BTreeMap<&str, &str> = data.iter().copied().collect();
        let config_map = serde_json::json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": NAME, "namespace": self.namespace}, "data": data,
        });
        let path = format!(
            "/api/v1/namespaces/{}/configmaps/{NAME}?fieldManager=hand&force=true",
            self.namespace
        );
        let request = http::Request::patch(path)
            .header("content-type", "application/apply-patch+yaml")
            .body(config_map.to_string().into_bytes())
            .unwrap();
        self.admin.request_text(request).await.unwrap();
    }

    /// The inventory's ConfigMap; null when there is none.
    pub(crate) async fn config_map(&self) -> serde_json::Value {
        let found = self.config_maps().get_opt(NAME).await.unwrap();
        serde_json::to_value(found).unwrap()
    }

    fn config_maps(&self) -> Api<ConfigMap> {
        Api::namespaced(self.admin.clone(), &self.namespace)
    }

    /// The text under a key of it.
    pub(crate) async fn text(&self, key: &str) -> String {
        self.config_map().await["data"][key]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    }

    /// The inventory document; null when there is none.
    pub(crate) async fn document(&self) -> serde_json::Value {
        serde_json::from_str(&self.text("inventory").await).unwrap_or_default()
    }

    /// The ConfigMaps of the namespace but the inventory, by name with their UIDs.
    pub(crate) async fn uids(&self) -> BTreeMap<String, String> {
        let found = self.config_maps().list(&ListParams::default()).await.unwrap();
        found
            .into_iter()
            .map(|found| (found.metadata.name.unwrap(), found.metadata.uid.unwrap()))
            .filter(|(name, _)| !["kube-root-ca.crt", NAME].contains(&name.as_str()))
            .collect()
    }

    pub(crate) async fn names(&self) -> Vec<String> {
        self.uids().await.into_keys().collect()
    }

    pub(crate) fn store(&self) -> Store {
        Store::new(self.admin.clone(), &self.namespace)
    }

    /// One ConfigMap as a file declares it.
    pub(crate) fn declared(&self, name: &str) -> String {
        format!(
            "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {name}\n  namespace: {}\ndata: {{key: '1'}}\n",
            self.namespace
        )
    }

    pub(crate) fn instance(&'a self, node: &'a str) -> Instance<'a> {
        let folders = tempfile::tempdir().unwrap();
        fs::create_dir(folders.path().join("manifests")).unwrap();
        Instance {
            bed: self,
            node,
            folders,
        }
    }
}

/// One controller: a node's name and its manifests folder.
pub(crate) struct Instance<'a> {
    bed: &'a Bed<'a>,
    node: &'a str,
    folders: TempDir,
}

impl Instance<'_> {
    fn manifests(&self) -> PathBuf {
        self.folders.path().join("manifests")
    }

    pub(crate) fn write(&self, path: &str, text: &str) {
        let path = self.manifests().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        atomic_file::write(&path, text.as_bytes(), Access::Public).unwrap();
    }

    /// The files that are, or were, the local record.
    pub(crate) fn local_files(&self) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(self.manifests())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| name.starts_with(".applied"))
            .collect();
        names.sort();
        names
    }

    /// One complete pass over the manifests, as a new process makes it.
    pub(crate) async fn pass(&self) -> Report {
        let settings = Settings {
            node: self.node.to_owned(),
            folder: self.manifests(),
            state: self.folders.path().join("state"),
            system_namespace: self.bed.namespace.clone(),
            resync: Duration::from_secs(300),
            max_share: None,
            term: Some(1),
        };
        let manifests = Manifests::new(settings, self.bed.deployer.clone(), self.bed.operator.clone()).0;
        once::complete_pass(&manifests).await.unwrap()
    }

    fn inventory_sync(&self) -> (InventorySync, watch::Receiver<Standing>) {
        InventorySync::new(
            self.bed.operator.clone(),
            &self.bed.namespace,
            self.node,
            self.manifests(),
        )
    }

    /// One pass of the inventory sync: where the migration stands then, or why it failed.
    pub(crate) async fn sync(&self) -> Result<Standing, String> {
        let (sync, standing) = self.inventory_sync();
        match concern::pass(&sync, Arc::new(Namespace::default())).await {
            Ok(_) => Ok(standing.borrow().clone()),
            Err(error) => Err(chain(&error)),
        }
    }

    /// The inventory sync as the operator runs it, until the value is dropped.
    pub(crate) fn running(&self) -> Running {
        let (sync, standing) = self.inventory_sync();
        let stop = CancellationToken::new();
        tokio::spawn(concern::run(Arc::new(sync), Arc::new(Nobody), stop.clone()));
        Running {
            standing,
            _stop: stop.drop_guard(),
        }
    }
}

pub(crate) struct Running {
    pub(crate) standing: watch::Receiver<Standing>,
    _stop: tokio_util::sync::DropGuard,
}

struct Nobody;

impl Observer for Nobody {
    fn watch_ready(&self, _: ConcernName) {}
    fn watch_failed(&self, _: ConcernName) {}
    fn reconciled(&self, _: ConcernName, _: Duration, _: Option<&'static str>) {}
}
