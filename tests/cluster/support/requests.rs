//! Requests as somebody in particular sends them, whose refusal is the test's to judge.

use http::Method;
use kube::Client;
use kube::core::Status;
use serde_json::Value;

/// Sends a request; a patch is a merge patch, and a body of null is none.
pub(crate) async fn send(client: &Client, method: Method, path: &str, body: &Value) -> Result<Value, Box<Status>> {
    let content = if method == Method::PATCH {
        "application/merge-patch+json"
    } else {
        "application/json"
    };
    let bytes = if body.is_null() {
        Vec::new()
    } else {
        body.to_string().into_bytes()
    };
    let request = http::Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", content)
        .body(bytes)
        .unwrap();
    client.request::<Value>(request).await.map_err(|error| match error {
        kube::Error::Api(status) => status,
        other => panic!("{path}: {other}"),
    })
}
