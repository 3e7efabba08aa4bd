//! The new files, as values: every certificate signed and verified, and nothing written.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use zeroize::Zeroizing;

use super::error::Error;
use super::observe::{Leaf, Observed};
use crate::host::atomic_file::{Access, Content, NewFile};
use crate::host::certificates::{KUBELET_CLIENT, Machine, Origin, ROOT, Role, Store};
use crate::host::kubeconfig::{self, Client, Source, View};
use crate::host::layout::Identity;
use crate::host::{node_pki, pki_folder};
use crate::pki::certificate::Certificate;
use crate::pki::key::{Key, KeyKind, Serial};
use crate::pki::leaf::{self, LIFETIME, Request, Usage};
use crate::pki::name::{AlternativeName, Subject};
use crate::reconcilers::certificates::reissue::Reissue;

/// What is to be written, in that order.
#[derive(Debug, Default)]
pub(super) struct Issued {
    /// Key, then certificate, pair by pair; then kubeconfigs.
    pub(super) files: Vec<NewFile>,
    /// The new certificates, by name.
    pub(super) certificates: BTreeMap<String, Certificate>,
    /// Why others are not among them: nothing says what they have to say. They are no reason to let the rest expire.
    pub(super) skipped: Vec<Error>,
}

/// The kinds of the keys that these leaves get, in their order.
pub(super) fn kinds(machine: &Machine, observed: &Observed, reissue: &[Reissue]) -> Vec<KeyKind> {
    let kind = |one: &Reissue| match &machine.origin {
        Origin::Stratum(state) => state.keys,
        // As it was; kubeadm's own default where that is not known.
        Origin::Kubeadm => {
            let known = observed.leaf(&one.name).and_then(|leaf| leaf.key.as_ref());
            known.map_or(KeyKind::Rsa2048, Key::kind)
        }
    };
    reissue.iter().filter(|one| one.new_key).map(kind).collect()
}

/// Issues every certificate that is wanted, with the next of `keys` where another key is. `names` are more names of the API
/// server, where they are known from elsewhere than its certificate.
///
/// # Errors
/// Says which cannot be made, and why.
pub(super) fn issue(
    machine: &Machine,
    observed: &Observed,
    reissue: &[Reissue],
    keys: Vec<Key>,
    names: &[AlternativeName],
    now: Timestamp,
) -> Result<Issued, Error> {
    let mut issued = Issued::default();
    let mut texts = Kubeconfigs::default();
    let mut keys = keys.into_iter();
    for one in reissue {
        let Some(leaf) = observed.leaf(&one.name) else {
            continue;
        };
        let signer = observed.signer(&leaf.signer, now)?;
        let fresh = one.new_key.then(|| keys.next()).flatten();
        let key = match (&fresh, &leaf.key) {
            (Some(fresh), _) => fresh,
            (None, Some(kept)) => kept,
            (None, None) => {
                return Err(Error::Key {
                    name: one.name.clone(),
                    source: crate::pki::key::Error::Missing("it is gone since it was looked for".to_owned()),
                });
            }
        };
        let request = match request(machine, leaf, names) {
            Ok(request) => request,
            Err(error @ Error::NothingToCopy { .. }) => {
                issued.skipped.push(error);
                continue;
            }
            Err(error) => return Err(error),
        };
        let serial = Serial::random().map_err(|source| Error::Key {
            name: one.name.clone(),
            source,
        })?;
        let certificate = leaf::issue(signer, &request, key, serial, now).map_err(|source| Error::Issue {
            name: one.name.clone(),
            source,
        })?;
        place(
            machine,
            leaf,
            &certificate,
            key,
            fresh.is_some(),
            now,
            &mut issued.files,
            &mut texts,
        )?;
        issued.certificates.insert(one.name.clone(), certificate);
    }
    if let Origin::Kubeadm = machine.origin {
        follow_trust(machine, &mut texts)?;
        repoint_kubelet(machine, &issued, &mut texts)?;
    }
    issued.files.extend(texts.into_files());
    Ok(issued)
}

/// What a leaf shall say.
fn request(machine: &Machine, leaf: &Leaf, names: &[AlternativeName]) -> Result<Request, Error> {
    if let Some(expected) = &leaf.entry.expected {
        return Ok(expected.clone());
    }
    let name = leaf.seen.name.as_str();
    let certificate = leaf.certificate.as_ref().ok_or_else(|| nothing_to_copy(leaf))?;
    let details = certificate.details();
    let common_name = details.common_name.clone().ok_or_else(|| nothing_to_copy(leaf))?;
    let mut alternative_names = details.alternative_names.clone();
    if name == "apiserver" {
        let more = names.iter().filter(|name| !alternative_names.contains(name));
        let more: Vec<AlternativeName> = more.cloned().collect();
        alternative_names.extend(more);
    }
    let usages = [
        (details.server_auth, Usage::Server),
        (details.client_auth, Usage::Client),
    ];
    Ok(Request {
        subject: Subject {
            common_name,
            organizations: details.organizations.clone(),
        },
        alternative_names,
        usages: usages
            .into_iter()
            .filter(|(has, _)| *has)
            .map(|(_, usage)| usage)
            .collect(),
        lifetime: machine.leaf_lifetime.unwrap_or(LIFETIME),
    })
}

