//! Reading and changing the Secret, and listing bootstrap tokens.

use std::collections::BTreeMap;

use http::Method;
use k8s_openapi::ByteString;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Client;
use serde::Deserialize;
use serde::de::{DeserializeOwned, Error, IgnoredAny};
use serde_json::{Map, Value, json};
use zeroize::{Zeroize, Zeroizing};

use crate::controllers::cluster::{self, CallError, CallErrorKind};
use crate::controllers::hands;
use crate::reconcilers::grants::plan::{Rekey, Stored, Update};
use crate::reconcilers::grants::token::{Expiration, SECRET_TYPE, Token, TokenId, Tokens};
use crate::reconcilers::grants::{LEGACY, NAME};
use crate::reconcilers::object::Uid;

/// Tokens in one page of a list.
const PAGE: u32 = 500;

/// The Secret as it was read, without its bytes.
pub(super) struct Read {
    pub(super) stored: Stored,
    pub(super) terminating: bool,
    resource_version: String,
}

/// How a write ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Written {
    /// It is stored.
    Stored,
    /// Somebody else wrote or deleted the Secret since it was read; nothing is changed.
    LostRace,
}

/// Reads the Secret; none when there is none.
pub(super) async fn read(client: &Client, namespace: &str) -> Result<Option<Read>, CallError> {
    let Some(secret) = read_data(client, namespace).await? else {
        return Ok(None);
    };
    let owners = secret.metadata.owner_references.clone().unwrap_or_default();
    Ok(Some(Read {
        stored: Stored::read(&secret.data, owners),
        terminating: secret.metadata.deletion_timestamp.is_some(),
        resource_version: secret.metadata.resource_version.clone(),
    }))
}

/// Reads the Secret with its data, for whoever opens an entry; none when there is none.
pub(super) async fn read_data(client: &Client, namespace: &str) -> Result<Option<Secret>, CallError> {
    match fetch::<Secret>(client, &format!("{}/{NAME}", secrets(namespace))).await {
        Ok(secret) => Ok(Some(secret)),
        Err(error) if error.kind() == CallErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// All bootstrap tokens. A page that fails fails the list: a token that is not in it would look deleted.
pub(super) async fn list_tokens(client: &Client, namespace: &str) -> Result<Tokens, CallError> {
    // Without a resourceVersion the API server answers with what is stored now, and with one state for all pages.
    let first = format!(
        "{}?limit={PAGE}&fieldSelector={}",
        secrets(namespace),
        cluster::segment(&format!("type={SECRET_TYPE}"))
    );
    let mut path = first.clone();
    let mut all = Vec::new();
    loop {
        let page: Page = fetch(client, &path).await?;
        for secret in page.items.unwrap_or_default() {
            all.extend(TokenId::of_secret(&secret.metadata.name).map(|id| (id, secret.token())));
        }
        match page.metadata.more.filter(|more| !more.is_empty()) {
            Some(more) => path = format!("{first}&continue={}", cluster::segment(&more)),
            None => return Ok(Tokens::complete(all)),
        }
    }
}

/// What a write changes: keys of the data, null for one that goes, and the owners unless they are right.
pub(super) struct Change<'a> {
    data: Map<String, Value>,
    owners: Option<&'a [OwnerReference]>,
}

impl<'a> From<&'a Update> for Change<'a> {
    fn from(update: &'a Update) -> Self {
        let Update { add, drop, owners } = update;
        let removed = drop.keys().map(|id| (id.to_string(), Value::Null));
        let added = add
            .iter()
            .map(|(id, entry)| (id.to_string(), json!(ByteString(entry.clone()))));
        Self {
            data: removed.chain(added).collect(),
            owners: owners.as_deref(),
        }
    }
}

impl<'a> From<&'a Rekey> for Change<'a> {
    fn from(rekey: &'a Rekey) -> Self {
        let Rekey {
            shared,
            drop,
            live: _,
            owners,
        } = rekey;
        let removed = drop.iter().map(|id| (id.to_string(), Value::Null));
        let shared = (LEGACY.to_owned(), json!(ByteString(shared.clone())));
        Self {
            data: removed.chain([shared]).collect(),
            owners: owners.as_deref(),
        }
    }
}

/// Carries a change out on the Secret that was read, or makes it.
pub(super) async fn write<'a>(
    client: &Client,
    namespace: &str,
    read: Option<&Read>,
    change: impl Into<Change<'a>>,
) -> Result<Written, CallError> {
    let change = change.into();
    let collection = secrets(namespace);
    let result = match read {
        Some(read) => hands::merge(client, &format!("{collection}/{NAME}"), &patch(read, change)).await,
        None => hands::store(client, &collection, NAME, false, &new(namespace, change)).await,
    };
    match result {
        Ok(_) => Ok(Written::Stored),
        Err(error) if error.kind() == CallErrorKind::Conflict => Ok(Written::LostRace),
        // Deleted since. To a create the same answer says that the namespace is missing, which no further try changes.
        Err(error) if error.kind() == CallErrorKind::NotFound && read.is_some() => Ok(Written::LostRace),
        Err(error) => Err(error),
    }
}

/// Only what changes, and the state it was decided on: whatever else stands in the Secret is not even sent.
fn patch(read: &Read, Change { data, owners }: Change<'_>) -> Value {
    let mut patch = json!({"metadata": {"resourceVersion": read.resource_version}});
    if let Some(owners) = owners {
        patch["metadata"]["ownerReferences"] = json!(owners);
    }
    if !data.is_empty() {
        patch["data"] = data.into();
    }
    patch
}

fn new(namespace: &str, Change { mut data, owners }: Change<'_>) -> Value {
    data.retain(|_, value| !value.is_null());
    json!({
        "apiVersion": "v1", "kind": "Secret", "type": "Opaque", "data": data,
        "metadata": {"name": NAME, "namespace": namespace, "ownerReferences": owners},
    })
}

