//! B5, a burst of requests for serving certificates of as many nodes: from the moment each is sent to the moment its
//! approval is seen on a watch. One in ten is forged, and has to stay as it is.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use futures::{StreamExt, TryStreamExt, stream};
use http::Method;
use serde_json::{Value, json};
use stratum::host::child::{Child, Output};
use stratum::host::clock;
use tokio::sync::{mpsc, oneshot};

use crate::bed::Bed;
use crate::harness::api::{Api, Call, IN_FLIGHT, MERGE};
use crate::harness::audit::LOADER;
use crate::harness::binaries::eventually;
use crate::measure::{between_floors, median, percentile_99};
use crate::subject::{self, Running};
use crate::table::{Entry, Figure, Table, Target, progress, seconds};

const SIGNER: &str = "kubernetes.io/kubelet-serving";
const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
const IDENTITIES: &str = "/apis/stratum.ciq.com/v1/nodeidentities";
/// Approvals under way at one time in the floor, as stratum has it.
const APPROVALS: usize = 16;
/// A burst that is not through by then has failed.
const LONGEST: Duration = Duration::from_secs(180);

pub(crate) async fn run(bed: &Bed, table: &mut Table) -> Result<()> {
    let (nodes, scales) = if bed.arguments.quick {
        (100, &[1, 20][..])
    } else {
        (5000, &[1, 100, 1000, 5000][..])
    };
    // Of its own: five thousand Nodes would be in the way of every other benchmark.
    let bed = bed.another().await?;
    let measured = measure(&bed, nodes, scales, table).await;
    bed.end().await?;
    measured
}

async fn measure(bed: &Bed, nodes: usize, scales: &[usize], table: &mut Table) -> Result<()> {
    let loader = bed.plane.connect_as(LOADER).await?;
    progress(&format!(" loading {nodes} Nodes"));
    let all = (0..nodes).map(|number| {
        let body = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": node(number)},
            "status": {"addresses": [{"type": "InternalIP", "address": address(number)},
                {"type": "Hostname", "address": node(number)}]}});
        Call::new(Method::POST, "/api/v1/nodes").body("application/json", body.to_string())
    });
    loader.all(all.collect()).await?;
    adopt(bed, nodes).await?;
    for &scale in scales {
        progress(&format!(" {scale} requests"));
        let burst = Burst::make(scale)?;
        row(bed, &loader, &burst, table).await?;
    }
    progress(" three instances");
    let burst = Burst::make(scales.iter().copied().filter(|scale| *scale <= 1000).max().unwrap_or(1))?;
    three(bed, &loader, &burst, table).await
}

fn node(number: usize) -> String {
    format!("node-{number:05}")
}

fn address(number: usize) -> String {
    format!("10.{}.{}.1", number / 250, number % 250)
}

/// Lets stratum see all Nodes once, so that no burst pays for that.
async fn adopt(bed: &Bed, nodes: usize) -> Result<()> {
    let running = start(bed, "b5").await?;
    let began = clock::monotonic();
    let adopted = async || {
        let list = bed.api().read(&format!("{IDENTITIES}?limit=1")).await?;
        let more = list
            .pointer("/metadata/remainingItemCount")
            .and_then(Value::as_u64)
            .unwrap_or_default();
        Ok((usize::try_from(more)? + 1 >= nodes).then_some(()))
    };
    eventually("all Nodes are adopted", LONGEST, Duration::from_millis(200), adopted).await?;
    progress(&format!(
        "  {nodes} Nodes adopted in {}",
        seconds(began.elapsed().as_secs_f64())
    ));
    end(running).await
}

async fn start(bed: &Bed, name: &str) -> Result<Running> {
    let folder = bed.fresh(name)?;
    let running = subject::start(bed, name, &folder)?;
    ensure!(subject::ready(&running).await?, "{name} ended at its start");
    Ok(running)
}

async fn end(running: Running) -> Result<()> {
    let mut child = running.child;
    child
        .terminate(Duration::from_secs(20))
        .await
        .context("ending the operator")?;
    Ok(())
}

/// Requests, made beforehand.
struct Burst {
    /// With the names of those that are to be approved.
    calls: Vec<(String, Call)>,
    good: usize,
}

