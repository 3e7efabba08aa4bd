//! TOML as this program writes it: a header that says whose file it is, then the tables.

use serde::Serialize;

use super::error::Error;

/// The first words of every file of containerd's that this program writes. A file that does not begin with them is
/// somebody else's and is never touched.
pub(super) const MARK: &str = "# Written by stratum";

/// Whether a file is this program's.
pub(super) fn is_ours(bytes: &[u8]) -> bool {
    bytes.starts_with(MARK.as_bytes())
}

/// The text of a file. `hint` ends the header's sentence: where a user changes what is in it.
pub(super) fn text(what: &'static str, hint: &str, value: &impl Serialize) -> Result<String, Error> {
    let body = toml::to_string(value).map_err(|error| Error::Render {
        what,
        source: Box::new(error),
    })?;
    Ok(format!("{MARK}; {hint}.\n{body}"))
}