fn secrets(namespace: &str) -> String {
    cluster::collection_path("", "v1", "secrets", Some(namespace))
}

/// Reads an answer and clears it. An error does not repeat what stands there.
async fn fetch<T: DeserializeOwned>(client: &Client, path: &str) -> Result<T, CallError> {
    let request = cluster::request(Method::GET, path, "application/json", None);
    let body = Zeroizing::new(cluster::call(client, request).await?.body);
    parse(&body).map_err(|source| CallError::Unreadable {
        method: Method::GET,
        path: path.split('?').next().unwrap_or(path).to_owned(),
        source,
    })
}

fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, serde_json::Error> {
    serde_json::from_slice(body).map_err(|error| {
        let place = format!(
            "not the expected form at line {}, column {}",
            error.line(),
            error.column()
        );
        serde_json::Error::custom(place)
    })
}

/// A Secret with its data, cleared when dropped.
#[derive(Deserialize)]
pub(super) struct Secret {
    metadata: Metadata,
    #[serde(default, deserialize_with = "data_or_none")]
    pub(super) data: BTreeMap<String, ByteString>,
}

impl Drop for Secret {
    fn drop(&mut self) {
        self.data.values_mut().for_each(|value| value.0.zeroize());
    }
}

/// Go writes an empty map as null.
fn data_or_none<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<String, ByteString>, D::Error> {
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    resource_version: String,
    owner_references: Option<Vec<OwnerReference>>,
    deletion_timestamp: Option<IgnoredAny>,
}

/// One page of a list. It says that it is one: an answer of anything else, without items, would be the absence of all
/// tokens.
#[derive(Deserialize)]
struct Page {
    #[serde(rename = "kind")]
    _kind: Kind,
    metadata: PageMetadata,
    // Go writes an empty list as null.
    items: Option<Vec<TokenSecret>>,
}

#[derive(Deserialize)]
enum Kind {
    SecretList,
}

#[derive(Deserialize)]
struct PageMetadata {
    #[serde(rename = "continue")]
    more: Option<String>,
}

/// What is read of a token: not its secret half.
#[derive(Deserialize)]
struct TokenSecret {
    metadata: TokenMetadata,
    #[serde(default)]
    data: Option<TokenData>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct TokenMetadata {
    name: String,
    uid: Uid,
    deletion_timestamp: Option<IgnoredAny>,
}

#[derive(Default, Deserialize)]
struct TokenData {
    expiration: Option<ByteString>,
}

impl TokenSecret {
    fn token(self) -> Token {
        let expiration = self.data.unwrap_or_default().expiration;
        Token {
            uid: self.metadata.uid,
            expiration: Expiration::parse(expiration.as_ref().map(|ByteString(text)| text.as_slice())),
            terminating: self.metadata.deletion_timestamp.is_some(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reconcilers::grants::token::Gone;

    #[test]
    fn only_a_list_is_the_absence_of_tokens() {
        let none = r#"{"kind":"SecretList","apiVersion":"v1","metadata":{},"items":null}"#;
        assert!(parse::<Page>(none.as_bytes()).unwrap().items.is_none());
        for bad in [
            "{}",
            "null",
            r#"{"metadata":{},"items":[]}"#,
            r#"{"kind":"SecretList"}"#,
            r#"{"kind":"Status","metadata":{}}"#,
            r#"{"kind":"SecretList","metadata":{},"items":[{"metadata":{"name":"bootstrap-token-abcdef"}}]}"#,
            r#"{"kind":"SecretList","metadata":{},"items":["#,
        ] {
            assert!(parse::<Page>(bad.as_bytes()).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_token_is_read_and_what_cannot_be_read_is_not_repeated() {
        let item = |expiration: &str| {
            format!(
                r#"{{"kind":"SecretList","metadata":{{"continue":"more"}},"items":[{{"metadata":{{"name":"x","uid":"u","deletionTimestamp":"d"}},"data":{{"token-secret":"c2VjcmV0","expiration":{expiration}}}}}]}}"#
            )
        };
        let page: Page = parse(item("\"bmV2ZXI=\"").as_bytes()).unwrap();
        assert_eq!(page.metadata.more.as_deref(), Some("more"));
        let token = page.items.unwrap().pop().unwrap().token();
        let expected = Token {
            uid: Uid("u".to_owned()),
            expiration: Expiration::Unreadable,
            terminating: true,
        };
        assert_eq!(token, expected);
        let Err(error) = parse::<Page>(item("20260601").as_bytes()) else {
            panic!("a number is no text")
        };
        let error = error.to_string();
        assert!(!error.contains("20260601") && error.contains("line 1"), "{error}");
    }

    #[test]
    fn a_patch_names_what_changes_and_the_state_it_was_decided_on() {
        let read = Read {
            stored: Stored::default(),
            terminating: false,
            resource_version: "7".to_owned(),
        };
        let id = |text: &str| text.parse::<TokenId>().unwrap();
        let mut update = Update {
            drop: [(id("aaaaaa"), Gone::Revoked)].into(),
            ..Update::default()
        };
        let expected = json!({"metadata": {"resourceVersion": "7"}, "data": {"aaaaaa": null}});
        assert_eq!(patch(&read, (&update).into()), expected);
        update.owners = Some(Vec::new());
        update.add = Some((id("bbbbbb"), b"entry".to_vec()));
        let expected = json!({
            "metadata": {"resourceVersion": "7", "ownerReferences": []},
            "data": {"aaaaaa": null, "bbbbbb": "ZW50cnk="},
        });
        assert_eq!(patch(&read, (&update).into()), expected);
    }
}
