//! What there is: each leaf with its key, who can sign here, and what an earlier run has left.

use std::collections::BTreeMap;
use std::path::PathBuf;

use jiff::Timestamp;

use super::error::Error;
use crate::controllers::concern::chain;
use crate::host::atomic_file;
use crate::host::certificates::{Entry, Found, KeyState, Machine, Role, Store};
use crate::host::pki_folder;
use crate::host::rotation_incomplete::{self, Incomplete};
use crate::host::rotation_phase::{RotationPhase, rotation_phase};
use crate::pki::BACKDATE;
use crate::pki::authority::{self, Authority};
use crate::pki::certificate::Certificate;
use crate::pki::key::Key;
use crate::pki::leaf::LIFETIME;
use crate::reconcilers::certificates::reissue::{Owner, Seen, State};

/// Everything a decision needs, and what the work needs beside it.
#[derive(Debug)]
pub(super) struct Observed {
    /// The leaves of this node, in the order of its roster.
    pub(super) leaves: Vec<Leaf>,
    /// Who signs, by name.
    pub(super) signers: BTreeMap<String, Signer>,
    /// What an earlier run has left; why it cannot be read.
    pub(super) marker: Result<Option<Incomplete>, String>,
    /// How far a rotation of this node's authorities is.
    pub(super) phase: RotationPhase,
}

/// One leaf.
#[derive(Debug)]
pub(super) struct Leaf {
    pub(super) entry: Entry,
    /// As far as it can be read.
    pub(super) certificate: Option<Certificate>,
    /// A key that can go on.
    pub(super) key: Option<Key>,
    /// Why it cannot be read.
    pub(super) reason: Option<String>,
    /// Its signer's name.
    pub(super) signer: String,
    pub(super) seen: Seen,
}

/// An authority, as far as it can sign here.
#[derive(Debug)]
pub(super) enum Signer {
    /// It can.
    Ready(Box<Authority>),
    /// A file of it is not here.
    Missing(PathBuf),
    /// It cannot be used.
    Unusable {
        path: PathBuf,
        source: crate::pki::authority::Error,
    },
    /// Its file cannot be used.
    File { path: PathBuf, reason: String },
}

/// Looks at everything.
///
/// # Errors
/// When this user may not see it.
pub(super) fn observe(machine: &Machine, now: Timestamp) -> Result<Observed, Error> {
    let entries = machine.entries();
    let mut signers = BTreeMap::new();
    for entry in entries.iter().filter(|entry| entry.role == Role::Authority) {
        signers.insert(entry.name.clone(), signer(machine, entry)?);
    }
    let mut leaves = Vec::new();
    for entry in entries {
        let owner = match entry.role {
            Role::Leaf => Owner::Ours,
            Role::KubeletClient => Owner::Kubelet,
            Role::Authority | Role::KubeletServer => continue,
        };
        leaves.extend(leaf(machine, entry, owner, &signers, now)?);
    }
    if leaves.is_empty() {
        let folder = machine.layout.pki();
        return Err(Error::Nothing { folder });
    }
    Ok(Observed {
        leaves,
        signers,
        marker: rotation_incomplete::load(&machine.layout).map_err(|error| chain(&error)),
        phase: rotation_phase(&machine.layout),
    })
}

impl Observed {
    /// The leaves as decisions see them.
    pub(super) fn seen(&self) -> Vec<Seen> {
        self.leaves.iter().map(|leaf| leaf.seen.clone()).collect()
    }

    /// A leaf by its name.
    pub(super) fn leaf(&self, name: &str) -> Option<&Leaf> {
        self.leaves.iter().find(|leaf| leaf.seen.name == name)
    }

    /// Whether the credential this program reaches the API server with has provably expired.
    pub(super) fn own_credential_expired(&self, now: Timestamp) -> bool {
        let own = ["admin", "admin.conf"].iter().find_map(|name| self.leaf(name));
        own.and_then(|leaf| leaf.seen.ends).is_some_and(|ends| ends < now)
    }

