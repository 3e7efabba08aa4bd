//! The inventory document, and the one shape it shares with the node-local record `.applied.json`:
//! `{STACK: {"group/resource": {NAMESPACE: {NAME: UID or null}}}}`, with NAMESPACE "" for a cluster-scoped object.
//!
//! Reading is strict. A misspelt field or a key written twice would drop references silently, and an object without a
//! reference is never pruned again.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

use jiff::Timestamp;
use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, Visitor};
use serde::{Deserialize as DeriveDeserialize, Serialize};

use super::text::{self, Malformed};
use crate::reconcilers::object::{GroupResource, ObjectId, StackName, Uid};

/// A sorted map that refuses to be read from an object with a key in it twice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct StrictMap<K: Ord, V>(pub BTreeMap<K, V>);

impl<K: Ord, V> Default for StrictMap<K, V> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<K: Ord, V> Deref for StrictMap<K, V> {
    type Target = BTreeMap<K, V>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl<K: Ord, V> DerefMut for StrictMap<K, V> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.0
    }
}

impl<'de, K, V> Deserialize<'de> for StrictMap<K, V>
where
    K: Deserialize<'de> + Ord + Serialize,
    V: Deserialize<'de>,
{
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Unique<K, V>(PhantomData<(K, V)>);

        impl<'de, K, V> Visitor<'de> for Unique<K, V>
        where
            K: Deserialize<'de> + Ord + Serialize,
            V: Deserialize<'de>,
        {
            type Value = BTreeMap<K, V>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Self::Value, A::Error> {
                let mut map = BTreeMap::new();
                while let Some(key) = access.next_key::<K>()? {
                    if map.contains_key(&key) {
                        let key = serde_json::to_string(&key).unwrap_or_default();
                        return Err(A::Error::custom(format_args!("the key {key} is written twice")));
                    }
                    map.insert(key, access.next_value()?);
                }
                Ok(map)
            }
        }
        deserializer.deserialize_map(Unique(PhantomData)).map(Self)
    }
}

/// The objects of one resource: namespace ("" when cluster-scoped), name, and the UID when it was applied.
type Objects = StrictMap<String, StrictMap<String, Option<Uid>>>;

/// The objects of one stack.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, DeriveDeserialize)]
#[serde(transparent)]
pub struct References(StrictMap<GroupResource, Objects>);

/// What one node applied from its manifests folder, by stack.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, DeriveDeserialize)]
#[serde(transparent)]
pub struct Entry(StrictMap<StackName, References>);

impl Entry {
    /// Reads an entry, such as the node-local record.
    ///
    /// # Errors
    /// The place and the reason when it is not exactly of that shape.
    pub fn parse(text: &str) -> Result<Self, Malformed> {
        text::read(text)
    }

    /// Every reference, in the order of the document.
    pub fn iter(&self) -> impl Iterator<Item = (StackName, ObjectId, Option<Uid>)> + '_ {
        self.0.iter().flat_map(|(stack, references)| {
            references.0.iter().flat_map(move |(resource, namespaces)| {
                namespaces.iter().flat_map(move |(namespace, names)| {
                    names.iter().map(move |(name, uid)| {
                        let id = ObjectId {
                            resource: resource.clone(),
                            namespace: Some(namespace.clone()).filter(|namespace| !namespace.is_empty()),
                            name: name.clone(),
                        };
                        (stack.clone(), id, uid.clone())
                    })
                })
            })
        })
    }

    /// Records an object under a stack. A known UID is replaced by another one, and never by none.
    pub fn insert(&mut self, stack: StackName, id: &ObjectId, uid: Option<Uid>) {
        let known = self
            .0
            .entry(stack)
            .or_default()
            .0
            .entry(id.resource.clone())
            .or_default()
            .entry(id.namespace.clone().unwrap_or_default())
            .or_default()
            .entry(id.name.clone())
            .or_default();
        if uid.is_some() {
            *known = uid;
        }
    }

    /// Adds what is missing here. What is known here stays: a record that is merged in is the older one.
    pub fn union(&mut self, other: &Self) {
        for (stack, id, uid) in other.iter() {
            if self.uid(&stack, &id).flatten().is_none() {
                self.insert(stack, &id, uid);
            }
        }
        for stack in other.0.keys() {
            self.0.entry(stack.clone()).or_default();
        }
    }

    /// Whether [`Self::union`] with `other` would change nothing.
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        let mut merged = self.clone();
        merged.union(other);
        merged == *self
    }

    /// Drops an object from every stack; whether there was one. What is empty then goes too.
    pub fn remove(&mut self, id: &ObjectId) -> bool {
        let namespace = id.namespace.as_deref().unwrap_or_default();
        let mut removed = false;
        self.0.retain(|_, references| {
            let Some(namespaces) = references.0.get_mut(&id.resource) else {
                return true;
            };
            let Some(names) = namespaces.get_mut(namespace) else {
                return true;
            };
            removed |= names.remove(&id.name).is_some();
            if names.is_empty() {
                namespaces.remove(namespace);
            }
            if namespaces.is_empty() {
                references.0.remove(&id.resource);
            }
            !references.0.is_empty()
        });
        removed
    }

    /// Whether an object is recorded under a stack, and its UID.
    #[must_use]
    pub fn uid(&self, stack: &StackName, id: &ObjectId) -> Option<Option<&Uid>> {
        let names = self
            .0
            .get(stack)?
            .0
            .get(&id.resource)?
            .get(id.namespace.as_deref().unwrap_or_default())?;
        names.get(&id.name).map(Option::as_ref)
    }

    /// Whether nothing is recorded.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.iter().next().is_none()
    }
}

