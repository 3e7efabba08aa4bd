//! Brings the certificates that a kubeconfig of anybody's trusts up to those in a file, and keeps everything else.

use std::collections::BTreeSet;
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use zeroize::Zeroizing;

use super::Error;
use super::read::{Source, View, malformed, parse};
use super::replace::replace_scalar;
use crate::pki::certificate::Certificate;

const DATA: &str = "certificate-authority-data";

/// The text `old` of the kubeconfig at `path` with `authorities`, PEM, as the data its current context trusts. None when it
/// trusts the same set already, or names a file, which is somebody else's to change.
///
/// # Errors
/// When it is no kubeconfig, or its current context has no cluster.
pub fn with_authorities(path: &Path, old: &str, authorities: &[u8]) -> Result<Option<Zeroizing<String>>, Error> {
    let present = match View::parse(path, old)?.authorities {
        Some(Source::Embedded(present)) => present,
        Some(Source::File(_)) | None => return Ok(None),
    };
    if set(&present).is_some_and(|present| Some(present) == set(authorities)) {
        return Ok(None);
    }
    let mut wanted: Value = parse(path, old)?;
    let new = STANDARD.encode(authorities);
    let undefined = || malformed(path, "its current context names no cluster that it defines");
    let entry = cluster(&mut wanted).ok_or_else(undefined)?;
    let old_data = entry[DATA].as_str().unwrap_or_default().to_owned();
    entry[DATA] = Value::String(new.clone());
    let edited = Zeroizing::new(replace_scalar(old, DATA, &old_data, &new));
    if parse::<Value>(path, &edited).is_ok_and(|edited| edited == wanted) {
        return Ok(Some(edited));
    }
    let yaml = serde_saphyr::to_string(&wanted).map_err(|error| Error::Yaml {
        path: path.to_owned(),
        source: Box::new(error),
    })?;
    Ok(Some(Zeroizing::new(yaml)))
}

/// The certificates of a bundle as a set; none when it is no bundle.
fn set(pem: &[u8]) -> Option<BTreeSet<Vec<u8>>> {
    let bundle = Certificate::bundle_from_pem(pem).ok()?;
    Some(bundle.iter().map(|one| one.der().to_vec()).collect())
}

/// The fields of the current context's cluster.
fn cluster(document: &mut Value) -> Option<&mut Value> {
    let contexts = document["contexts"].as_array()?;
    let current = document["current-context"].as_str().filter(|name| !name.is_empty());
    let context = match current {
        Some(name) => contexts.iter().find(|context| context["name"] == *name)?,
        None => contexts.first()?,
    };
    let name = context["context"]["cluster"].as_str()?.to_owned();
    let clusters = document.get_mut("clusters")?.as_array_mut()?;
    let cluster = clusters.iter_mut().find(|cluster| cluster["name"] == *name)?;
    cluster.get_mut("cluster").filter(|fields| fields.is_object())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::clock;
    use crate::pki::authority::Authority;
    use crate::pki::key::{Key, KeyKind, Serial};

    fn authority() -> String {
        let key = Key::generate(KeyKind::EcdsaP256).unwrap();
        let made = Authority::make("ca", key, Serial::random().unwrap(), clock::now()).unwrap();
        made.certificate().to_pem()
    }

    fn kubeconfig(trust: &str) -> String {
        format!(
            "# kept\napiVersion: v1\nkind: Config\nclusters:\n- cluster:\n    {trust}\n    server: https://[2001:db8::1]:6443\n  name: kubernetes\ncontexts:\n- context:\n    cluster: kubernetes\n    user: a\n  name: a@kubernetes\ncurrent-context: a@kubernetes\nusers:\n- name: a\n  user: {{}}\n"
        )
    }

    #[test]
    fn only_the_trusted_set_changes() {
        let path = Path::new("/etc/kubernetes/admin.conf");
        let (one, two) = (authority(), authority());
        let data = |pem: &str| format!("{DATA}: {}", STANDARD.encode(pem));
        let old = kubeconfig(&data(&one));
        let both = format!("{one}{two}");
        let new = with_authorities(path, &old, both.as_bytes()).unwrap().unwrap();
        assert_eq!(*new, kubeconfig(&data(&both)));
        // The same set in another order and form is no change.
        let other = format!("{two}\n{one}\n{two}");
        assert_eq!(with_authorities(path, &new, other.as_bytes()).unwrap(), None);
        // What is damaged is replaced, and what a file says is left to the file.
        let damaged = kubeconfig(&data("x"));
        assert!(with_authorities(path, &damaged, one.as_bytes()).unwrap().is_some());
        let file = kubeconfig("certificate-authority: /ca.crt");
        assert_eq!(with_authorities(path, &file, one.as_bytes()).unwrap(), None);
        with_authorities(path, "", one.as_bytes()).unwrap_err();
    }
}
