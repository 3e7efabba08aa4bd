//! `stratum dev`: a control plane on loopback with the operator in it, for trying things out.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use kube::Client;
use tokio_util::sync::CancellationToken;

use super::exit::Exit;
use super::{printer, report};
use crate::controllers::admin::AdminSettings;
use crate::controllers::bootstrap::{self, Facts};
use crate::controllers::concern;
use crate::controllers::concerns;
use crate::controllers::connection::{self, ClientSettings};
use crate::controllers::inventory::staging;
use crate::controllers::inventory::store::Store;
use crate::controllers::inventory::sync::InventorySync;
use crate::controllers::machine::bundles;
use crate::controllers::manifests::{Manifests, Settings};
use crate::controllers::once;
use crate::controllers::operator::{self, RESYNC, SYSTEM_NAMESPACE};
use crate::controllers::shutdown::Signals;
use crate::controllers::telemetry::{self, LogFilter, LogFormat};
use crate::host::assets::{Source, Tool};
use crate::host::atomic_file::{self, Access};
use crate::host::clock;
use crate::host::dev_plane::{self, DevPlane};
use crate::host::layout::Identity;
use crate::reconcilers::inventory::desired::ClusterInputs;

/// The node's name; nothing runs on it, it is there to be counted.
const NODE: &str = "dev";
/// The stacks the manifests folder is seeded with.
const SEEDS: [bundles::File; 3] = [
    bundles::COREDNS,
    bundles::DEPARTED_NODES,
    ("hello/hello.yaml", include_str!("../../deploy/stacks/hello/hello.yaml")),
];

/// The flags of `stratum dev`.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// Where everything is kept; without it, a temporary folder that goes when the command ends
    #[arg(long, value_name = "FOLDER", env = "STRATUM_DEV_DATA_DIR")]
    data_dir: Option<PathBuf>,
    /// Make one complete pass, print what it did, and end: 0 when everything was applied, 1 when anything was refused
    #[arg(long)]
    once: bool,
}

/// Runs the command.
pub(super) async fn run(arguments: Arguments) -> anyhow::Result<Exit> {
    let trampoline = std::env::current_exe().context("cannot tell which executable this is")?;
    let source = Source::choose(|name| std::env::var_os(name), Some(trampoline.clone()))?;
    let binaries = source.provide([Tool::Etcd, Tool::KubeApiserver]).await?;
    let temporary = arguments.data_dir.is_none();
    let data = match arguments.data_dir {
        Some(folder) => folder,
        None => std::env::temp_dir().join(format!("stratum-dev-{}", std::process::id())),
    };
    atomic_file::create_folder(&data, Access::Secret)?;
    let data = data
        .canonicalize()
        .with_context(|| format!("cannot find {} again", data.display()))?;
    let mut plane = DevPlane::start(&dev_plane::Settings::new(&data, binaries, trampoline)).await?;
    let result = with_plane(&mut plane, arguments.once).await;
    plane.stop(Duration::from_secs(20)).await?;
    if temporary {
        std::fs::remove_dir_all(&data).with_context(|| format!("cannot remove {}", data.display()))?;
    }
    result
}

async fn with_plane(plane: &mut DevPlane, once: bool) -> anyhow::Result<Exit> {
    let layout = plane.layout().clone();
    let folder = layout.manifests();
    prepare(plane).await?;
    seed(&folder)?;
    let deployer = connection::client(
        &ClientSettings::new(layout.kubeconfig(Identity::Deployer), "deployer"),
        None,
    )
    .await?;
    let own = connection::client(
        &ClientSettings::new(layout.kubeconfig(Identity::Operator), "operator"),
        None,
    )
    .await?;
    let inputs = ClusterInputs {
        cluster_dns: [10, 96, 0, 10].into(),
        cluster_domain: "cluster.local".to_owned(),
        dual_stack: false,
        storage_default: false,
    };
    staging::record_cluster_inputs(&Store::new(own.clone(), SYSTEM_NAMESPACE), &inputs).await?;
    if !once {
        return operate(plane).await;
    }
    sync(&own, &folder).await?;
    let settings = Settings {
        node: NODE.to_owned(),
        folder,
        state: layout.state(),
        system_namespace: SYSTEM_NAMESPACE.to_owned(),
        resync: RESYNC,
        max_share: None,
        term: None,
    };
    let (manifests, _) = Manifests::new(settings, deployer, own);
    let whole = once::complete_pass(&manifests).await?;
    printer::stdout(&report::table(&whole))?;
    Ok(if whole.is_complete() { Exit::Done } else { Exit::Failed })
}

