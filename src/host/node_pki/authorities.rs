//! What one controller hands to another: the authorities and the service-account key, as files by name.
//!
//! How they travel is no matter of this file: a join grant seals them. What arrives is checked as a whole before the first
//! write, and never takes the place of something else.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use jiff::Timestamp;
use zeroize::Zeroizing;

use super::super::atomic_file::Access;
use super::super::layout::Layout;
use super::super::node_state::EtcdAuthority;
use super::super::pki_folder::{self, Folder};
use super::table::{
    ETCD_BUNDLE, FRONT_PROXY_BUNDLE, KUBELET_CLIENT_BUNDLE, ROOT_BUNDLE, SERVICE_ACCOUNT, SERVICE_ACCOUNT_BUNDLE,
    Signer,
};
use super::{Error, NodeState};
use crate::pki::authority::Authority;
use crate::pki::certificate::Certificate;
use crate::pki::key::{Key, KeyKind};

/// What [`write_authorities`] did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    /// Who signs etcd's certificates in this cluster.
    pub etcd: EtcdAuthority,
    /// The files it wrote.
    pub changed: Vec<PathBuf>,
}

/// Files by their names below the PKI folder, cleared from memory when dropped.
pub type Files = BTreeMap<String, Zeroizing<Vec<u8>>>;

/// The files a joining controller needs.
///
/// # Errors
/// When one is missing here, or is not what it should be: a joiner would only fail later.
pub fn read_authorities(layout: &Layout, state: &NodeState, now: Timestamp) -> Result<Files, Error> {
    let folder = Folder::new(layout.pki(), state.keys, now);
    let etcd = state.etcd.as_ref().map(|etcd| etcd.authority).unwrap_or_default();
    for signer in signers(etcd) {
        if folder.found_authority(signer.name())?.is_none() {
            let [path, _] = folder.pair(signer.name());
            return Err(Error::NoAuthority { path });
        }
    }
    let mut files = Files::new();
    let pairs = signers(etcd).into_iter().map(Signer::name).chain([KUBELET_CLIENT]);
    let names = pairs.flat_map(|name| [format!("{name}.crt"), format!("{name}.key")]);
    let names = names.chain(["key", "pub"].map(|ending| format!("{SERVICE_ACCOUNT}.{ending}")));
    for name in names.chain(BUNDLES.map(str::to_owned)) {
        if let Some(content) = pki_folder::read(&folder.file(&name))? {
            files.insert(name, content);
        } else if name == format!("{SERVICE_ACCOUNT}.key") {
            let path = folder.file(&name);
            return Err(Error::NoAuthority { path });
        }
    }
    Ok(files)
}

/// Puts the files that another controller's [`read_authorities`] gave into place. Bundles that are there grow.
///
/// # Errors
/// Says which file is missing, unknown, unusable, or in the way of another one; nothing has changed then.
pub fn write_authorities<'a>(
    layout: &Layout,
    files: impl IntoIterator<Item = (&'a str, &'a [u8])>,
    now: Timestamp,
) -> Result<Received, Error> {
    let files: BTreeMap<&str, &[u8]> = files.into_iter().collect();
    refuse_unknown(&files)?;
    let etcd = if files.contains_key("etcd/ca.crt") {
        EtcdAuthority::Own
    } else {
        EtcdAuthority::Root
    };
    // No key is made here.
    let mut folder = Folder::new(layout.pki(), KeyKind::default(), now);
    let migrated = files.contains_key("kubelet-client-ca.crt");
    let pairs = signers(etcd).into_iter().map(Signer::name);
    for name in pairs.chain(migrated.then_some(KUBELET_CLIENT)) {
        receive_authority(&mut folder, &files, name, now)?;
    }
    receive_service_account_key(&mut folder, &files)?;
    for name in BUNDLES {
        let Some(pem) = files.get(name) else { continue };
        if name == SERVICE_ACCOUNT_BUNDLE {
            folder.public_keys_pem(name, pem)?;
        } else {
            folder.bundle_pem(name, pem)?;
        }
    }
    let changed = folder.commit()?;
    Ok(Received { etcd, changed })
}

/// Writes whom a worker trusts: the certificates its cluster has told, and no others.
///
/// # Errors
/// When it is no bundle of certificates, or cannot be written.
pub fn write_trust(layout: &Layout, pem: &[u8], now: Timestamp) -> Result<bool, Error> {
    let mut folder = Folder::new(layout.pki(), KeyKind::default(), now);
    let path = folder.file(ROOT_BUNDLE);
    let parse = |pem: &[u8]| Certificate::bundle_from_pem(pem);
    let mut told = parse(pem).map_err(|source| Error::Certificate {
        path: path.clone(),
        source,
    })?;
    let set = |bundle: &[Certificate]| bundle.iter().map(|one| one.der().to_vec()).collect::<BTreeSet<_>>();
    // A file that makes no sense is replaced: what is told now is all that counts.
    let present = pki_folder::read(&path)?.and_then(|present| parse(&present).ok());
    if present.is_some_and(|present| set(&present) == set(&told)) {
        return Ok(false);
    }
    let mut known = BTreeSet::new();
    told.retain(|certificate| known.insert(certificate.der().to_vec()));
    let text: String = told.iter().map(Certificate::to_pem).collect();
    folder.put(path, text.as_bytes(), Access::Public);
    folder.commit()?;
    Ok(true)
}

