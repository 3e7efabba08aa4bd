//! The cluster fence of a rotation, and what is asked under it: whether CAs are being replaced, and what kubeadm was told.

use std::io::Write;
use std::time::Duration;

use kube::Client;
use serde::Deserialize;

use super::error::Error;
use crate::controllers::cluster;
use crate::controllers::cluster_fence::{self, ClusterFence, FenceError, Lost};
use crate::controllers::concern::chain;
use crate::controllers::connection::{self, ClientSettings};
use crate::controllers::grants::guard::{Open, ROTATION_RECORD, STAGED_KEY, open_rotation};
use crate::controllers::operator::SYSTEM_NAMESPACE;
use crate::controllers::progress::tell;
use crate::host::certificates::{Machine, Origin};
use crate::host::host_name::host_name;
use crate::host::layout::Identity;
use crate::pki::name::AlternativeName;

/// How long one answer may take.
const ANSWER: Duration = Duration::from_secs(10);

/// How a rotation stands to the cluster.
pub(super) enum Fenced {
    /// It has the fence.
    Held { fence: ClusterFence, client: Client },
    /// It goes on without one.
    Skipped,
}

impl Fenced {
    /// Whether the next step may begin.
    ///
    /// # Errors
    /// When the fence was lost.
    pub(super) fn check(&self) -> Result<(), Lost> {
        match self {
            Self::Held { fence, .. } => fence.check(),
            Self::Skipped => Ok(()),
        }
    }

    /// A client of the cluster, if it is asked at all.
    pub(super) fn client(&self) -> Option<&Client> {
        match self {
            Self::Held { client, .. } => Some(client),
            Self::Skipped => None,
        }
    }

    /// Gives the fence back.
    pub(super) async fn release(self) {
        match self {
            Self::Held { fence, .. } => fence.release().await,
            Self::Skipped => {}
        }
    }
}

/// A client of this node's API server, with the rights of an administrator.
pub(super) async fn client(machine: &Machine) -> Result<Client, String> {
    let mut settings = ClientSettings::new(machine.layout.kubeconfig(Identity::Admin), "certs");
    settings.request_limit = ANSWER;
    connection::client(&settings, None).await.map_err(|error| chain(&error))
}

/// Takes the fence and looks whether CAs are being replaced.
///
/// # Errors
/// When another operation has it, they are, or nobody answers.
pub(super) async fn fence(
    machine: &Machine,
    operation: &'static str,
    progress: &mut (dyn Write + Send),
) -> Result<Fenced, Error> {
    let client = client(machine).await.map_err(|reason| Error::Silent { reason })?;
    let operation = cluster_fence::operation(operation, &node(machine));
    let fence = ClusterFence::acquire(
        client.clone(),
        &cluster_fence::Settings::on(&machine.layout),
        &operation,
        progress,
    )
    .await;
    let fence = fence.map_err(|error| match error {
        FenceError::Unanswered(error) => Error::Silent { reason: chain(&error) },
        error => Error::Fence(error),
    })?;
    let refusal = match open_rotation(&client, SYSTEM_NAMESPACE).await {
        Ok(None) => return Ok(Fenced::Held { fence, client }),
        Ok(Some(Open::Staged)) => Error::ClusterRotationOpen {
            object: format!("Secret {STAGED_KEY}"),
        },
        Ok(Some(Open::Recorded)) => Error::ClusterRotationOpen {
            object: format!("ConfigMap {ROTATION_RECORD}"),
        },
        Err(error) => Error::ClusterUnknown(error),
    };
    fence.release().await;
    Err(refusal)
}

/// Goes on without a fence, and says so.
pub(super) fn skip(reason: &str, progress: &mut dyn Write) -> Fenced {
    tell(progress, format_args!("the cluster fence is skipped: {reason}"));
    Fenced::Skipped
}

/// The node's name, as far as this machine knows it.
fn node(machine: &Machine) -> String {
    let named_by_host = || host_name().unwrap_or_default().trim().to_owned();
    machine.node_name().unwrap_or_else(named_by_host)
}

/// The names that kubeadm was told for the API server: `certSANs` and the host of `controlPlaneEndpoint` (kubeadm.k8s.io,
/// ClusterConfiguration). Empty on other nodes, and where it cannot be read: then the certificate that is there says it.
pub(super) async fn kubeadm_names(machine: &Machine, fenced: &Fenced) -> Vec<AlternativeName> {
    let (Origin::Kubeadm, Some(client)) = (&machine.origin, fenced.client()) else {
        return Vec::new();
    };
    let path = format!(
        "{}/kubeadm-config",
        cluster::collection_path("", "v1", "configmaps", Some(SYSTEM_NAMESPACE))
    );
    match cluster::fetch::<ConfigMap>(client, &path, "application/json").await {
        Ok(found) => names(&found.data.cluster_configuration),
        Err(error) => {
            tracing::warn!("what kubeadm was told is not known: {}", chain(&error));
            Vec::new()
        }
    }
}

#[derive(Deserialize)]
struct ConfigMap {
    #[serde(default)]
    data: Data,
}

#[derive(Default, Deserialize)]
struct Data {
    #[serde(default, rename = "ClusterConfiguration")]
    cluster_configuration: String,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ClusterConfiguration {
    api_server: ApiServer,
    control_plane_endpoint: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ApiServer {
    #[serde(rename = "certSANs")]
    names: Vec<String>,
}

fn names(text: &str) -> Vec<AlternativeName> {
    let told: ClusterConfiguration = serde_saphyr::from_str(text).unwrap_or_default();
    let endpoint = told.control_plane_endpoint;
    let host = match endpoint.rsplit_once(':') {
        // The last group of a bare IPv6 address is no port.
        Some((host, port)) if port.parse::<u16>().is_ok() && (!host.contains(':') || host.ends_with(']')) => host,
        Some(_) | None => endpoint.as_str(),
    };
    let all = told.api_server.names.iter().map(String::as_str).chain([host]);
    all.filter(|name| !name.is_empty()).map(AlternativeName::host).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_kubeadm_was_told_is_read() {
        let told = |text: &str| {
            names(text)
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
                .join(" ")
        };
        let text =
            "apiServer:\n  certSANs: [API.example., 10.0.0.9, 'fd00::9']\ncontrolPlaneEndpoint: '[fd00::1]:6443'\n";
        assert_eq!(told(text), "api.example 10.0.0.9 fd00::9 fd00::1");
        assert_eq!(told("controlPlaneEndpoint: vip.example:6443\n"), "vip.example");
        assert_eq!(told("controlPlaneEndpoint: fd00::6443\n"), "fd00::6443");
        assert_eq!(told("apiServer: {}\nkubernetesVersion: v1.37.2\n"), "");
        assert_eq!(told(""), "");
    }
}