impl Burst {
    fn make(good: usize) -> Result<Self> {
        let key = rcgen::KeyPair::generate()?;
        let forged = good / 10;
        let mut calls = Vec::new();
        for number in 0..good {
            calls.push(request(&key, &format!("good-{number:05}"), number, &address(number))?);
        }
        for number in 0..forged {
            let other = (number + 1) % good;
            calls.push(request(&key, &format!("forged-{number:05}"), number, &address(other))?);
        }
        // Among the others, as an attacker would.
        let mut mixed = Vec::with_capacity(calls.len());
        let mut forged = calls.split_off(good);
        for (index, call) in calls.into_iter().enumerate() {
            if index % 10 == 0 {
                mixed.extend(forged.pop());
            }
            mixed.push(call);
        }
        mixed.append(&mut forged);
        Ok(Self { calls: mixed, good })
    }
}

fn request(key: &rcgen::KeyPair, name: &str, number: usize, address: &str) -> Result<(String, Call)> {
    let user = format!("system:node:{}", node(number));
    let mut parameters = rcgen::CertificateParams::default();
    parameters.distinguished_name = rcgen::DistinguishedName::new();
    let subject = &mut parameters.distinguished_name;
    subject.push(rcgen::DnType::OrganizationName, "system:nodes");
    subject.push(rcgen::DnType::CommonName, user.as_str());
    parameters.subject_alt_names = vec![rcgen::SanType::IpAddress(address.parse()?)];
    let pem = parameters.serialize_request(key)?.pem()?;
    let body = json!({"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
        "metadata": {"name": name},
        "spec": {"signerName": SIGNER, "usages": ["digital signature", "server auth"],
            "request": k8s_openapi::ByteString(pem.into_bytes())}});
    let call = Call::new(Method::POST, REQUESTS)
        .body("application/json", body.to_string())
        .in_the_name_of(user, "system:nodes");
    Ok((name.to_owned(), call))
}

/// What became of a burst.
struct Seen {
    /// From sending to seeing the approval, in seconds.
    latencies: Vec<f64>,
    /// From the first request to the last approval.
    seconds: f64,
    forged: usize,
}

impl Seen {
    fn p99(&self) -> f64 {
        percentile_99(self.latencies.clone()).unwrap_or(f64::INFINITY)
    }

    fn text(&self) -> String {
        let p50 = median(self.latencies.clone()).unwrap_or(f64::INFINITY);
        format!("p50 {}, p99 {}", seconds(p50), seconds(self.p99()))
    }
}

