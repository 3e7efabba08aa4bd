//! Secret `stratum-certs` on the API server: minting a grant, opening one, and the concern that drops those that are gone.
//! The decisions are in [`crate::reconcilers::grants`].
//!
//! Whatever is decided by the bootstrap tokens is decided in this order: the Secret is read, then all tokens are listed, then
//! the Secret is written if it is still as it was read. A token is made before its grant, so a list that begins after the
//! read knows the token of every entry there was; in the other order a grant that is minted in between would look
//! revoked.
//!
//! Nothing here is logged but ids of tokens, which are their public half. Answers with the data of Secrets are cleared
//! from memory once they are read.

pub mod changing;
pub mod guard;
pub mod join;
pub mod minting;
pub mod pruning;
pub mod rekeying;
mod store;
