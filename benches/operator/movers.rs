//! What must survive a prune: an object that moved to another stack, one whose file now names another API version, and one
//! that did both. None of them may be deleted, not even to be made again: their UIDs say so.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result};
use http::Method;
use serde_json::Value;
use stratum::host::atomic_file::{self, Access};

use crate::bed::Bed;
use crate::harness::api::Call;

/// How many there are.
pub(crate) const COUNT: usize = 3;

const NAMESPACE: &str = "b4-movers";
const SCALERS: &str = "/apis/autoscaling/v2/namespaces/b4-movers/horizontalpodautoscalers";
const CONFIG_MAPS: &str = "/api/v1/namespaces/b4-movers/configmaps";
const NAMES: [(&str, &str); COUNT] = [
    (CONFIG_MAPS, "moved"),
    (SCALERS, "reversioned"),
    (SCALERS, "moved-and-reversioned"),
];

/// A namespace without them.
pub(crate) async fn clear(bed: &Bed) -> Result<()> {
    bed.empty_namespace(NAMESPACE).await?;
    bed.api().call(Call::new(Method::DELETE, SCALERS)).await?;
    Ok(())
}

/// Declares them: two in stack `leaving`, one in stack `stack`.
pub(crate) fn write(leaving: &Path, stack: &Path) -> Result<()> {
    put(leaving, &[config_map(), scaler("moved-and-reversioned", "v1")])?;
    put(stack, &[scaler("reversioned", "v1")])
}

/// Declares all of them in stack `stack`. The file in `leaving` is left to whoever empties that folder.
pub(crate) fn move_and_reversion(stack: &Path) -> Result<()> {
    let scalers = ["reversioned", "moved-and-reversioned"].map(|name| scaler(name, "v2"));
    put(stack, &[vec![config_map()], scalers.to_vec()].concat())
}

/// The UID of each that is there.
pub(crate) async fn uids(bed: &Bed) -> Result<BTreeMap<&'static str, String>> {
    let mut uids = BTreeMap::new();
    for (collection, name) in NAMES {
        let (status, body) = bed
            .api()
            .send(Call::new(Method::GET, format!("{collection}/{name}")))
            .await?;
        if status == 404 {
            continue;
        }
        anyhow::ensure!(status.is_success(), "GET {collection}/{name}: {status}");
        let object: Value = serde_json::from_slice(&body)?;
        let uid = object.pointer("/metadata/uid").and_then(Value::as_str);
        uids.insert(name, uid.context("an object without a UID")?.to_owned());
    }
    Ok(uids)
}

fn put(folder: &Path, documents: &[String]) -> Result<()> {
    std::fs::create_dir_all(folder)?;
    let text = documents.concat();
    atomic_file::write_if_changed(&folder.join("movers.yaml"), text.as_bytes(), Access::Secret)?;
    Ok(())
}

fn config_map() -> String {
    format!("---\napiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: moved\n  namespace: {NAMESPACE}\ndata:\n  a: b\n")
}

fn scaler(name: &str, version: &str) -> String {
    format!(
        "---\napiVersion: autoscaling/{version}\nkind: HorizontalPodAutoscaler\nmetadata:\n  name: {name}\n  namespace: \
         {NAMESPACE}\nspec:\n  maxReplicas: 2\n  scaleTargetRef:\n    apiVersion: apps/v1\n    kind: Deployment\n    \
         name: nothing\n"
    )
}