/// What the whole cluster remembers of one object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reference {
    /// Every UID under which a node applied it. More than one: a later leader applied it anew, and an entry of an
    /// earlier leader still names the object before.
    pub uids: BTreeSet<Uid>,
    /// Every stack under which a node recorded it.
    pub stacks: BTreeSet<StackName>,
}

/// The document under the key `inventory`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, DeriveDeserialize)]
#[serde(deny_unknown_fields)]
pub struct Inventory {
    /// When the migration from node-local records closed. Once it has, it stays closed.
    #[serde(rename = "closedAt", default, skip_serializing_if = "Option::is_none")]
    pub closed_at: Option<Timestamp>,
    /// What each node contributed. A node without its key here has not contributed.
    pub nodes: StrictMap<String, Entry>,
    /// Set by hand, and only by hand: the nodes that have not contributed never will.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub recovery: bool,
}

impl Inventory {
    /// Adds a node's local record to its entry, which exists from then on, even if it is empty.
    pub fn union_into(&mut self, node: &str, record: &Entry) {
        self.nodes.entry(node.to_owned()).or_default().union(record);
    }

    /// Drops an object from the entries of all nodes: it was pruned, or there is nothing of ours left to delete.
    pub fn remove_everywhere(&mut self, id: &ObjectId) -> bool {
        let mut removed = false;
        for entry in self.nodes.values_mut() {
            removed |= entry.remove(id);
        }
        removed
    }

    /// How many references stand here without a UID that do not stand in `before` at all. They were recorded ahead of
    /// their objects, and get a UID as soon as those are applied.
    #[must_use]
    pub fn ahead_of(&self, before: Option<&Self>) -> usize {
        let known = |node: &str| before.and_then(|before| before.nodes.get(node));
        self.nodes
            .iter()
            .filter(|(node, entry)| known(node) != Some(*entry))
            .flat_map(|(node, entry)| entry.iter().map(move |reference| (known(node), reference)))
            .filter(|(known, (stack, id, uid))| {
                uid.is_none() && known.is_none_or(|known| known.uid(stack, id).is_none())
            })
            .count()
    }