    /// Whether the clock can be right: nothing that is here was made later than now.
    ///
    /// # Errors
    /// Names what was.
    pub(super) fn check_clock(&self, now: Timestamp) -> Result<(), Error> {
        let own = self.leaves.iter().filter_map(|leaf| {
            let certificate = leaf.certificate.as_ref()?;
            Some((&leaf.seen.name, certificate.details().not_before))
        });
        let signers = self.signers.iter().filter_map(|(name, signer)| match signer {
            Signer::Ready(authority) => Some((name, authority.certificate().details().not_before)),
            Signer::Missing(_) | Signer::Unusable { .. } | Signer::File { .. } => None,
        });
        match own.chain(signers).find(|(_, not_before)| *not_before > now + BACKDATE) {
            None => Ok(()),
            Some((name, not_before)) => Err(Error::Clock {
                name: name.clone(),
                not_before,
                now,
            }),
        }
    }

    /// The authority of that name, in date.
    ///
    /// # Errors
    /// Says why it cannot sign.
    pub(super) fn signer(&self, name: &str, now: Timestamp) -> Result<&Authority, Error> {
        let own = || name.to_owned();
        let authority = match self.signers.get(name) {
            Some(Signer::Ready(authority)) => authority,
            Some(Signer::Missing(path)) => {
                let path = path.clone();
                return Err(Error::NoSigner { name: own(), path });
            }
            Some(Signer::Unusable { path, source }) => {
                // An error is no value that can be copied; its words are.
                return Err(Error::SignerFile {
                    name: own(),
                    path: path.clone(),
                    reason: chain(source),
                });
            }
            Some(Signer::File { path, reason }) => {
                return Err(Error::SignerFile {
                    name: own(),
                    path: path.clone(),
                    reason: reason.clone(),
                });
            }
            None => {
                return Err(Error::NoSigner {
                    name: own(),
                    path: PathBuf::from(format!("{name}.crt")),
                });
            }
        };
        let details = authority.certificate().details();
        if details.not_after < now {
            return Err(Error::SignerExpired {
                name: own(),
                not_after: details.not_after,
            });
        }
        Ok(authority)
    }
}

fn signer(machine: &Machine, entry: &Entry) -> Result<Signer, Error> {
    let path = entry.store.certificate_file().to_owned();
    let found = match entry.read() {
        Ok(Some(found)) => found,
        Ok(None) => return Ok(Signer::Missing(path)),
        Err(error) if error.is_denied() => return Err(Error::Denied { path }),
        Err(error) => {
            let reason = chain(&error);
            return Ok(Signer::File { path, reason });
        }
    };
    let Some(key_path) = entry.store.key_file().map(std::path::Path::to_owned) else {
        return Ok(Signer::Missing(path.with_extension("key")));
    };
    // What signs is one certificate; of kubeadm's single file, which is trusted as well, the first.
    let takes_first = machine.layout.form() == crate::host::layout::Form::Kubeadm;
    if !found.more.is_empty() && !takes_first {
        let count = found.more.len() + 1;
        let reason = format!("it holds {count} certificates, and what signs is one");
        return Ok(Signer::File { path, reason });
    }
    if matches!(found.key, KeyState::Denied) {
        return Err(Error::Denied { path: key_path });
    }
    let pem = match pki_folder::read(&key_path) {
        Ok(Some(pem)) => pem,
        Ok(None) => return Ok(Signer::Missing(key_path)),
        Err(error) => {
            return Ok(Signer::File {
                path: key_path,
                reason: chain(&error),
            });
        }
    };
    Ok(match Authority::load(found.certificate.to_pem().as_bytes(), &pem) {
        Ok(authority) => Signer::Ready(Box::new(authority)),
        Err(source) => {
            let path = match source {
                authority::Error::Key(_) | authority::Error::OtherKey => key_path,
                _ => path,
            };
            Signer::Unusable { path, source }
        }
    })
}

