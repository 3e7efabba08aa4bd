//! Gives a kubeconfig of anybody's another client certificate and key, and keeps everything else: the server, whom it
//! trusts, other users and contexts, and, where only the data changes, comments and order too.

use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};
use zeroize::Zeroizing;

use super::super::atomic_file::{self, Access};
use super::read::{malformed, parse};
use super::{Error, text};

/// What the user of the current context shall have.
pub enum Client<'a> {
    /// PEM data in the kubeconfig itself, as kubeadm has it.
    Embedded {
        /// The client certificate.
        certificate: &'a [u8],
        /// The client key.
        key: &'a [u8],
    },
    /// The paths of PEM files.
    Files {
        /// The client certificate.
        certificate: &'a Path,
        /// The client key.
        key: &'a Path,
    },
}

const CERTIFICATE: &str = "client-certificate";
const CERTIFICATE_DATA: &str = "client-certificate-data";
const KEY: &str = "client-key";
const KEY_DATA: &str = "client-key-data";

/// The two fields that are set, and the two that would contradict them.
type Fields = ([(&'static str, String); 2], [&'static str; 2]);

impl Client<'_> {
    fn fields(&self) -> Result<Fields, Error> {
        match self {
            Self::Embedded { certificate, key } => Ok((
                [
                    (CERTIFICATE_DATA, STANDARD.encode(certificate)),
                    (KEY_DATA, STANDARD.encode(key)),
                ],
                [CERTIFICATE, KEY],
            )),
            Self::Files { certificate, key } => Ok((
                [
                    (CERTIFICATE, text(certificate)?.to_owned()),
                    (KEY, text(key)?.to_owned()),
                ],
                [CERTIFICATE_DATA, KEY_DATA],
            )),
        }
    }
}

/// Replaces the client certificate and key in the kubeconfig at `path`, mode 0600. Says whether it had to be written; a
/// link stays one.
///
/// # Errors
/// When it cannot be read, says nothing about its user, or cannot be written.
pub fn replace_client(path: &Path, client: &Client<'_>) -> Result<bool, Error> {
    let read = |source| Error::Read {
        path: path.to_owned(),
        source,
    };
    let target = path.canonicalize().map_err(read)?;
    let bytes = Zeroizing::new(std::fs::read(&target).map_err(read)?);
    let old = std::str::from_utf8(&bytes).map_err(|_| malformed(path, "it is not UTF-8"))?;
    let new = with_client(path, old, client)?;
    Ok(atomic_file::write_if_changed(&target, new.as_bytes(), Access::Secret)?)
}

/// The text `old` of the kubeconfig at `path` with another client certificate and key.
///
/// # Errors
/// When it is no kubeconfig, or says nothing about its user; for a path that is not absolute or not UTF-8.
pub fn with_client(path: &Path, old: &str, client: &Client<'_>) -> Result<Zeroizing<String>, Error> {
    let (set, drop) = client.fields()?;
    let mut wanted: Value = parse(path, old)?;
    let user = user(path, &mut wanted)?;
    let mut edited = Zeroizing::new(old.to_owned());
    for (field, value) in &set {
        let new = Value::String(value.clone());
        if let Some(Value::String(present)) = user.insert((*field).to_owned(), new) {
            *edited = replace_scalar(&edited, field, &present, value);
        }
    }
    for field in drop {
        user.remove(field);
    }
    if parse::<Value>(path, &edited).is_ok_and(|edited| edited == wanted) {
        return Ok(edited);
    }
    // Of another form than expected: written anew from its meaning.
    let yaml = serde_saphyr::to_string(&wanted).map_err(|error| Error::Yaml {
        path: path.to_owned(),
        source: Box::new(error),
    })?;
    Ok(Zeroizing::new(yaml))
}

/// The fields of the current context's user.
fn user<'a>(path: &Path, document: &'a mut Value) -> Result<&'a mut Map<String, Value>, Error> {
    let word = |value: &Value| value.as_str().filter(|text| !text.is_empty()).map(str::to_owned);
    let list = |document: &Value, field: &str| {
        document
            .get(field)
            .and_then(Value::as_array)
            .cloned()
            .unwrap_or_default()
    };
    let contexts = list(document, "contexts");
    let context = match word(&document["current-context"]) {
        Some(name) => contexts.iter().find(|context| context["name"] == *name),
        None if contexts.len() == 1 => contexts.first(),
        None => None,
    };
    let name = context.and_then(|context| word(&context["context"]["user"]));
    let name = name.ok_or_else(|| malformed(path, "its current context names no user"))?;
    let users = document.get_mut("users").and_then(Value::as_array_mut);
    let user = users.and_then(|users| users.iter_mut().find(|user| user["name"] == *name));
    let user = user.and_then(Value::as_object_mut);
    let user = user.ok_or_else(|| malformed(path, format!("it names user {name:?} and defines none")))?;
    let fields = user.entry("user").or_insert(Value::Null);
    if fields.is_null() {
        *fields = Value::Object(Map::new());
    }
    let fields = fields.as_object_mut();
    fields.ok_or_else(|| malformed(path, format!("user {name:?} is not what it is in a kubeconfig")))
}

/// Replaces `FIELD: OLD` by `FIELD: NEW` where it stands on one line. Base64 and paths need no quotes to be told apart.
pub(super) fn replace_scalar(text: &str, field: &str, old: &str, new: &str) -> String {
    let mut edited = String::with_capacity(text.len() + new.len());
    for line in text.split_inclusive('\n') {
        let content = line.trim_end_matches(['\n', '\r']);
        let trimmed = content.trim_start_matches([' ', '-']);
        let value = trimmed.strip_prefix(field).and_then(|rest| rest.strip_prefix(':'));
        if value.map(|value| value.trim().trim_matches(['"', '\''])) == Some(old) {
            let head = &content[..content.len() - trimmed.len()];
            edited.push_str(&format!("{head}{field}: {new}{}", &line[content.len()..]));
        } else {
            edited.push_str(line);
        }
    }
    edited
}
