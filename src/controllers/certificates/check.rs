//! Sees everything that [`status::judge`] has to know: files, what listeners show, and whether a key waits in the cluster.
//!
//! Nothing is waited for longer than [`Limits`] say, and the cluster is asked only where this node's own API server takes
//! connections: a check has to answer when nothing else does.

mod beside;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use futures::future::{join, join_all};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use tokio::net::TcpStream;

use super::super::concern::chain;
use super::super::connection::{self, ClientSettings};
use super::super::grants::guard::STAGED_KEY;
use super::super::operator::SYSTEM_NAMESPACE;
use crate::host::addresses;
use crate::host::certificates::{Entry, Found, KeyError, KeyState, Machine, Origin, ReadError, Role, Store};
use crate::host::kubeconfig::{self, Source, View};
use crate::host::layout::Identity;
use crate::host::served::served;
use crate::pki::certificate::Certificate;
use crate::pki::key;
use crate::pki::leaf::Usage;
use crate::reconcilers::certificates::status::{
    self, Bundle, Held, KeySeen, KubeconfigSays, KubeconfigSeen, Observed, Part, Report, Seen, Served, StagedKey,
};

/// How long things may take.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// A handshake with a listener of this machine.
    pub listener: Duration,
    /// The question to the API server.
    pub cluster: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            listener: Duration::from_millis(500),
            cluster: Duration::from_secs(2),
        }
    }
}

/// Nothing to check.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No certificate is there.
    #[error(
        "no certificate is there, not one below {folder}: is it another node's layout (--layout), or a disk that is not mounted?"
    )]
    Nothing {
        /// Where most of them would be.
        folder: String,
    },
}

/// What is in a certificate's file, or why that is not known.
type Content = Result<Found<()>, ReadError>;

/// Looks at everything and judges it at the moment `now`; `warn` is another window than the one in which certificates are
/// renewed.
///
/// # Errors
/// When there is nothing to look at. What is wrong with something is in the report.
pub async fn check(
    machine: &Machine,
    now: Timestamp,
    warn: Option<SignedDuration>,
    limits: Limits,
) -> Result<Report, Error> {
    let entries = machine.entries();
    let looked: Vec<(&Entry, Option<Content>)> =
        entries.iter().map(|entry| (entry, entry.look().transpose())).collect();
    let there = |name: &str| {
        looked
            .iter()
            .any(|(entry, content)| entry.name == name && content.is_some())
    };
    let signs: BTreeSet<&str> = looked
        .iter()
        .filter(|(_, content)| content.is_some())
        .filter_map(|(entry, _)| entry.signer.as_deref())
        .filter(|signer| !there(signer))
        .collect();
    let present: Vec<(&Entry, Content)> = looked
        .into_iter()
        .filter_map(|(entry, content)| match content {
            Some(content) => Some((entry, content)),
            None if is_missed(machine, entry, &signs) => {
                let path = entry.store.certificate_file().to_owned();
                Some((entry, Err(ReadError::Missing { path })))
            }
            None => None,
        })
        .collect();
    if present
        .iter()
        .all(|(_, content)| matches!(content, Err(ReadError::Missing { .. })))
    {
        return Err(Error::Nothing {
            folder: machine.layout.pki().display().to_string(),
        });
    }
    let shown = join_all(present.iter().map(|(entry, _)| shown(entry, limits)));
    let (shown, staged_key) = join(shown, staged_key(machine, &entries, limits)).await;
    let certificates = present.into_iter().zip(shown);
    let observed = Observed {
        node: match &machine.origin {
            Origin::Stratum(state) => Some(state.node_name.clone()),
            Origin::Kubeadm => None,
        },
        layout: machine.layout.form().to_string(),
        certificates: certificates
            .map(|((entry, content), shown)| seen(entry, content, shown))
            .collect(),
        renewal: beside::renewal(&machine.layout),
        rotation: beside::rotation(&machine.layout),
        staged_key,
    };
    Ok(status::judge(&observed, now, warn))
}

