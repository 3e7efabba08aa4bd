//! What config.yaml passes through to the programs of a node.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The sections `kubelet` and `containerd` of config.yaml. They are merged into what is rendered here, key by key, and
/// theirs wins; a list replaces a list.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Fields of a `KubeletConfiguration`, by their names there. `null` takes one of ours away, so that the kubelet's
    /// default holds. <https://kubernetes.io/docs/reference/config-api/kubelet-config.v1beta1/>
    pub kubelet: Map<String, Value>,
    /// Tables and keys of containerd's `config.toml`, version 3.
    /// <https://github.com/containerd/containerd/blob/main/docs/cri/config.md>
    pub containerd: Map<String, Value>,
}

/// A key that is not the user's to set, with dots between the levels and the reason. The key itself has no dots: plugins
/// of containerd do, and are listed as parts.
pub(super) struct Kept {
    pub(super) path: &'static [&'static str],
    pub(super) reason: &'static str,
}

/// The first of `kept` that `given` sets, or takes away with a whole branch.
pub(super) fn first_kept<'a>(given: &Map<String, Value>, kept: &'a [Kept]) -> Option<&'a Kept> {
    kept.iter().find(|kept| touches(given, kept.path))
}

fn touches(given: &Map<String, Value>, path: &[&str]) -> bool {
    let Some((first, rest)) = path.split_first() else {
        return true;
    };
    match given.get(*first) {
        None => false,
        Some(Value::Object(inner)) if !rest.is_empty() => touches(inner, rest),
        Some(_) => true,
    }
}

/// Merges `theirs` into `ours`: maps by key, everything else replaced, `null` removes.
pub(super) fn merge(ours: &mut Map<String, Value>, theirs: &Map<String, Value>) {
    for (key, their) in theirs {
        match (ours.get_mut(key), their) {
            (_, Value::Null) => {
                ours.remove(key);
            }
            (Some(Value::Object(our)), Value::Object(their)) => merge(our, their),
            (_, their) => {
                ours.insert(key.clone(), their.clone());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn map(value: Value) -> Map<String, Value> {
        match value {
            Value::Object(map) => map,
            other => panic!("{other}"),
        }
    }

    #[test]
    fn theirs_wins_key_by_key() {
        let mut ours = map(json!({"a": {"x": 1, "y": 2}, "b": [1, 2], "c": 3, "d": 4}));
        merge(
            &mut ours,
            &map(json!({"a": {"y": 9, "z": {"n": 0}}, "b": [7], "c": null, "e": {"f": 1}})),
        );
        assert_eq!(
            Value::Object(ours),
            json!({"a": {"x": 1, "y": 9, "z": {"n": 0}}, "b": [7], "d": 4, "e": {"f": 1}})
        );
    }

    #[test]
    fn a_kept_key_is_seen_through_its_branch() {
        let kept = [Kept {
            path: &["a", "b"],
            reason: "",
        }];
        let seen = |value: Value| first_kept(&map(value), &kept).is_some();
        assert!(seen(json!({"a": {"b": 1}})));
        assert!(seen(json!({"a": {"b": {"c": 1}}})));
        // A branch that goes takes the key with it.
        assert!(seen(json!({"a": null})));
        assert!(seen(json!({"a": "x"})));
        assert!(!seen(json!({"a": {"c": 1}})));
        assert!(!seen(json!({"b": 1})));
    }
}
