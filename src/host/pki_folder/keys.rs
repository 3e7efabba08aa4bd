//! Keys, made on every processor at once: an RSA key takes a tenth of a second to a second.

use super::super::parallel::on_every_processor;
use crate::pki::key::{self, Key, KeyKind};

/// Keys of these kinds, in their order. RSA keys are made on every processor at once.
///
/// # Errors
/// Only without a source of randomness.
pub fn new_keys(kinds: &[KeyKind]) -> Result<Vec<Key>, key::Error> {
    let numbered: Vec<(usize, KeyKind)> = kinds.iter().copied().enumerate().collect();
    let made = on_every_processor(&numbered, |(number, kind)| (*number, Key::generate(*kind)));
    let mut made: Vec<(usize, Result<Key, key::Error>)> = made;
    made.sort_by_key(|(number, _)| *number);
    made.into_iter().map(|(_, key)| key).collect()
}

/// Keys of one kind.
pub(super) fn generate(kind: KeyKind, count: usize) -> Result<Vec<Key>, key::Error> {
    new_keys(&vec![kind; count])
}
