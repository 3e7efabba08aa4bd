//! Lists, page by page.

use kube::Client;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::{CallError, fetch, segment};

/// Objects in one page of a list.
const PAGE: u32 = 500;

#[derive(Deserialize)]
struct Page<T> {
    #[serde(default)]
    metadata: Metadata,
    // Go writes an empty list as null.
    items: Option<Vec<T>>,
}

#[derive(Default, Deserialize)]
struct Metadata {
    #[serde(default, rename = "continue")]
    more: Option<String>,
}

/// All objects of a collection. `query` holds selectors in the form of a URL's, such as `labelSelector=a%3Db`, or nothing.
///
/// # Errors
/// When a page fails; a partial list is never returned, since a missing object would look deleted.
pub(crate) async fn all<T: DeserializeOwned>(
    client: &Client,
    path: &str,
    query: &str,
    accept: &str,
) -> Result<Vec<T>, CallError> {
    let query = if query.is_empty() {
        String::new()
    } else {
        format!("&{query}")
    };
    let mut found = Vec::new();
    let mut more = String::new();
    loop {
        let page: Page<T> = fetch(client, &format!("{path}?limit={PAGE}{query}{more}"), accept).await?;
        found.extend(page.items.unwrap_or_default());
        match page.metadata.more.filter(|token| !token.is_empty()) {
            Some(token) => more = format!("&continue={}", segment(&token)),
            None => return Ok(found),
        }
    }
}

/// A selector of a query: `fieldSelector` or `labelSelector`, and what it selects.
pub(crate) fn selector(kind: &str, selected: &str) -> String {
    format!("{kind}={}", segment(selected))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_list_may_be_null() {
        let page: Page<u32> = serde_json::from_str(r#"{"metadata": {}, "items": null}"#).unwrap();
        assert!(page.items.is_none() && page.metadata.more.is_none());
    }
}