/// Whether a certificate that is not there has to be: on a node of ours every leaf, for what it is says `node.yaml`; and a
/// signer, without which nobody can tell who signed the others. Of kubeadm's, etcd may be somebody else's.
fn is_missed(machine: &Machine, entry: &Entry, signs: &BTreeSet<&str>) -> bool {
    let is_signer = signs.contains(entry.name.as_str());
    match machine.origin {
        Origin::Stratum(_) => entry.expected.is_some() || is_signer,
        Origin::Kubeadm => is_signer && ["ca", "front-proxy-ca"].contains(&entry.name.as_str()),
    }
}

/// What the listeners of one certificate show; those where nothing answers are left out, and those at addresses that are
/// not this machine's: whoever answers there is somebody else.
async fn shown(entry: &Entry, limits: Limits) -> Vec<Served> {
    let ask = |at: SocketAddr| async move {
        match served(at, None, limits.listener).await {
            Ok(chain) => Some(Served {
                at,
                shown: chain
                    .into_iter()
                    .next()
                    .ok_or_else(|| format!("{at} shows no certificate")),
            }),
            Err(error) if error.is_absence() => None,
            Err(error) => Some(Served {
                at,
                shown: Err(chain(&error)),
            }),
        }
    };
    let own = entry.listeners.iter().copied().filter(|at| addresses::is_own(at.ip()));
    join_all(own.map(ask)).await.into_iter().flatten().collect()
}

fn seen(entry: &Entry, content: Result<Found<()>, ReadError>, served: Vec<Served>) -> Seen {
    Seen {
        name: entry.name.clone(),
        part: match (entry.role, &entry.store) {
            (Role::Authority, Store::Bundle(_)) => Part::Trust,
            (Role::Authority, _) => Part::Authority,
            (Role::Leaf, _) => Part::Leaf,
            (Role::KubeletClient, _) => Part::KubeletClient,
            (Role::KubeletServer, _) => Part::KubeletServer,
        },
        path: entry.store.certificate_file().display().to_string(),
        content: content.map(held).map_err(|error| chain(&error)),
        signer: entry.signer.clone(),
        expected: entry.expected.clone(),
        usages: usages(entry),
        addresses: match entry.role {
            Role::Leaf => entry
                .listeners
                .iter()
                .map(SocketAddr::ip)
                .filter(|address| !address.is_loopback())
                .collect(),
            Role::Authority | Role::KubeletClient | Role::KubeletServer => Vec::new(),
        },
        served,
        kubeconfig: look_at_kubeconfig(entry),
        bundle: entry.bundle.as_deref().and_then(bundle),
    }
}

fn held(found: Found<()>) -> Held {
    let Found { certificate, more, key } = found;
    let key = match key {
        KeyState::Matches(_) => KeySeen::Own,
        KeyState::Other => KeySeen::Other,
        KeyState::Absent => KeySeen::Absent,
        KeyState::Denied => KeySeen::Denied,
        KeyState::Unreadable(KeyError::Key(key::Error::Encrypted)) => KeySeen::Encrypted,
        KeyState::Unreadable(error) => KeySeen::Unusable(chain(&error)),
    };
    Held { certificate, more, key }
}

/// What a certificate is used for, where nobody remembers what was asked for. Members of etcd use theirs on both sides.
fn usages(entry: &Entry) -> Vec<Usage> {
    match (entry.role, entry.name.as_str()) {
        (Role::Authority, _) => Vec::new(),
        (Role::KubeletServer, _) | (Role::Leaf, "apiserver") => vec![Usage::Server],
        (Role::Leaf, "etcd-server" | "etcd-peer") => vec![Usage::Server, Usage::Client],
        (Role::Leaf | Role::KubeletClient, _) => vec![Usage::Client],
    }
}

/// The kubeconfig of an entry; one that is not there is not missed.
fn look_at_kubeconfig(entry: &Entry) -> Option<KubeconfigSeen> {
    let path = match (&entry.kubeconfig, &entry.store) {
        (Some(path), _) | (None, Store::Kubeconfig(path)) => path,
        (None, _) => return None,
    };
    let says = match View::load(path) {
        Ok(None) => return None,
        Ok(Some(view)) => KubeconfigSays::Client {
            elsewhere: elsewhere(entry, &view),
            trusts: view.authorities.as_ref().map(trusted),
        },
        Err(kubeconfig::Error::Read { source, .. }) if source.kind() == io::ErrorKind::PermissionDenied => {
            KubeconfigSays::Denied
        }
        Err(error) => KubeconfigSays::Unusable(chain(&error)),
    };
    let path = path.display().to_string();
    Some(KubeconfigSeen { path, says })
}

