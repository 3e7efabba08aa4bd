//! What goes on in a cluster while its certificates change: somebody writes through the API server and reads back, and
//! somebody shakes hands with every listener. Each on a connection of its own, as an old one shows nothing of what is new.

use std::collections::BTreeSet;
use std::fmt;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use http::Method;
use serde_json::{Value, json};
use stratum::host::{clock, https, served};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::rig::Node;

/// Where a node of ours keeps its certificates.
pub(crate) const PKI: &str = "/var/lib/stratum/pki";
const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
/// Between two writes: 25 a second begin, whether the ones before are answered or not.
const WRITE_EVERY: Duration = Duration::from_millis(40);
/// Between two handshakes with one listener.
const SHAKE_EVERY: Duration = Duration::from_millis(1);
/// After that long a question counts as not answered, and is asked again.
const ANSWER: Duration = Duration::from_secs(2);
/// A client gives up on nothing: longer than any outage here.
const PATIENCE: Duration = Duration::from_secs(120);

/// Somebody who writes all the time.
pub(crate) struct Writer {
    stop: CancellationToken,
    writing: tokio::task::JoinHandle<Written>,
}

/// What was written.
#[derive(Clone, Debug)]
pub(crate) struct Written {
    /// Objects that were to be written.
    pub(crate) begun: usize,
    /// Those that were not there in the end, or not as they were written.
    pub(crate) lost: usize,
    /// Tries that were not answered, or answered by anything but success, and made again.
    pub(crate) retried: u64,
    /// Objects a second.
    pub(crate) rate: f64,
    /// The longest time in which no write was answered.
    pub(crate) longest_gap: Duration,
}

impl fmt::Display for Written {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            begun,
            lost,
            retried,
            rate,
            longest_gap,
        } = self;
        let gap = longest_gap.as_secs_f64();
        write!(
            formatter,
            "{begun} writes, {rate:.1} a second, {retried} tries again, {lost} lost, {gap:.2} s at most without an answer"
        )
    }
}

impl Writer {
    /// Begins to write, through the API server of `node`, by an administrator whose certificate is in the folder `pki`.
    pub(crate) fn start(node: &Node, pki: &str, user: &str) -> Self {
        let client = client(node, pki, user);
        let server = SocketAddr::from((node.address(), 6443));
        let stop = CancellationToken::new();
        let writing = tokio::spawn(write_until(client, server, stop.clone()));
        Self { stop, writing }
    }

    /// Ends it, when every write that was begun has been answered, and reads all of them back.
    pub(crate) async fn finish(self) -> Written {
        self.stop.cancel();
        self.writing.await.unwrap()
    }
}

/// A client of the API server with the certificate of this name, as the files are now.
pub(crate) fn client(node: &Node, pki: &str, user: &str) -> https::Client {
    let folder = node.path(pki);
    let bundle = folder.join("ca-bundle.crt");
    let trusted = if bundle.exists() { bundle } else { folder.join("ca.crt") };
    let [certificate, key] = ["crt", "key"].map(|ending| folder.join(format!("{user}.{ending}")));
    https::Client::new(&trusted, &certificate, &key).unwrap()
}

async fn write_until(client: https::Client, server: SocketAddr, stop: CancellationToken) -> Written {
    let client = Arc::new(client);
    let run = entropy_name();
    let retried = Arc::new(AtomicU64::new(0));
    let began = clock::monotonic();
    let mut writes = JoinSet::new();
    let mut begun = 0;
    while !stop.is_cancelled() {
        let (client, retried) = (Arc::clone(&client), Arc::clone(&retried));
        let name = format!("{run}-{begun}");
        writes.spawn(async move { write(&client, server, &name, &retried).await });
        begun += 1;
        clock::sleep(WRITE_EVERY).await;
    }
    let mut answered = writes.join_all().await;
    let rate = f64::from(u32::try_from(begun).unwrap()) / began.elapsed().as_secs_f64();
    answered.sort_unstable();
    let gaps = answered.windows(2).map(|two| two[1].duration_since(two[0]));
    let longest_gap = gaps.max().unwrap_or_default();
    let there = read_all(&client, server, &run).await;
    let lost = (0..begun)
        .filter(|number| !there.contains(&format!("{run}-{number}")))
        .count();
    Written {
        begun,
        lost,
        retried: retried.load(Ordering::Relaxed),
        rate,
        longest_gap,
    }
}

fn entropy_name() -> String {
    let bytes: [u8; 4] = stratum::host::entropy::bytes();
    format!("written-{}", stratum::pki::hexadecimal(&bytes))
}

/// Writes one object, however often that takes; when it was answered.
async fn write(client: &https::Client, server: SocketAddr, name: &str, retried: &AtomicU64) -> Instant {
    let object = json!({"metadata": {"name": name}, "data": {"name": name}}).to_string();
    let began = clock::monotonic();
    loop {
        let answer = client
            .ask(server, Method::POST, CONFIG_MAPS, object.clone(), ANSWER)
            .await;
        // A try whose answer was lost may have been carried out.
        if answer.as_ref().is_ok_and(|answer| [201, 409].contains(&answer.status)) {
            return clock::monotonic();
        }
        retried.fetch_add(1, Ordering::Relaxed);
        assert!(began.elapsed() < PATIENCE, "{name} was never written: {answer:?}");
        clock::sleep(Duration::from_millis(100)).await;
    }
}