/// The pair of the authority that a migration gives the kubelets' client certificates.
const KUBELET_CLIENT: &str = "kubelet-client-ca";

const BUNDLES: [&str; 5] = [
    ROOT_BUNDLE,
    ETCD_BUNDLE,
    FRONT_PROXY_BUNDLE,
    KUBELET_CLIENT_BUNDLE,
    SERVICE_ACCOUNT_BUNDLE,
];

fn signers(etcd: EtcdAuthority) -> Vec<Signer> {
    match etcd {
        EtcdAuthority::Own => vec![Signer::Root, Signer::Etcd, Signer::FrontProxy],
        EtcdAuthority::Root => vec![Signer::Root, Signer::FrontProxy],
    }
}

/// Ignoring a file could mean to trust less, or more, than the cluster does.
fn refuse_unknown(files: &BTreeMap<&str, &[u8]>) -> Result<(), Error> {
    let pairs = signers(EtcdAuthority::Own).into_iter().map(Signer::name);
    let known: Vec<String> = pairs
        .chain([KUBELET_CLIENT])
        .flat_map(|name| [format!("{name}.crt"), format!("{name}.key")])
        .chain(["key", "pub"].map(|ending| format!("{SERVICE_ACCOUNT}.{ending}")))
        .chain(BUNDLES.map(str::to_owned))
        .collect();
    match files.keys().find(|name| !known.iter().any(|known| known == *name)) {
        Some(name) => Err(Error::UnknownFile {
            name: (*name).to_owned(),
        }),
        None => Ok(()),
    }
}

fn handed_over<'a>(files: &BTreeMap<&str, &'a [u8]>, name: &str) -> Result<&'a [u8], Error> {
    files
        .get(name)
        .copied()
        .ok_or_else(|| Error::NotHandedOver { name: name.to_owned() })
}

fn receive_authority(
    folder: &mut Folder,
    files: &BTreeMap<&str, &[u8]>,
    pair: &str,
    now: Timestamp,
) -> Result<(), Error> {
    let name = format!("{pair}.crt");
    let (certificate, key) = (handed_over(files, &name)?, handed_over(files, &format!("{pair}.key"))?);
    let authority = match Authority::load(certificate, key) {
        Ok(authority) => authority,
        Err(source) => return Err(Error::ReceivedAuthority { name, source }),
    };
    if !authority.certificate().is_in_date(now) {
        return Err(Error::ReceivedOutOfDate { name });
    }
    let [certificate_file, key_file] = folder.pair(pair);
    let has_key = holds_key(&key_file, authority.key())?;
    let present = pki_folder::read(&certificate_file)?;
    match present.map(|pem| Certificate::from_pem(&pem)) {
        None => folder.put_pair(pair, authority.certificate(), (!has_key).then(|| authority.key())),
        Some(Ok(present)) if present.der() == authority.certificate().der() => {
            if !has_key {
                folder.put_key(pair, authority.key());
            }
        }
        Some(Ok(_) | Err(_)) => return Err(Error::Other { path: certificate_file }),
    }
    Ok(())
}

/// Whether the file already holds this key. Another one is never replaced.
fn holds_key(path: &std::path::Path, key: &Key) -> Result<bool, Error> {
    let Some(pem) = pki_folder::read(path)? else {
        return Ok(false);
    };
    match Key::from_pem(&pem) {
        Ok(present) if present.public_key_der() == key.public_key_der() => Ok(true),
        Ok(_) | Err(_) => Err(Error::Other { path: path.to_owned() }),
    }
}

fn receive_service_account_key(folder: &mut Folder, files: &BTreeMap<&str, &[u8]>) -> Result<(), Error> {
    let name = format!("{SERVICE_ACCOUNT}.key");
    let key = match Key::from_pem(handed_over(files, &name)?) {
        Ok(key) => key,
        Err(source) => return Err(Error::ReceivedKey { name, source }),
    };
    let public_name = format!("{SERVICE_ACCOUNT}.pub");
    if let Some(public) = files.get(public_name.as_str())
        && !pki_folder::is_public_half(public, &key)
    {
        return Err(Error::ReceivedOtherKey { name: public_name });
    }
    let public_file = folder.file(&public_name);
    match pki_folder::read(&public_file)? {
        Some(present) if !pki_folder::is_public_half(&present, &key) => return Err(Error::Other { path: public_file }),
        Some(_) => {}
        None => folder.put(public_file, key.public_key_pem().as_bytes(), Access::Public),
    }
    if !holds_key(&folder.file(&name), &key)? {
        folder.put_key(SERVICE_ACCOUNT, &key);
    }
    Ok(())
}
