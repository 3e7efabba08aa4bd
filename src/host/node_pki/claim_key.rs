//! The key that a machine asks for its kubelet's first certificate with.
//!
//! Its cluster gives the name to whoever has that key, so it is on the disk before anybody is asked: a join that is cut off
//! after it was heard would otherwise have shut itself out of its own name.

use std::path::PathBuf;

use super::super::atomic_file::{self, Access};
use super::super::layout::Layout;
use super::super::pki_folder;
use super::Error;
use crate::pki::key::{self, Key, KeyKind};

/// The key of a join that did not come to its end. One that cannot be read any more is none.
///
/// # Errors
/// When the file is there and the system does not give it.
pub fn kept_claim_key(layout: &Layout) -> Result<Option<Key>, Error> {
    let kept = pki_folder::read(&layout.claim_key())?;
    Ok(kept.and_then(|pem| Key::from_pem(&pem).ok()))
}

/// That key, or a new one, which is kept from now on.
///
/// # Errors
/// When it cannot be made or written.
pub fn claim_key(layout: &Layout, kind: KeyKind) -> Result<Key, Error> {
    if let Some(kept) = kept_claim_key(layout)?.filter(|kept| kept.kind() == kind) {
        return Ok(kept);
    }
    let path = layout.claim_key();
    let made = Key::generate(kind).map_err(|source| failed(path.clone(), source))?;
    atomic_file::write(&path, made.to_pem().expose().as_bytes(), Access::Secret)?;
    Ok(made)
}

/// Removes it: the kubelet has it, in a file of its own.
///
/// # Errors
/// When it cannot be removed.
pub fn forget_claim_key(layout: &Layout) -> Result<(), Error> {
    atomic_file::remove(&layout.claim_key())?;
    Ok(())
}

fn failed(path: PathBuf, source: key::Error) -> Error {
    pki_folder::Error::Key { path, source }.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_try_has_the_key_of_the_first() {
        let folder = tempfile::tempdir().unwrap();
        let layout = Layout::under(folder.path());
        atomic_file::create_folder(&layout.state(), Access::Secret).unwrap();
        assert!(kept_claim_key(&layout).unwrap().is_none());
        let kind = KeyKind::default();
        let first = claim_key(&layout, kind).unwrap().public_key_der();
        assert_eq!(claim_key(&layout, kind).unwrap().public_key_der(), first);
        assert_eq!(kept_claim_key(&layout).unwrap().unwrap().public_key_der(), first);
        // Asked for another kind, or cut off: the old one is of no use.
        assert_ne!(claim_key(&layout, KeyKind::EcdsaP384).unwrap().public_key_der(), first);
        atomic_file::write(&layout.claim_key(), b"-----BEGIN", Access::Secret).unwrap();
        assert!(kept_claim_key(&layout).unwrap().is_none());
        claim_key(&layout, kind).unwrap();
        forget_claim_key(&layout).unwrap();
        forget_claim_key(&layout).unwrap();
        assert!(!layout.claim_key().exists());
    }
}
