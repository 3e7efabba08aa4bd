//! A kubeconfig with everything in it that it names.

use std::fs;
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use secrecy::SecretString;
use serde_json::Value;

/// The fields that name files, and those that hold what is in them.
const EMBEDDED: [(&str, &str, &str); 3] = [
    ("clusters", "certificate-authority", "certificate-authority-data"),
    ("users", "client-certificate", "client-certificate-data"),
    ("users", "client-key", "client-key-data"),
];

/// The text of a kubeconfig, with the content of the files it names in their place. The error is one line.
pub(super) fn embed(path: &Path) -> Result<SecretString, String> {
    let text = fs::read_to_string(path).map_err(|error| error.to_string())?;
    let mut document: Value = serde_saphyr::from_str(&text).map_err(|error| crate::text::yaml_fault(&error))?;
    let folder = path.parent().unwrap_or_else(|| Path::new("/"));
    for (list, named, embedded) in EMBEDDED {
        // `clusters` holds entries with `cluster`, and `users` with `user`.
        let inner = list.trim_end_matches('s');
        let entries = document.get_mut(list).and_then(Value::as_array_mut);
        for entry in entries.into_iter().flatten() {
            let Some(fields) = entry.get_mut(inner).and_then(Value::as_object_mut) else {
                continue;
            };
            let Some(Value::String(name)) = fields.remove(named) else {
                continue;
            };
            let file = folder.join(&name);
            let bytes = fs::read(&file).map_err(|error| format!("{}: {error}", file.display()))?;
            fields.insert(embedded.to_owned(), Value::String(STANDARD.encode(bytes)));
        }
    }
    Ok(document.to_string().into())
}

#[cfg(test)]
mod tests {
    use secrecy::ExposeSecret;

    use super::*;
    use crate::host::atomic_file::{self, Access};

    #[test]
    fn what_a_kubeconfig_names_is_put_into_it() {
        let folder = tempfile::tempdir().unwrap();
        let put = |name: &str, text: &str| {
            atomic_file::write(&folder.path().join(name), text.as_bytes(), Access::Secret).unwrap();
        };
        let kubeconfig = folder.path().join("a.conf");
        put("ca.crt", "authority");
        put("key", "private");
        put(
            "a.conf",
            "clusters: [{name: c, cluster: {server: 'https://[::1]:6443', certificate-authority: ca.crt}}]\n\
             users: [{name: u, user: {client-certificate-data: eA==, client-key: key}}]\ncurrent-context: c\n",
        );
        let embedded: Value = serde_json::from_str(embed(&kubeconfig).unwrap().expose_secret()).unwrap();
        let cluster = &embedded["clusters"][0]["cluster"];
        assert_eq!(cluster["certificate-authority-data"], STANDARD.encode("authority"));
        assert_eq!(cluster["server"], "https://[::1]:6443");
        assert!(cluster.get("certificate-authority").is_none());
        let user = &embedded["users"][0]["user"];
        assert_eq!(
            (&user["client-key-data"], &user["client-certificate-data"]),
            (&STANDARD.encode("private").into(), &"eA==".into())
        );
        assert_eq!(embedded["current-context"], "c");
        std::fs::remove_file(folder.path().join("key")).unwrap();
        assert!(embed(&kubeconfig).unwrap_err().contains("key"));
    }
}
