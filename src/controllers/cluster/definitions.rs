//! CustomResourceDefinitions that have just been applied.

use std::time::{Duration, Instant};

use kube::Client;
use serde_json::Value;

use super::{CallError, fetch};
use crate::host::clock;

/// How often that is looked at.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// Waits until the definition at `path` is established, or `deadline` of the monotonic clock has come. Whether it is.
pub(crate) async fn until_established(client: &Client, path: &str, deadline: Instant) -> bool {
    loop {
        if is_established(&fetch(client, path, "application/json").await) {
            return true;
        }
        if clock::monotonic() >= deadline {
            return false;
        }
        clock::sleep(LOOK_AGAIN).await;
    }
}

fn is_established(definition: &Result<Value, CallError>) -> bool {
    definition.as_ref().is_ok_and(|definition| {
        let conditions = definition["status"]["conditions"].as_array();
        conditions
            .into_iter()
            .flatten()
            .any(|condition| condition["type"] == "Established" && condition["status"] == "True")
    })
}