/// Sends a burst in the names of the nodes, and sees the approvals of whoever approves.
async fn send(bed: &Bed, loader: &Api, burst: &Burst) -> Result<Seen> {
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

/// Watch, and approve what is not forged: the least an approver can do.
async fn floor(bed: &Bed, loader: &Api, burst: &Burst) -> Result<f64> {
    let api = bed.plane.connect().await?;
    let (queue, names) = mpsc::unbounded_channel::<String>();
    let (started, ready) = oneshot::channel();
    let watching = {
        let watcher = bed.plane.connect().await?;
        tokio::spawn(async move {
            let pass_on = move |event: &Value| {
                let name = event
                    .pointer("/object/metadata/name")
                    .and_then(Value::as_str)
                    .unwrap_or_default();
                if event["type"] == "ADDED" && name.starts_with("good") {
                    let _ = queue.send(name.to_owned());
                }
                false
            };
            watcher.watch(REQUESTS, pass_on, started).await
        })
    };
    ready.await.context("the floor's watch")?;
    let approving = tokio::spawn(async move {
        let names = stream::unfold(names, |mut names| async { Some((names.recv().await?, names)) });
        let approve = |name: String| {
            let body = json!({"status": {"conditions": [{"type": "Approved", "status": "True", "reason": "Floor"}]}});
            let call = Call::new(Method::PATCH, format!("{REQUESTS}/{name}/approval")).body(MERGE, body.to_string());
            let api = api.clone();
            async move { api.call(call).await.map(|_| ()) }
        };
        names.map(approve).buffer_unordered(APPROVALS).try_collect::<()>().await
    });
    let seen = send(bed, loader, burst).await;
    watching.abort();
    approving.abort();
    Ok(seen?.p99())
}

async fn row(bed: &Bed, loader: &Api, burst: &Burst, table: &mut Table) -> Result<()> {
    let mut requests = None;
    let between = between_floors(
        async || floor(bed, loader, burst).await,
        async || {
            let running = start(bed, "b5").await?;
            subject::leads(bed, &running.node).await?;
            let before = bed.plane.requests().await?;
            let seen = send(bed, loader, burst).await?;
            requests = Some(bed.plane.requests().await?.since(&before));
            end(running).await?;
            Ok(seen)
        },
    )
    .await?;
    let own = between.result;
    let mut entry = Entry::new("B5 approvals", format!("{} requests", burst.good));
    entry.floor = format!("p99 {}", seconds(between.floor));
    entry.stratum = format!("{}, all in {}", own.text(), seconds(own.seconds));
    let mut peers = Vec::new();
    let mut single = None;
    for workers in [1, 10] {
        if burst.good > 1000 && workers == 1 {
            continue;
        }
        let peer = peer(bed, workers).await?;
        let seen = send(bed, loader, burst).await?;
        drop(peer);
        peers.push(format!("controller-runtime {workers} worker(s) {}", seen.text()));
        if workers == 1 {
            single = Some(seen.p99());
        }
    }
    entry.peers = peers.join("; ");
    let over = own.p99() / between.floor;
    entry.gate("p99 over floor", Some(over), Target::AtMost(1.5), between.figure);
    if burst.good == 1000 {
        let faster = single.map(|single| single / own.p99());
        entry.gate("1 worker over stratum", faster, Target::AtLeast(15.0), between.figure);
    }
    let requests = requests.context("stratum was not measured")?;
    #[expect(clippy::cast_precision_loss, reason = "counts here are far below 2^52")]
    let count = |count: u64| Some(count as f64);
    #[expect(clippy::cast_precision_loss, reason = "counts here are far below 2^52")]
    let good = burst.good as f64;
    entry.gate(
        "approvals",
        count(requests.of("update", "certificatesigningrequests/approval")),
        Target::Exactly(good),
        Figure::Count,
    );
    entry.gate(
        "GETs of objects but the Lease",
        count(requests.object_gets() - requests.of("get", "leases")),
        Target::Exactly(0.0),
        Figure::Count,
    );
    entry.gate(
        "forged and approved",
        count(u64::try_from(own.forged)?),
        Target::Exactly(0.0),
        Figure::Count,
    );
    table.add(entry);
    Ok(())
}

/// Three instances at once: one approves, and the others need not.
async fn three(bed: &Bed, loader: &Api, burst: &Burst, table: &mut Table) -> Result<()> {
    let mut running = Vec::new();
    for name in ["b5", "b5-b", "b5-c"] {
        running.push(start(bed, name).await?);
    }
    let before = bed.plane.requests().await?;
    let seen = send(bed, loader, burst).await?;
    let requests = bed.plane.requests().await?.since(&before);
    for one in running {
        end(one).await?;
    }
    let mut entry = Entry::new("B5 three instances", burst.good);
    entry.stratum = format!("{}, all in {}", seen.text(), seconds(seen.seconds));
    #[expect(clippy::cast_precision_loss, reason = "counts here are far below 2^52")]
    let (tries, good) = (
        requests.of("update", "certificatesigningrequests/approval") as f64,
        burst.good as f64,
    );
    // A request is approved once whatever happens: its resourceVersion sees to it. What is counted is who tried in vain.
    entry.gate(
        "tries for each approval",
        Some(tries / good),
        Target::AtMost(1.05),
        Figure::Count,
    );
    table.add(entry);
    Ok(())
}

async fn peer(bed: &Bed, workers: usize) -> Result<Child> {
    let log = bed.plane.logs.join(format!("approver-{workers}.log"));
    let child = bed
        .peer("approver")
        .arguments(["--workers", &workers.to_string()])
        .dies_with_us(&bed.stratum)
        .start(&Output::Log(log.clone()))?;
    let synced = async || {
        ensure!(
            child.exit().is_none(),
            "approver ended: {}",
            std::fs::read_to_string(&log)?
        );
        Ok(std::fs::read_to_string(&log)?.contains("syncedSeconds").then_some(()))
    };
    eventually(
        "approver's caches are synced",
        Duration::from_secs(60),
        Duration::from_millis(20),
        synced,
    )
    .await?;
    Ok(child)
}
