//! Bursts of requests: made beforehand, sent in the names of who would send them, and their approvals seen on a watch.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use futures::{StreamExt, TryStreamExt, stream};
use http::Method;
use serde_json::{Value, json};
use stratum::host::clock;
use tokio::sync::oneshot;

use crate::bed::Bed;
use crate::harness::api::{Api, Call, IN_FLIGHT};
use crate::harness::audit::LOADER;
use crate::measure::{median, percentile_99};
use crate::table::seconds;

pub(super) const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
/// A burst that is not through by then has failed.
pub(super) const LONGEST: Duration = Duration::from_secs(180);
/// The group of the one token with which all new nodes join.
pub(super) const JOINERS: &str = "system:bootstrappers:kubeadm:default-node-token";

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Signer {
    /// Serving certificates of nodes that are registered. Forged: another node's address.
    Serving,
    /// First client certificates of nodes that join. Forged: the name of a node that is registered.
    Client,
}

impl Signer {
    fn name(self) -> &'static str {
        match self {
            Self::Serving => "kubernetes.io/kubelet-serving",
            Self::Client => "kubernetes.io/kube-apiserver-client-kubelet",
        }
    }
}

pub(super) fn node(number: usize) -> String {
    format!("node-{number:05}")
}

pub(super) fn address(number: usize) -> String {
    format!("10.{}.{}.1", number / 250, number % 250)
}

/// Requests. One that is to be approved has a name beginning with `good`.
pub(super) struct Burst {
    pub(super) signer: Signer,
    calls: Vec<(String, Call)>,
    pub(super) good: usize,
    pub(super) forged: usize,
}

impl Burst {
    pub(super) fn make(signer: Signer, good: usize) -> Result<Self> {
        let forged = good / 10;
        let maker = Maker {
            key: rcgen::KeyPair::generate()?,
            signer,
        };
        let mut calls = Vec::with_capacity(good + forged);
        for number in 0..good {
            // Among the others, as an attacker would.
            if number % 10 == 9 {
                calls.push(maker.forged(number / 10, good)?);
            }
            calls.push(maker.good(number)?);
        }
        Ok(Self {
            signer,
            calls,
            good,
            forged,
        })
    }

    /// The names that new nodes claim with it.
    pub(super) fn claims(&self) -> Vec<String> {
        match self.signer {
            Signer::Serving => Vec::new(),
            Signer::Client => (0..self.good).map(joining).collect(),
        }
    }
}

fn joining(number: usize) -> String {
    format!("new-{number:05}")
}

struct Maker {
    key: rcgen::KeyPair,
    signer: Signer,
}

impl Maker {
    fn good(&self, number: usize) -> Result<(String, Call)> {
        let request = format!("good-{number:05}");
        match self.signer {
            Signer::Serving => self.request(request, &node(number), Some(address(number))),
            Signer::Client => self.request(request, &joining(number), None),
        }
    }

    fn forged(&self, number: usize, nodes: usize) -> Result<(String, Call)> {
        let request = format!("forged-{number:05}");
        match self.signer {
            Signer::Serving => self.request(request, &node(number), Some(address((number + 1) % nodes))),
            Signer::Client => self.request(request, &node(number), None),
        }
    }

    fn request(&self, name: String, node: &str, address: Option<String>) -> Result<(String, Call)> {
        let user = format!("system:node:{node}");
        let mut parameters = rcgen::CertificateParams::default();
        parameters.distinguished_name = rcgen::DistinguishedName::new();
        let subject = &mut parameters.distinguished_name;
        subject.push(rcgen::DnType::OrganizationName, "system:nodes");
        subject.push(rcgen::DnType::CommonName, user.as_str());
        if let Some(address) = address {
            let address = rcgen::SanType::IpAddress(address.parse()?);
            parameters.subject_alt_names.push(address);
        }
        let pem = parameters.serialize_request(&self.key)?.pem()?;
        let (requester, groups, usage): (_, &[_], _) = match self.signer {
            Signer::Serving => (user, &["system:nodes"], "server auth"),
            // The first is every bootstrap token's, the second is what this one's `auth-extra-groups` says.
            Signer::Client => (
                "system:bootstrap:b5b5b5".to_owned(),
                &["system:bootstrappers", JOINERS],
                "client auth",
            ),
        };
        let body = json!({"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
            "metadata": {"name": name},
            "spec": {"signerName": self.signer.name(), "usages": ["digital signature", usage],
                "request": k8s_openapi::ByteString(pem.into_bytes())}});
        let call = Call::new(Method::POST, REQUESTS).body("application/json", body.to_string());
        Ok((name, call.in_the_name_of(requester, groups)))
    }
}

/// What became of a burst.
pub(super) struct Seen {
    /// From sending to seeing the approval, in seconds.
    latencies: Vec<f64>,
    /// From the first request to the last approval.
    pub(super) seconds: f64,
    /// Forged requests that were approved.
    pub(super) forged: usize,
}

impl Seen {
    pub(super) fn p99(&self) -> f64 {
        percentile_99(self.latencies.clone()).unwrap_or(f64::INFINITY)
    }

    pub(super) fn text(&self) -> String {
        let p50 = median(self.latencies.clone()).unwrap_or(f64::INFINITY);
        format!("p50 {}, p99 {}", seconds(p50), seconds(self.p99()))
    }
}

/// Sends a burst, and sees the approvals of whoever approves.
pub(super) async fn send(bed: &Bed, loader: &Api, burst: &Burst) -> Result<Seen> {
    loader.call(Call::new(Method::DELETE, REQUESTS)).await?;
    let approved: Arc<Mutex<HashMap<String, Instant>>> = Arc::default();
    let (started, ready) = oneshot::channel();
    let watching = {
        let (watcher, approved, good) = (bed.plane.connect_as(LOADER).await?, Arc::clone(&approved), burst.good);
        tokio::spawn(async move {
            let all = |event: &Value| {
                let mut approved = approved.lock().unwrap_or_else(PoisonError::into_inner);
                if let Some(name) = approved_name(event) {
                    approved.entry(name).or_insert_with(clock::monotonic);
                }
                approved.keys().filter(|name| name.starts_with("good")).count() >= good
            };
            tokio::time::timeout(LONGEST, watcher.watch(REQUESTS, all, started)).await?
        })
    };
    ready.await.context("the watch of requests")?;
    let began = clock::monotonic();
    let sent: Vec<(String, Instant)> = stream::iter(burst.calls.clone())
        .map(|(name, call)| async move {
            let at = clock::monotonic();
            loader.call(call).await?;
            anyhow::Ok((name, at))
        })
        .buffer_unordered(IN_FLIGHT)
        .try_collect()
        .await?;
    let ended = watching.await?.context("not all requests were approved")?;
    let approved = approved.lock().unwrap_or_else(PoisonError::into_inner);
    let latency = |(name, sent): &(String, Instant)| Some(approved.get(name)?.duration_since(*sent).as_secs_f64());
    Ok(Seen {
        latencies: sent
            .iter()
            .filter(|(name, _)| name.starts_with("good"))
            .filter_map(latency)
            .collect(),
        seconds: ended.duration_since(began).as_secs_f64(),
        forged: approved.keys().filter(|name| name.starts_with("forged")).count(),
    })
}

fn approved_name(event: &Value) -> Option<String> {
    let conditions = event.pointer("/object/status/conditions")?.as_array()?;
    conditions
        .iter()
        .any(|condition| condition["type"] == "Approved")
        .then_some(())?;
    Some(event.pointer("/object/metadata/name")?.as_str()?.to_owned())
}