fn nothing_to_copy(leaf: &Leaf) -> Error {
    let name = leaf.seen.name.clone();
    let phase = match name.strip_suffix(".conf") {
        Some(who) => format!("kubeconfig {who}"),
        None if name == KUBELET_CLIENT => "kubeconfig kubelet".to_owned(),
        None => format!("certs {name}"),
    };
    Error::NothingToCopy {
        path: leaf.entry.store.certificate_file().to_owned(),
        reason: leaf
            .reason
            .clone()
            .unwrap_or_else(|| "it has no common name".to_owned()),
        command: format!("kubeadm init phase {phase} --config FILE"),
        name,
    }
}

#[expect(
    clippy::too_many_arguments,
    reason = "one file after another, and nothing of it belongs together"
)]
fn place(
    machine: &Machine,
    leaf: &Leaf,
    certificate: &Certificate,
    key: &Key,
    is_new: bool,
    now: Timestamp,
    files: &mut Vec<NewFile>,
    texts: &mut Kubeconfigs,
) -> Result<(), Error> {
    let pem = certificate.to_pem();
    let key_pem = key.to_pem();
    if leaf.entry.role == Role::KubeletClient {
        let both = Zeroizing::new([pem.as_bytes(), key_pem.expose().as_bytes()].concat());
        files.extend(node_pki::kubelet_client_files(&machine.layout, &both, now));
        return Ok(());
    }
    match &leaf.entry.store {
        Store::Pair {
            certificate: certificate_file,
            key: key_file,
        } => {
            // A key that is kept keeps its file: nobody who reads it now may find it gone.
            if is_new {
                files.push(file(key_file, key_pem.expose().as_bytes(), Access::Secret));
            }
            files.push(file(certificate_file, pem.as_bytes(), Access::Public));
        }
        Store::Kubeconfig(path) => {
            let old = texts.text(path)?;
            let client = Client::Embedded {
                certificate: pem.as_bytes(),
                key: key_pem.expose().as_bytes(),
            };
            let new = kubeconfig::with_client(path, &old, &client)?;
            texts.put(path, new);
        }
        Store::Together(path) => {
            let both = Zeroizing::new([pem.as_bytes(), key_pem.expose().as_bytes()].concat());
            files.push(file(path, &both, Access::Secret));
        }
        Store::Bundle(_) => {}
    }
    Ok(())
}

/// The kubeconfigs of a node of kubeadm's hold a copy of its CA, which nobody else brings up to date.
fn follow_trust(machine: &Machine, texts: &mut Kubeconfigs) -> Result<(), Error> {
    let path = machine.layout.pki().join(format!("{ROOT}.crt"));
    let Ok(Some(authorities)) = pki_folder::read(&path) else {
        return Ok(());
    };
    for entry in machine.entries() {
        let path = match (entry.store, entry.kubeconfig) {
            (Store::Kubeconfig(path), _) | (_, Some(path)) => path,
            (_, None) => continue,
        };
        if !path.exists() {
            continue;
        }
        let old = texts.text(&path)?;
        if let Some(new) = kubeconfig::with_authorities(&path, &old, &authorities)? {
            texts.put(&path, new);
        }
    }
    Ok(())
}

/// A kubelet whose kubeconfig embeds its first certificate, or names the file it was made from, would not start once that has
/// expired, whatever it has renewed since.
fn repoint_kubelet(machine: &Machine, issued: &Issued, texts: &mut Kubeconfigs) -> Result<(), Error> {
    let path = machine.layout.kubeconfig(Identity::Kubelet);
    let current = machine.layout.kubelet_client();
    let is_made = issued.files.iter().any(|file| file.path == current);
    if !path.exists() || !(is_made || current.exists()) {
        return Ok(());
    }
    let old = texts.text(&path)?;
    let view = View::parse(&path, &old)?;
    let names_current = |source: &Option<Source>| matches!(source, Some(Source::File(file)) if *file == current);
    if names_current(&view.client_certificate) && names_current(&view.client_key) {
        return Ok(());
    }
    let client = Client::Files {
        certificate: &current,
        key: &current,
    };
    let new = kubeconfig::with_client(&path, &old, &client)?;
    texts.put(&path, new);
    Ok(())
}

/// The texts of kubeconfigs that change, each as often as there is a reason.
#[derive(Default)]
struct Kubeconfigs(BTreeMap<PathBuf, Zeroizing<String>>);

impl Kubeconfigs {
    fn text(&self, path: &Path) -> Result<Zeroizing<String>, Error> {
        if let Some(text) = self.0.get(path) {
            return Ok(text.clone());
        }
        let read = |source| kubeconfig::Error::Read {
            path: path.to_owned(),
            source,
        };
        Ok(Zeroizing::new(std::fs::read_to_string(path).map_err(read)?))
    }

    fn put(&mut self, path: &Path, text: Zeroizing<String>) {
        self.0.insert(path.to_owned(), text);
    }

    fn into_files(self) -> impl Iterator<Item = NewFile> {
        let files = self.0.into_iter();
        files.map(|(path, text)| file(&path, text.as_bytes(), Access::Secret))
    }
}

/// A file where it really is: a link in its place stays one, and whoever watches what it leads to sees the change.
fn file(path: &Path, bytes: &[u8], access: Access) -> NewFile {
    let is_link = path.symlink_metadata().is_ok_and(|metadata| metadata.is_symlink());
    let real = if is_link { path.canonicalize().ok() } else { None };
    NewFile {
        path: real.unwrap_or_else(|| path.to_owned()),
        content: Content::Replacement(Zeroizing::new(bytes.to_vec()), access),
    }
}
