//! The kubelet's client certificate, in the store that the kubelet itself renews it in.
//!
//! Its files are named and made as client-go's certificate store does (`util/certificate/certificate_store.go`):
//! `kubelet-client-DATE.pem` holds the certificate, then the key, and `kubelet-client-current.pem` is a link to the latest.
//! A plain file in the link's place would be read, but never renewed: the store refuses to replace it.

use std::path::PathBuf;

use jiff::Timestamp;
use zeroize::Zeroizing;

use super::super::atomic_file::{Access, Content, NewFile};
use super::super::layout::Layout;
use super::super::pki_folder::{self, Folder};
use super::{Error, KUBELET_CLIENT_BUNDLE};
use crate::pki::authority::Authority;
use crate::pki::certificate::{self, Certificate};
use crate::pki::key::Key;
use crate::pki::leaf::Request;

/// Sees to it that the kubelet has a certificate it can begin with. One that is good stays until it has expired: the
/// kubelet renews it long before, and we would race it.
pub(super) fn prepare(
    folder: &mut Folder,
    layout: &Layout,
    signer: &Authority,
    request: &Request,
    now: Timestamp,
) -> Result<(), Error> {
    let current = layout.kubelet_client();
    let found = pki_folder::read(&current)?;
    let good = found
        .as_deref()
        .and_then(|pem| parse(pem))
        .filter(|(certificate, key)| pki_folder::says(certificate, request, key) && certificate.is_in_date(now));
    if let (Some(pem), Some((certificate, _))) = (&found, &good)
        && is_trusted(folder, certificate, signer)?
    {
        if !current.is_symlink() {
            put(folder, layout, pem, now);
        }
        return Ok(());
    }
    let key = folder.new_key(&current)?;
    let certificate = folder.issue(&current, signer, request, &key)?;
    let (certificate, key) = (certificate.to_pem(), key.to_pem());
    let both = Zeroizing::new([certificate.as_bytes(), key.expose().as_bytes()].concat());
    put(folder, layout, &both, now);
    Ok(())
}

/// Puts what somebody else has issued for `key` there.
pub(super) fn take(folder: &mut Folder, layout: &Layout, chain: &[u8], key: &Key, now: Timestamp) -> Result<(), Error> {
    let path = layout.kubelet_client();
    let issued = certificate(chain).map_err(|source| Error::Certificate {
        path: path.clone(),
        source,
    })?;
    if issued.public_key_der() != key.public_key_der() {
        return Err(Error::Foreign { path });
    }
    let both = Zeroizing::new([chain, key.to_pem().expose().as_bytes()].concat());
    put(folder, layout, &both, now);
    Ok(())
}

/// The certificate and the key of one file.
pub(super) fn parse(pem: &[u8]) -> Option<(Certificate, Key)> {
    Some((certificate(pem).ok()?, Key::from_pem(pem).ok()?))
}

/// The certificate of such a file: its first. Others would be of authorities in between.
pub(super) fn certificate(pem: &[u8]) -> Result<Certificate, certificate::Error> {
    let blocks = pem::parse_many(pem).map_err(certificate::Error::Pem)?;
    let leaf = blocks.iter().find(|block| block.tag() == "CERTIFICATE");
    Certificate::from_der(leaf.ok_or(certificate::Error::Missing)?.contents())
}

/// Signed by the signer of today, or by one that the API server takes kubelets' certificates from: in a migration of that
/// authority the kubelet may be ahead of us.
fn is_trusted(folder: &Folder, certificate: &Certificate, signer: &Authority) -> Result<bool, Error> {
    if certificate.check_issued_by(signer.certificate()).is_ok() {
        return Ok(true);
    }
    let path = folder.file(KUBELET_CLIENT_BUNDLE);
    let Some(pem) = pki_folder::read(&path)? else {
        return Ok(false);
    };
    let bundle = Certificate::bundle_from_pem(&pem).map_err(|source| Error::Certificate { path, source })?;
    Ok(bundle
        .iter()
        .any(|trusted| certificate.check_issued_by(trusted).is_ok()))
}

fn put(folder: &mut Folder, layout: &Layout, pem: &[u8], now: Timestamp) {
    for NewFile { path, content } in kubelet_client_files(layout, pem, now) {
        match content {
            Content::Bytes(bytes, access) | Content::Replacement(bytes, access) => folder.put(path, &bytes, access),
            Content::Link(target) => folder.put_link(path, target),
        }
    }
}

/// The files that make PEM data of a certificate and its key the kubelet's latest: a dated one, and the link to it.
#[must_use]
pub fn kubelet_client_files(layout: &Layout, pem: &[u8], now: Timestamp) -> [NewFile; 2] {
    let name = PathBuf::from(format!("kubelet-client-{}.pem", now.strftime("%Y-%m-%d-%H-%M-%S")));
    [
        NewFile {
            path: layout.kubelet_pki().join(&name),
            content: Content::Bytes(Zeroizing::new(pem.to_vec()), Access::Secret),
        },
        // Within the folder, so that it leads to the same file wherever the folder is mounted.
        NewFile {
            path: layout.kubelet_client(),
            content: Content::Link(name),
        },
    ]
}
