//! Objects as a cluster's addons have them: 60 % ConfigMaps, 10 % Secrets, 20 % ServiceAccounts, Roles and RoleBindings,
//! 5 % Services, 5 % Deployments without replicas. Each is about 400 bytes of JSON.

use std::fmt::Write;
use std::path::Path;

use anyhow::Result;
use http::Method;
use serde_json::{Value, json};
use stratum::host::atomic_file::{self, Access};

use super::api::{APPLY, Call};

/// What kinds come in which order; the shares hold for every 20 objects, and nearly for the first 10.
const MIX: [Kind; 20] = {
    use Kind::{ConfigMap, Deployment, Role, RoleBinding, Secret, Service, ServiceAccount};
    [
        ConfigMap,
        ServiceAccount,
        ConfigMap,
        Secret,
        ConfigMap,
        ConfigMap,
        Role,
        ConfigMap,
        Service,
        ConfigMap,
        ConfigMap,
        Deployment,
        ConfigMap,
        Secret,
        ConfigMap,
        ServiceAccount,
        ConfigMap,
        RoleBinding,
        ConfigMap,
        ConfigMap,
    ]
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    ConfigMap,
    Secret,
    ServiceAccount,
    Role,
    RoleBinding,
    Service,
    Deployment,
}

/// Where the kinds of the mix are listed: resource path without the namespace.
pub(crate) const COLLECTIONS: [(&str, &str); 7] = [
    ("/api/v1", "configmaps"),
    ("/api/v1", "secrets"),
    ("/api/v1", "serviceaccounts"),
    ("/api/v1", "services"),
    ("/apis/apps/v1", "deployments"),
    ("/apis/rbac.authorization.k8s.io/v1", "roles"),
    ("/apis/rbac.authorization.k8s.io/v1", "rolebindings"),
];

impl Kind {
    fn collection(self) -> (&'static str, &'static str) {
        let index = match self {
            Self::ConfigMap => 0,
            Self::Secret => 1,
            Self::ServiceAccount => 2,
            Self::Service => 3,
            Self::Deployment => 4,
            Self::Role => 5,
            Self::RoleBinding => 6,
        };
        COLLECTIONS.get(index).copied().unwrap_or_default()
    }
}

/// One object.
#[derive(Clone, Debug)]
pub(crate) struct Object {
    kind: Kind,
    namespace: String,
    /// Its name: unique in its namespace whatever the kind.
    pub(crate) name: String,
    body: Value,
}

impl Object {
    /// Its path.
    pub(crate) fn path(&self) -> String {
        let (api, resource) = self.kind.collection();
        format!("{api}/namespaces/{}/{resource}/{}", self.namespace, self.name)
    }

    /// `resource/name`: how lists and inventories name it.
    pub(crate) fn id(&self) -> String {
        format!("{}/{}", self.kind.collection().1, self.name)
    }

    /// Which content it has; the label `variant` says it in the cluster.
    pub(crate) fn variant(&self) -> &str {
        self.body
            .pointer("/metadata/labels/variant")
            .and_then(Value::as_str)
            .unwrap_or_default()
    }

    /// A server-side apply of it.
    pub(crate) fn apply(&self) -> Call {
        let path = format!("{}?fieldManager=bench&force=true", self.path());
        Call::new(Method::PATCH, path).body(APPLY, self.body.to_string())
    }

    /// Its deletion.
    pub(crate) fn delete(&self) -> Call {
        Call::new(Method::DELETE, self.path())
    }
}

/// Makes the objects `numbers` of a namespace. The same number is always of the same kind and name; `variant` changes
/// what is in the object.
pub(crate) fn objects(namespace: &str, numbers: impl IntoIterator<Item = usize>, variant: u64) -> Vec<Object> {
    numbers
        .into_iter()
        .map(|number| object(namespace, number, variant))
        .collect()
}

fn object(namespace: &str, number: usize, variant: u64) -> Object {
    let kind = MIX.get(number % MIX.len()).copied().unwrap_or(Kind::ConfigMap);
    let name = format!("object-{number:05}");
    let text = format!("line of configuration {variant} of object {number}; ").repeat(5);
    let variant = variant.to_string();
    let labels = json!({"app": name, "variant": variant});
    let mut body = match kind {
        Kind::ConfigMap => json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"settings": text}}),
        // `stringData` would make every apply a change: it is not stored.
        Kind::Secret => json!({"apiVersion": "v1", "kind": "Secret", "type": "Opaque",
            "data": {"token": k8s_openapi::ByteString(text.into_bytes())}}),
        Kind::ServiceAccount => json!({"apiVersion": "v1", "kind": "ServiceAccount"}),
        Kind::Role => json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
            "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list", "watch"]}]}),
        Kind::RoleBinding => json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace}]}),
        Kind::Service => json!({"apiVersion": "v1", "kind": "Service",
            "spec": {"selector": {"app": name}, "ports": [{"name": "http", "port": 80, "targetPort": 8080}]}}),
        Kind::Deployment => json!({"apiVersion": "apps/v1", "kind": "Deployment", "spec": {
            "replicas": 0,
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}},
                "spec": {"containers": [{"name": "main", "image": "registry.example/app:1"}]}}}}),
    };
    if let Some(fields) = body.as_object_mut() {
        let metadata = json!({"name": name, "namespace": namespace, "labels": labels});
        fields.insert("metadata".to_owned(), metadata);
    }
    Object {
        kind,
        namespace: namespace.to_owned(),
        name,
        body,
    }
}

/// Writes objects as YAML files of `per_file` documents into `folder`, which is made.
pub(crate) fn write(folder: &Path, objects: &[Object], per_file: usize) -> Result<()> {
    std::fs::create_dir_all(folder)?;
    for (index, chunk) in objects.chunks(per_file).enumerate() {
        write_file(&folder.join(format!("objects-{index:05}.yaml")), chunk)?;
    }
    Ok(())
}

/// Writes objects into one YAML file.
pub(crate) fn write_file(path: &Path, objects: &[Object]) -> Result<()> {
    let mut text = String::new();
    for object in objects {
        write!(text, "---\n{}", serde_saphyr::to_string(&object.body)?)?;
        if !text.ends_with('\n') {
            text.push('\n');
        }
    }
    atomic_file::write_if_changed(path, text.as_bytes(), Access::Secret)?;
    Ok(())
}

/// Empties the namespaces' collections of the mix: seven requests each.
pub(crate) fn deletions(namespace: &str) -> Vec<Call> {
    let paths = COLLECTIONS.map(|(api, resource)| format!("{api}/namespaces/{namespace}/{resource}"));
    paths.into_iter().map(|path| Call::new(Method::DELETE, path)).collect()
}