    /// Everything any node recorded.
    #[must_use]
    pub fn references(&self) -> BTreeMap<ObjectId, Reference> {
        let mut all: BTreeMap<ObjectId, Reference> = BTreeMap::new();
        for (stack, id, uid) in self.nodes.values().flat_map(Entry::iter) {
            let reference = all.entry(id).or_default();
            reference.uids.extend(uid);
            reference.stacks.insert(stack);
        }
        all
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn stack(name: &str) -> StackName {
        name.parse().unwrap()
    }

    pub(crate) fn id(name: &str) -> ObjectId {
        ObjectId {
            resource: GroupResource::new("", "configmaps"),
            namespace: Some("n".into()),
            name: name.into(),
        }
    }

    /// One object of stack `s` for each name and UID ("" is none).
    pub(crate) fn entry(objects: &[(&str, &str)]) -> Entry {
        let mut entry = Entry::default();
        for (name, uid) in objects {
            entry.insert(
                stack("s"),
                &id(name),
                Some(Uid((*uid).into())).filter(|uid| !uid.0.is_empty()),
            );
        }
        entry
    }

    #[test]
    fn the_document_reads_back_as_it_is_written() {
        let text = r#"{"closedAt":"2026-01-02T03:04:05Z","nodes":{"a":{"s":{"core/namespaces":{"":{"n":null}},"apps/deployments":{"n":{"d":"u1"}}}},"b":{}},"recovery":true}"#;
        let inventory: Inventory = serde_json::from_str(text).unwrap();
        assert_eq!(serde_json::to_string(&inventory).unwrap(), text);
        let ids: Vec<String> = inventory.nodes["a"].iter().map(|(_, id, _)| id.to_string()).collect();
        assert_eq!(ids, ["core/namespaces n", "apps/deployments n/d"]);
        assert_eq!(
            serde_json::to_string(&Inventory::default()).unwrap(),
            r#"{"nodes":{}}"#,
            "what is not set is not written"
        );
    }

    #[test]
    fn what_would_lose_references_silently_is_refused_with_its_place() {
        for (text, place) in [
            (r#"{"nodes":{},"recovry":true}"#, "recovry"),
            (r#"{"recovery":true}"#, "nodes"),
            ("{\"nodes\":{\n\"a\":{},\"a\":{}}}", "written twice at line 2"),
            (r#"{"nodes":{"a":{"s":{"configmaps":{}}}}}"#, "configmaps"),
            (
                r#"{"nodes":{"a":{"s":{"core/configmaps":{"n":{"x":"1","x":"2"}}}}}}"#,
                "twice",
            ),
            (r#"{"nodes":{"a":{"_":{}}}}"#, "line 1"),
            (r#"{"nodes":{}} x"#, "trailing"),
            ("null", "null"),
        ] {
            let error = serde_json::from_str::<Inventory>(text).unwrap_err().to_string();
            assert!(error.contains(place), "{text}: {error}");
        }
    }

    #[test]
    fn a_union_adds_and_never_takes_away() {
        let mut inventory = Inventory::default();
        inventory.union_into("a", &entry(&[("x", "u1"), ("y", "")]));
        inventory.union_into("a", &entry(&[("x", ""), ("y", "u2"), ("z", "")]));
        assert_eq!(inventory.nodes["a"], entry(&[("x", "u1"), ("y", "u2"), ("z", "")]));
        assert!(inventory.nodes["a"].covers(&entry(&[("x", "old"), ("z", "")])));
        assert!(!inventory.nodes["a"].covers(&entry(&[("w", "")])));
        assert!(!inventory.nodes["a"].covers(&entry(&[("z", "u3")])));
        inventory.union_into("b", &Entry::default());
        assert!(inventory.nodes.contains_key("b"), "an empty entry is a contribution");
        let empty_stack = Entry::parse(r#"{"t":{}}"#).unwrap();
        assert!(!inventory.nodes["b"].covers(&empty_stack));
        inventory.union_into("b", &empty_stack);
        assert_eq!(inventory.nodes["b"], empty_stack, "a stack without objects is a stack");
    }

    #[test]
    fn a_known_uid_is_replaced_by_another_and_never_by_none() {
        let mut known = entry(&[("x", "u1")]);
        known.insert(stack("s"), &id("x"), None);
        assert_eq!(known, entry(&[("x", "u1")]));
        known.insert(stack("s"), &id("x"), Some(Uid("u2".into())));
        assert_eq!(known, entry(&[("x", "u2")]));
    }

    #[test]
    fn a_new_reference_without_a_uid_is_ahead_of_its_object() {
        let mut before = Inventory::default();
        before.union_into("a", &entry(&[("old", ""), ("x", "u1")]));
        let mut after = before.clone();
        assert_eq!(after.ahead_of(Some(&before)), 0);
        after.union_into("a", &entry(&[("new", ""), ("known", "u2")]));
        after.union_into("b", &entry(&[("old", "")]));
        assert_eq!(after.ahead_of(Some(&before)), 2, "one in each entry");
        assert_eq!(after.ahead_of(None), 3);
    }

    #[test]
    fn a_pruned_object_leaves_every_entry() {
        let mut inventory = Inventory::default();
        inventory.union_into("a", &entry(&[("x", "u1"), ("y", "u2")]));
        inventory.union_into("b", &entry(&[("x", "u3")]));
        let references = inventory.references();
        assert_eq!(references[&id("x")].uids, [Uid("u1".into()), Uid("u3".into())].into());
        assert_eq!(references[&id("x")].stacks, [stack("s")].into());
        assert!(inventory.remove_everywhere(&id("x")));
        assert!(!inventory.remove_everywhere(&id("x")));
        assert_eq!(inventory.nodes["a"], entry(&[("y", "u2")]));
        assert_eq!(inventory.nodes["b"], Entry::default());
    }
}
