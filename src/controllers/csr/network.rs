//! The cluster's own addresses, as the API server tells them.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::List;
use k8s_openapi::api::networking::v1::ServiceCIDR;
use kube::Client;
use tokio::sync::Mutex;

use crate::controllers::cluster::{self, CallError};
use crate::controllers::cluster_info;
use crate::controllers::concern::chain;
use crate::controllers::inventory::store::{Store, StoreError};
use crate::host::clock;
use crate::reconcilers::csr::network::Network;
use crate::reconcilers::host_name::DnsName;

/// How long what was read is believed. What comes new (a controller that joins) is in no node's record before.
const BELIEVED: Duration = Duration::from_secs(30);
/// How long a failure is told before it is tried again.
const FAILED: Duration = Duration::from_secs(2);
/// The DNS domain of a cluster for which none is recorded.
const DOMAIN: &str = "cluster.local";

/// Why the cluster's own addresses are not known.
#[derive(Debug, thiserror::Error)]
enum NetworkError {
    #[error(transparent)]
    Call(#[from] CallError),
    #[error("ServiceCIDR {0:?} is no range of addresses")]
    Range(String, #[source] ipnet::AddrParseError),
    #[error("no ServiceCIDR is there")]
    NoRange,
}

/// Reads the cluster's own addresses, seldom.
pub struct Networks {
    client: Client,
    store: Store,
    known: Mutex<Option<(Duration, Answer)>>,
}

/// What is known, or why nothing is.
pub type Answer = Result<Arc<Network>, Arc<str>>;

impl Networks {
    /// Nothing is read yet. The cluster's domain is in the inventory of `namespace`.
    #[must_use]
    pub fn new(client: Client, namespace: &str) -> Self {
        Self {
            store: Store::new(client.clone(), namespace),
            client,
            known: Mutex::default(),
        }
    }

    /// What is known now; one caller asks for all.
    pub async fn get(&self) -> Answer {
        let mut known = self.known.lock().await;
        let now = clock::since_boot();
        if let Some((until, answer)) = &*known
            && now < *until
        {
            return answer.clone();
        }
        let answer = match self.read().await {
            Ok(network) => Ok(Arc::new(network)),
            Err(error) => Err(chain(&error).into()),
        };
        let lasts = if answer.is_ok() { BELIEVED } else { FAILED };
        *known = Some((clock::since_boot() + lasts, answer.clone()));
        answer
    }

    async fn read(&self) -> Result<Network, NetworkError> {
        let ranges = cluster::collection_path("networking.k8s.io", "v1", "servicecidrs", None);
        let (ranges, api_servers, server, stored) = futures::join!(
            cluster::fetch::<List<ServiceCIDR>>(&self.client, &ranges, "application/json"),
            cluster_info::api_servers(&self.client),
            cluster_info::server(&self.client),
            self.store.load(),
        );
        let mut services = Vec::new();
        for range in ranges?
            .items
            .into_iter()
            .filter_map(|object| object.spec)
            .flat_map(|spec| spec.cidrs.unwrap_or_default())
        {
            let read = range.parse();
            services.push(read.map_err(|source| NetworkError::Range(range, source))?);
        }
        if services.is_empty() {
            return Err(NetworkError::NoRange);
        }
        let domain = match stored {
            Ok(stored) => {
                let inputs = stored.documents.cluster_inputs;
                DnsName::new(inputs.as_ref().map_or(DOMAIN, |inputs| &inputs.cluster_domain)).ok()
            }
            Err(StoreError::Call(error)) => return Err(error.into()),
            // Somebody broke another key by hand; kubelets do not wait for its repair.
            Err(_) => None,
        };
        Ok(Network {
            services,
            api_servers: api_servers?,
            shared: server?.map(|(host, _)| host),
            domain,
        })
    }
}
