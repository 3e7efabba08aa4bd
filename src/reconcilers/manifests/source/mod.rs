//! Bytes of a file -> declared objects.

use serde_json::Value;

/// Where an object is declared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The file, relative to the manifests folder.
    pub file: String,
    /// The document in it, counted from 1.
    pub document: usize,
    /// The first line of the document, counted from 1.
    pub line: usize,
}

/// One declared object.
#[derive(Clone, Debug, PartialEq)]
pub struct Declared {
    /// Where.
    pub origin: Origin,
    /// Its `apiVersion`.
    pub api_version: String,
    /// Its `kind`.
    pub kind: String,
    /// Its `metadata.namespace`, if it names one.
    pub namespace: Option<String>,
    /// Its `metadata.name`.
    pub name: String,
    /// The whole object.
    pub body: Value,
}
