//! Grants: what lets a machine with a bootstrap token join as a controller.
//!
//! Secret `kube-system/stratum-certs` holds one entry for each live grant, under the id of its token; beside them may stand
//! the legacy entry `certs`, which one key opens for every joiner, and keys of others. An [`entry`] is the CA material,
//! sealed under a certificate key that is told once. What becomes of entries is decided in [`plan`]: minting adds one and
//! drops those whose [`token`] is gone in the same update, and the operator drops them when nobody mints.
//!
//! Which keys of the Secret are entries: a key that is a token id, whose value begins with a [`entry::Head`] that names this
//! very id. The form of the key alone tells nothing, since anybody's own key may have six small letters. What is no entry is
//! neither changed nor removed, and a key that only looks like one is told ([`plan::Prune::foreign`]).

pub mod entry;
pub mod material;
pub mod plan;
pub mod token;

#[cfg(test)]
mod tests;

/// The name of the Secret.
pub const NAME: &str = "stratum-certs";
/// The key of the legacy entry. It is no token id, so no grant can take its place.
pub const LEGACY: &str = "certs";
