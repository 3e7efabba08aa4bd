//! Bundles: several certificates, or several public keys, in one file. Compared as sets of DER, never by name or bytes.

use std::collections::BTreeSet;

use super::super::atomic_file::Access;
use super::{Error, Folder};
use crate::pki::certificate::Certificate;
use crate::pki::key::Key;

impl Folder {
    /// Sees to it that the bundle in the file `name` holds these certificates; what else it holds stays.
    ///
    /// # Errors
    /// When the file is there and is no bundle: it is never taken for an empty one.
    pub fn bundle(&mut self, name: &str, certificates: &[&Certificate]) -> Result<(), Error> {
        let blocks: String = certificates.iter().map(|certificate| certificate.to_pem()).collect();
        self.bundle_pem(name, blocks.as_bytes())
    }

    /// The same, with the certificates as PEM.
    ///
    /// # Errors
    /// As [`Folder::bundle`], and when `pem` holds something else.
    pub fn bundle_pem(&mut self, name: &str, pem: &[u8]) -> Result<(), Error> {
        self.widen(name, Kind::Certificates, pem)
    }

    /// The same for a file of public keys.
    ///
    /// # Errors
    /// As [`Folder::bundle`].
    pub fn public_keys(&mut self, name: &str, keys: &[&Key]) -> Result<(), Error> {
        let blocks: String = keys.iter().map(|key| key.public_key_pem()).collect();
        self.public_keys_pem(name, blocks.as_bytes())
    }

    /// The same, with the keys as PEM.
    ///
    /// # Errors
    /// As [`Folder::bundle_pem`].
    pub fn public_keys_pem(&mut self, name: &str, pem: &[u8]) -> Result<(), Error> {
        self.widen(name, Kind::PublicKeys, pem)
    }

    /// Checks that the bundle in the file `name`, if it is there, can be read. Says whether it is.
    ///
    /// # Errors
    /// When it is there and is none.
    pub fn has_bundle(&self, name: &str) -> Result<bool, Error> {
        let path = self.file(name);
        let Some(present) = super::read(&path)? else {
            return Ok(false);
        };
        match read_blocks(Kind::Certificates, &present) {
            Ok(_) => Ok(true),
            Err(source) => Err(Error::Bundle { path, source }),
        }
    }

    fn widen(&mut self, name: &str, kind: Kind, wanted: &[u8]) -> Result<(), Error> {
        let path = self.file(name);
        let present = super::read(&path)?;
        let widened = widened(kind, present.as_deref().map(Vec::as_slice), wanted);
        match widened {
            Ok(Some(text)) => self.put(path, text.as_bytes(), Access::Public),
            Ok(None) => {}
            Err(source) => return Err(Error::Bundle { path, source }),
        }
        Ok(())
    }
}

/// What a bundle holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Certificates of authorities.
    Certificates,
    /// Keys that tokens are verified with. The API server takes certificates for keys as well.
    PublicKeys,
}

type Problem = Box<dyn std::error::Error + Send + Sync>;

/// The text of the bundle `present` with what it lacks of `wanted` at its end; `None` when it lacks nothing.
///
/// # Errors
/// When either holds nothing, or something else: whatever is trusted by `present` would be forgotten.
fn widened(kind: Kind, present: Option<&[u8]>, wanted: &[u8]) -> Result<Option<String>, Problem> {
    let present = present.map_or(Ok(Vec::new()), |bytes| read_blocks(kind, bytes))?;
    let wanted = read_blocks(kind, wanted)?;
    let mut known: BTreeSet<&[u8]> = present.iter().map(pem::Pem::contents).collect();
    let missing: Vec<&pem::Pem> = wanted.iter().filter(|block| known.insert(block.contents())).collect();
    if missing.is_empty() {
        return Ok(None);
    }
    let config = pem::EncodeConfig::new().set_line_ending(pem::LineEnding::LF);
    let all = present.iter().chain(missing);
    Ok(Some(all.map(|block| pem::encode_config(block, config)).collect()))
}

/// The blocks of a bundle, at least one, all of its kind.
fn read_blocks(kind: Kind, bytes: &[u8]) -> Result<Vec<pem::Pem>, Problem> {
    let blocks = pem::parse_many(bytes)?;
    match kind {
        Kind::Certificates => {
            Certificate::bundle_from_pem(bytes)?;
        }
        Kind::PublicKeys => {
            // The reader skips what it cannot make a block of.
            let begun = bytes.windows(BEGIN.len()).filter(|window| *window == BEGIN).count();
            if blocks.is_empty() || blocks.len() != begun {
                return Err("a block in it cannot be read".into());
            }
            let is_public = |block: &&pem::Pem| ["PUBLIC KEY", "RSA PUBLIC KEY", "CERTIFICATE"].contains(&block.tag());
            if let Some(foreign) = blocks.iter().find(|block| !is_public(block)) {
                return Err(format!("a {} block where only public keys belong", foreign.tag()).into());
            }
        }
    }
    Ok(blocks)
}

const BEGIN: &[u8] = b"-----BEGIN ";
