//! How workloads and joiners reach the API server: the kubeconfig in ConfigMap `kube-public/cluster-info`, and where each
//! API server listens.

use std::collections::BTreeSet;
use std::net::IpAddr;

use k8s_openapi::List;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::Client;
use serde_json::Value;

use super::cluster::{self, CallError, CallErrorKind};
use crate::reconcilers::host_name::Host;

const PATH: &str = "/api/v1/namespaces/kube-public/configmaps/cluster-info";

/// Host and port of its server URL; none when it is not there or names none.
///
/// # Errors
/// When the API server refuses for another reason than absence, or does not answer.
pub async fn server(client: &Client) -> Result<Option<(Host, u16)>, CallError> {
    let config_map: Value = match cluster::fetch(client, PATH, "application/json").await {
        Ok(found) => found,
        Err(error) if error.kind() == CallErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let kubeconfig = config_map["data"]["kubeconfig"].as_str().unwrap_or_default();
    let kubeconfig: Option<Value> = serde_saphyr::from_str(kubeconfig).ok();
    let server = kubeconfig
        .as_ref()
        .and_then(|kubeconfig| kubeconfig["clusters"][0]["cluster"]["server"].as_str());
    Ok(server.and_then(|server| {
        let uri: http::Uri = server.parse().ok()?;
        Some((Host::new(uri.host()?).ok()?, uri.port_u16().unwrap_or(443)))
    }))
}

/// Where API servers listen: the EndpointSlices of Service `default/kubernetes`, which they keep themselves.
///
/// # Errors
/// When the API server refuses or does not answer.
pub async fn api_servers(client: &Client) -> Result<BTreeSet<IpAddr>, CallError> {
    let slices = cluster::collection_path("discovery.k8s.io", "v1", "endpointslices", Some("default"));
    let slices = format!("{slices}?labelSelector=kubernetes.io%2Fservice-name%3Dkubernetes");
    let slices = cluster::fetch::<List<EndpointSlice>>(client, &slices, "application/json").await?;
    Ok(slices
        .items
        .into_iter()
        .flat_map(|slice| slice.endpoints.unwrap_or_default())
        .flat_map(|endpoint| endpoint.addresses)
        .filter_map(|address| match Host::compared(&address) {
            Ok(Host::Address(address)) => Some(address),
            Ok(Host::Name(_)) | Err(_) => None,
        })
        .collect())
}
