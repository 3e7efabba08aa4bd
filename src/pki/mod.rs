//! X.509, and sealing, as pure functions: bytes, keys and time in, bytes out.
//!
//! Nothing here reads a clock, a file or the network, and nothing internal is imported. Keys and serial numbers are made
//! in one leaf file, [`key`]; an [`authority`] signs what a [`leaf`] request asks for; a [`certificate`] is the parsed
//! view of what came out, or of what was found; a [`signing_request`] is what somebody else asks for. What has to pass
//! through other hands is [`seal`]ed first; a [`pin`] is how a machine that knows nothing yet tells the right authority, and
//! a [`jws`] how it tells who published it.

pub mod authority;
pub mod certificate;
mod der;
pub mod jws;
pub mod key;
pub mod leaf;
pub mod name;
pub mod pin;
pub mod seal;
pub mod signing_request;

#[cfg(test)]
mod tests;

use jiff::Timestamp;
use time::OffsetDateTime;

/// How far a certificate's start lies in the past, for machines whose clock is a little behind.
pub const BACKDATE: jiff::SignedDuration = jiff::SignedDuration::from_mins(5);

/// A date for rcgen, which speaks the `time` crate. X.509 knows whole seconds only.
fn date(at: Timestamp) -> OffsetDateTime {
    // Every jiff timestamp lies in the years `time` knows.
    OffsetDateTime::from_unix_timestamp(at.as_second()).unwrap_or(OffsetDateTime::UNIX_EPOCH)
}

/// Bytes as lower-case hexadecimal digits.
#[must_use]
pub fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
