//! The cluster as it is: the stack's objects, and what the inventory says of them.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, bail};
use http::Method;
use serde_json::Value;

use super::{NAMESPACE, STACK};
use crate::harness::api::{Api, Call};
use crate::harness::objects::{COLLECTIONS, Object};

/// How many differences are told.
const TOLD: usize = 5;

/// One live object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Live {
    pub(crate) uid: String,
    variant: String,
}

/// The stack's objects, and the references to them, by `resource/name`.
#[derive(Clone, Debug, Default)]
pub(crate) struct World {
    pub(crate) live: BTreeMap<String, Live>,
    /// The UIDs each is recorded with, over all nodes.
    pub(crate) recorded: BTreeMap<String, BTreeSet<String>>,
}

impl World {
    /// Reads it. The inventory first: what is applied after that is not yet there to be missed, and what the inventory
    /// names is never less than what was live before.
    pub(crate) async fn read(api: &Api) -> Result<Self> {
        let recorded = recorded(api).await?;
        let mut live = BTreeMap::new();
        for (path, resource) in COLLECTIONS {
            let list = format!("{path}/namespaces/{NAMESPACE}/{resource}?labelSelector=stratum.ciq.com/stack={STACK}");
            let list = api.read(&list).await?;
            for item in list
                .pointer("/items")
                .and_then(Value::as_array)
                .context("a list without items")?
            {
                let text = |pointer| {
                    item.pointer(pointer)
                        .and_then(Value::as_str)
                        .unwrap_or_default()
                        .to_owned()
                };
                let object = Live {
                    uid: text("/metadata/uid"),
                    variant: text("/metadata/labels/variant"),
                };
                live.insert(format!("{resource}/{}", text("/metadata/name")), object);
            }
        }
        Ok(Self { live, recorded })
    }

    /// Where it is not what was declared; the first few, in words.
    pub(crate) fn differences(&self, declared: &BTreeMap<String, Object>) -> Vec<String> {
        let mut found = Vec::new();
        for (id, object) in declared {
            match self.live.get(id) {
                None => found.push(format!("{id} is declared and not there")),
                Some(live) if live.variant != object.variant() => found.push(format!("{id} has old content")),
                Some(live) if !self.recorded.get(id).is_some_and(|uids| uids.contains(&live.uid)) => {
                    found.push(format!("{id} is not recorded with its UID"));
                }
                Some(_) => {}
            }
        }
        let undeclared =
            |what: &str, id: &String| (!declared.contains_key(id)).then(|| format!("{id} is {what} and not declared"));
        found.extend(self.live.keys().filter_map(|id| undeclared("there", id)));
        found.extend(self.recorded.keys().filter_map(|id| undeclared("recorded", id)));
        found.truncate(TOLD);
        found
    }

    /// Live objects of the stack that no record remembers: nothing would ever prune them.
    pub(crate) fn orphans(&self) -> Vec<String> {
        let mut orphans: Vec<String> = self
            .live
            .keys()
            .filter(|id| !self.recorded.contains_key(*id))
            .cloned()
            .collect();
        orphans.truncate(TOLD);
        orphans
    }

    /// Objects that were there before, are declared before and now, and are gone or were made anew.
    pub(crate) fn lost(&self, before: &Self, declared: &BTreeMap<String, Object>) -> Vec<String> {
        let kept = before.live.iter().filter(|(id, _)| declared.contains_key(*id));
        let mut lost: Vec<String> = kept
            .filter(|(id, old)| self.live.get(*id).is_none_or(|new| new.uid != old.uid))
            .map(|(id, _)| id.clone())
            .collect();
        lost.truncate(TOLD);
        lost
    }
}

/// The inventory as a stranger reads it: `{"nodes": {NODE: {STACK: {"group/resource": {NAMESPACE: {NAME: UID}}}}}}`.
async fn recorded(api: &Api) -> Result<BTreeMap<String, BTreeSet<String>>> {
    let path = "/api/v1/namespaces/kube-system/configmaps/stratum-addon-inventory";
    let (status, body) = api.send(Call::new(Method::GET, path)).await?;
    if status == 404 {
        return Ok(BTreeMap::new());
    }
    if !status.is_success() {
        bail!("reading the inventory: {status}");
    }
    let map: Value = serde_json::from_slice(&body)?;
    let Some(text) = map.pointer("/data/inventory").and_then(Value::as_str) else {
        return Ok(BTreeMap::new());
    };
    let inventory: Value = serde_json::from_str(text)?;
    let mut recorded: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (_, stacks) in fields(inventory.get("nodes")) {
        for (resource, namespaces) in fields(stacks.get(STACK)) {
            let resource = resource.rsplit('/').next().unwrap_or_default();
            for (name, uid) in fields(namespaces.get(NAMESPACE)) {
                let uids = recorded.entry(format!("{resource}/{name}")).or_default();
                uids.extend(uid.as_str().map(str::to_owned));
            }
        }
    }
    Ok(recorded)
}

fn fields(value: Option<&Value>) -> impl Iterator<Item = (&String, &Value)> {
    value.and_then(Value::as_object).into_iter().flatten()
}