fn leaf(
    machine: &Machine,
    entry: Entry,
    owner: Owner,
    signers: &BTreeMap<String, Signer>,
    now: Timestamp,
) -> Result<Option<Leaf>, Error> {
    let signer = signer_name(&entry, signers);
    let authority = match signers.get(&signer) {
        Some(Signer::Ready(authority)) => Some(authority.certificate()),
        Some(Signer::Missing(_) | Signer::Unusable { .. } | Signer::File { .. }) | None => None,
    };
    let taken_over = machine.leaf_lifetime.unwrap_or(LIFETIME);
    let lifetime = entry.expected.as_ref().map_or(taken_over, |request| request.lifetime);
    let would_end = authority.map(|signer| (now + lifetime).min(signer.details().not_after));
    let read = entry.read();
    let path = || entry.store.certificate_file().to_owned();
    let (state, certificate, key, reason) = match read {
        Err(error) if error.is_denied() => return Err(Error::Denied { path: path() }),
        Err(error) => (State::Unreadable, None, key_beside(&entry.store), Some(chain(&error))),
        // On a node of kubeadm's it need not be there.
        Ok(None) if entry.expected.is_none() => return Ok(None),
        Ok(None) => (State::Missing, None, key_beside(&entry.store), None),
        Ok(Some(Found { certificate, key, .. })) => match key {
            KeyState::Denied => return Err(Error::Denied { path: path() }),
            KeyState::Absent | KeyState::Unreadable(_) => (State::NoKey, Some(certificate), None, None),
            KeyState::Other => (State::OtherKey, Some(certificate), key_beside(&entry.store), None),
            KeyState::Matches(key) => {
                let issued = authority.is_none_or(|signer| certificate.check_issued_by(signer).is_ok());
                let says = entry
                    .expected
                    .as_ref()
                    .is_none_or(|request| pki_folder::says(&certificate, request, &key));
                let state = match (issued, says) {
                    (false, _) => State::OtherSigner,
                    (true, false) => State::SaysElse,
                    (true, true) => State::Good,
                };
                (state, Some(certificate), Some(key), None)
            }
        },
    };
    let seen = Seen {
        name: entry.name.clone(),
        owner,
        state,
        ends: certificate.as_ref().map(|certificate| certificate.details().not_after),
        would_end,
        has_key: key.is_some(),
    };
    Ok(Some(Leaf {
        entry,
        certificate,
        key,
        reason,
        signer,
        seen,
    }))
}

/// Who signs a leaf. The kubelet's client certificate is signed by an authority of its own once the root is not trusted for it
/// any more.
fn signer_name(entry: &Entry, signers: &BTreeMap<String, Signer>) -> String {
    let named = entry.signer.clone().unwrap_or_default();
    let Some(bundle) = entry.bundle.as_ref().filter(|_| entry.role == Role::KubeletClient) else {
        return named;
    };
    let trusted = atomic_file::if_there(std::fs::read(bundle)).ok().flatten();
    let Some(trusted) = trusted.and_then(|pem| Certificate::bundle_from_pem(&pem).ok()) else {
        return named;
    };
    let is_trusted = |name: &str| match signers.get(name) {
        Some(Signer::Ready(authority)) => trusted.iter().any(|one| one.der() == authority.certificate().der()),
        Some(Signer::Missing(_) | Signer::Unusable { .. } | Signer::File { .. }) | None => false,
    };
    let own = "kubelet-client-ca";
    if !is_trusted(&named) && is_trusted(own) {
        own.to_owned()
    } else {
        named
    }
}

/// The key that lies in a file of its own, whatever the certificate beside it is.
fn key_beside(store: &Store) -> Option<Key> {
    match store {
        Store::Pair { key, .. } => Key::from_pem(&pki_folder::read(key).ok()??).ok(),
        Store::Kubeconfig(_) | Store::Together(_) | Store::Bundle(_) => None,
    }
}