/// The operator in this process, until it is stopped or a process of the control plane ends.
async fn operate(plane: &mut DevPlane) -> anyhow::Result<Exit> {
    let layout = plane.layout().clone();
    let settings = operator::Settings {
        kubeconfig: layout.kubeconfig(Identity::Operator),
        deployer_kubeconfig: layout.kubeconfig(Identity::Deployer),
        node: NODE.to_owned(),
        manifests: layout.manifests(),
        state: layout.state(),
        machine: layout.clone(),
        admin: AdminSettings {
            listen: (Ipv4Addr::LOCALHOST, 0).into(),
            tls: None,
        },
        resync: RESYNC,
        prune_max_share: None,
        drain: Duration::from_secs(10),
        system_namespace: SYSTEM_NAMESPACE.to_owned(),
    };
    let drain = settings.drain;
    let log = telemetry::install(LogFormat::Text, &LogFilter::default())?;
    let signals = Signals::take_over()?;
    let bound = operator::Operator::bind(settings, Some(log)).await?;
    printer::stdout(&format!(
        "kubeconfig  {}\nmanifests   {}\nmetrics     http://{}/metrics\nEdit the manifests and watch; Ctrl-C ends everything.\n",
        layout.kubeconfig(Identity::Admin).display(),
        layout.manifests().display(),
        bound.address(),
    ))?;
    let stop = CancellationToken::new();
    let work = bound.run(concerns::all(), stop.clone());
    let ended = tokio::select! {
        ended = signals.supervise(work, &stop, drain) => ended,
        failure = plane.failure() => return Err(failure.into()),
    };
    super::operator::exit_of(ended)
}

/// Prepares the cluster for the operator, with a certificate that only exists here.
async fn prepare(plane: &DevPlane) -> anyhow::Result<()> {
    let credential = plane.bootstrap_credential(clock::now())?;
    let authority = plane.authority();
    let client = bootstrap::client(&plane.server(), &authority, &credential).await?;
    let facts = Facts {
        node: Some(NODE.to_owned()),
        server: plane.server(),
        certificate_authority: authority,
    };
    bootstrap::prepare(&client, &facts).await?;
    Ok(())
}

/// Seeds a manifests folder that does not exist yet. One that does is the user's.
fn seed(folder: &Path) -> anyhow::Result<()> {
    if folder.exists() {
        return Ok(());
    }
    for (path, text) in SEEDS {
        let path = folder.join(path);
        let Some(parent) = path.parent() else {
            bail!("{} has no folder", path.display());
        };
        atomic_file::create_folder(parent, Access::Public)?;
        atomic_file::write(&path, text.as_bytes(), Access::Public)?;
    }
    Ok(())
}

/// Publishes this node's record, so that the migration closes and pruning is on.
async fn sync(client: &Client, folder: &Path) -> anyhow::Result<()> {
    let (sync, _) = InventorySync::new(client.clone(), SYSTEM_NAMESPACE, NODE, folder.to_owned());
    let namespace = kube::Api::<k8s_openapi::api::core::v1::Namespace>::all(client.clone())
        .get(SYSTEM_NAMESPACE)
        .await?;
    concern::pass(&sync, Arc::new(namespace)).await?;
    Ok(())
}