/// The names of the objects of a run that hold what was written.
async fn read_all(client: &https::Client, server: SocketAddr, run: &str) -> BTreeSet<String> {
    let answer = client
        .ask(server, Method::GET, CONFIG_MAPS, "", PATIENCE)
        .await
        .unwrap();
    let list: Value = serde_json::from_slice(&answer.body).unwrap();
    let objects = list["items"].as_array().into_iter().flatten();
    let whole = objects.filter(|object| object["data"]["name"] == object["metadata"]["name"]);
    let names = whole.filter_map(|object| object["metadata"]["name"].as_str());
    names.filter(|name| name.starts_with(run)).map(str::to_owned).collect()
}

/// Handshakes with some listeners, all the time.
pub(crate) struct Handshakes {
    stop: CancellationToken,
    shaking: Vec<tokio::task::JoinHandle<Shaken>>,
}

/// The handshakes with one listener.
#[derive(Clone, Debug)]
pub(crate) struct Shaken {
    pub(crate) listener: &'static str,
    pub(crate) made: usize,
    /// Why some failed, by their words.
    pub(crate) failed: Vec<String>,
    /// Handshakes a second.
    pub(crate) rate: f64,
}

impl fmt::Display for Shaken {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            listener,
            made,
            failed,
            rate,
        } = self;
        let count = failed.len();
        write!(
            formatter,
            "{listener}: {made} handshakes, {rate:.0} a second, {count} failed"
        )?;
        failed.first().map_or(Ok(()), |first| write!(formatter, " ({first})"))
    }
}

/// Tells what was measured; nothing depends on it (`--nocapture` shows it).
#[expect(clippy::print_stdout, reason = "it is for whoever runs the test by hand")]
pub(crate) fn tell(what: impl fmt::Display) {
    println!("{what}");
}

impl Handshakes {
    /// Begins with the listeners of a controller, and its kubelet.
    pub(crate) fn start(node: &Node) -> Self {
        let stop = CancellationToken::new();
        let shaking = listeners(node)
            .into_iter()
            .map(|(name, address)| tokio::spawn(shake_until(name, address, stop.clone())))
            .collect();
        Self { stop, shaking }
    }

    /// Ends them.
    pub(crate) async fn finish(self) -> Vec<Shaken> {
        self.stop.cancel();
        let mut all = Vec::new();
        for shaking in self.shaking {
            all.push(shaking.await.unwrap());
        }
        all
    }
}

/// Where a controller is spoken to by TLS, and the files that it shows there, below its PKI folder.
pub(crate) fn listeners(node: &Node) -> [(&'static str, SocketAddr); 4] {
    [
        ("apiserver", 6443),
        ("etcd/server", 2379),
        ("etcd/peer", 2380),
        ("kubelet", 10250),
    ]
    .map(|(name, port)| (name, SocketAddr::from((node.address(), port))))
}

async fn shake_until(listener: &'static str, address: SocketAddr, stop: CancellationToken) -> Shaken {
    let began = clock::monotonic();
    let (mut made, mut failed) = (0, Vec::new());
    while !stop.is_cancelled() {
        match served::served(address, None, ANSWER).await {
            Ok(_) => made += 1,
            Err(error) => failed.push(format!("{:#}", anyhow::Error::from(error))),
        }
        clock::sleep(SHAKE_EVERY).await;
    }
    let rate = f64::from(u32::try_from(made).unwrap()) / began.elapsed().as_secs_f64();
    Shaken {
        listener,
        made,
        failed,
        rate,
    }
}

/// The serial number in a certificate file, as openssl reads it.
pub(crate) async fn serial_in_file(path: &Path) -> String {
    let arguments = ["x509", "-noout", "-serial", "-in"];
    let openssl = stratum::host::child::Program::new("openssl")
        .arguments(arguments)
        .arguments([path]);
    let finished = openssl.run(Vec::new()).await.unwrap();
    assert!(
        finished.exit.is_success(),
        "{}",
        String::from_utf8_lossy(&finished.stderr)
    );
    String::from_utf8(finished.stdout).unwrap().trim().to_owned()
}

/// The serial number that a listener shows, as openssl reads it.
pub(crate) async fn serial_served(address: SocketAddr) -> Option<String> {
    let connect = ["s_client", "-connect", &address.to_string(), "-showcerts"].map(str::to_owned);
    let shown = stratum::host::child::Program::new("openssl")
        .arguments(connect)
        .run(Vec::new())
        .await
        .unwrap();
    let pem = String::from_utf8_lossy(&shown.stdout).into_owned();
    let read = ["x509", "-noout", "-serial"];
    let read = stratum::host::child::Program::new("openssl")
        .arguments(read)
        .run(pem.into_bytes())
        .await
        .unwrap();
    read.exit
        .is_success()
        .then(|| String::from_utf8_lossy(&read.stdout).trim().to_owned())
}
