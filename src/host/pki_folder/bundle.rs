//! Bundles: several certificates, or several public keys, in one file. Compared as sets of DER, never by name or bytes.

use std::collections::BTreeSet;

use crate::pki::certificate::Certificate;

/// What a bundle holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
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
pub(super) fn widened(kind: Kind, present: Option<&[u8]>, wanted: &[u8]) -> Result<Option<String>, Problem> {
    let present = present.map_or(Ok(Vec::new()), |bytes| read(kind, bytes))?;
    let wanted = read(kind, wanted)?;
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
pub(super) fn read(kind: Kind, bytes: &[u8]) -> Result<Vec<pem::Pem>, Problem> {
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