/// What a kubeconfig leads to instead of the files of its entry.
fn elsewhere(entry: &Entry, view: &View) -> Option<String> {
    if let Store::Kubeconfig(_) = entry.store {
        return None;
    }
    let wrong = |what: &str, source: Option<&Source>, right: &Path| match source {
        None => Some(format!("has no {what}")),
        Some(Source::Embedded(_)) => Some(format!(
            "embeds a {what}, which is not renewed with {}",
            right.display()
        )),
        Some(Source::File(named)) if is_same_file(named, right) => None,
        Some(Source::File(named)) if !named.exists() => Some(format!("names {}, which is not there", named.display())),
        Some(Source::File(named)) => Some(format!("names {} instead of {}", named.display(), right.display())),
    };
    let certificate = wrong(
        "client certificate",
        view.client_certificate.as_ref(),
        entry.store.certificate_file(),
    );
    certificate.or_else(|| wrong("client key", view.client_key.as_ref(), entry.store.key_file()?))
}

/// By their paths, links within which count for what they lead to; the last link may be there to lead to the latest file.
fn is_same_file(named: &Path, right: &Path) -> bool {
    let placed = |path: &Path| Some(path.parent()?.canonicalize().ok()?.join(path.file_name()?));
    named == right || placed(named).is_some_and(|named| Some(named) == placed(right))
}

fn trusted(source: &Source) -> Result<Vec<Certificate>, String> {
    let pem = source.read().map_err(|error| match source {
        Source::File(path) => format!("it names {}, which cannot be read: {error}", path.display()),
        Source::Embedded(_) => error.to_string(),
    })?;
    Certificate::bundle_from_pem(&pem).map_err(|error| chain(&error))
}

/// A bundle; one that is not there, or that this user may not read, is left out.
fn bundle(path: &Path) -> Option<Bundle> {
    let content = match std::fs::read(path) {
        Ok(pem) => Certificate::bundle_from_pem(&pem).map_err(|error| format!("{}: {}", path.display(), chain(&error))),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied) => return None,
        Err(error) => Err(format!("{}: {error}", path.display())),
    };
    let path = path.display().to_string();
    Some(Bundle { path, content })
}

/// Whether a key waits in the cluster, as an administrator on this controller may ask.
async fn staged_key(machine: &Machine, entries: &[Entry], limits: Limits) -> StagedKey {
    match &machine.origin {
        // Authorities of such a cluster are not replaced by this program.
        Origin::Kubeadm => return StagedKey::Absent,
        Origin::Stratum(_) => {}
    }
    let api_server = entries.iter().find(|entry| entry.name == "apiserver");
    let Some(at) = api_server.and_then(|entry| entry.listeners.first()) else {
        return StagedKey::Unknown;
    };
    staged_key_in(&machine.layout.kubeconfig(Identity::Admin), *at, limits).await
}

/// Whether a key waits in the cluster, asked of the API server at `at` with the kubeconfig of an administrator; unknown when
/// it does not answer in time or refuses.
pub async fn staged_key_in(kubeconfig: &Path, at: SocketAddr, limits: Limits) -> StagedKey {
    match tokio::time::timeout(limits.cluster, ask_for_staged_key(kubeconfig, at, limits)).await {
        Ok(Some(true)) => StagedKey::Present,
        Ok(Some(false)) => StagedKey::Absent,
        Ok(None) | Err(_) => StagedKey::Unknown,
    }
}

async fn ask_for_staged_key(kubeconfig: &Path, at: SocketAddr, limits: Limits) -> Option<bool> {
    let probe = tokio::time::timeout(limits.listener, TcpStream::connect(at)).await;
    drop(probe.ok()?.ok()?);
    let settings = ClientSettings {
        server: Some(at),
        request_limit: limits.cluster,
        connect_limit: limits.cluster,
        ..ClientSettings::new(kubeconfig, "check")
    };
    let client = connection::client(&settings, None).await.ok()?;
    let secrets: Api<Secret> = Api::namespaced(client, SYSTEM_NAMESPACE);
    let found = secrets.get_metadata_opt(STAGED_KEY).await.ok()?;
    Some(found.is_some())
}
