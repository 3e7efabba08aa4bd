use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use strum::IntoEnumIterator;

use super::atomic_file::{Access, write};
use super::build::is_recent_enough;
use super::*;

fn choose(variables: &[(&str, &str)]) -> Result<Source, Error> {
    let find = |name: &str| {
        variables
            .iter()
            .find(|(key, _)| *key == name)
            .map(|(_, value)| value.into())
    };
    Source::choose(find, None)
}

#[test]
fn the_environment_chooses_the_source() {
    let cache = |folder: &str| Source::Cache {
        folder: folder.into(),
        trampoline: None,
    };
    let all = [
        ("KUBEBUILDER_ASSETS", "/bin"),
        ("STRATUM_ASSET_CACHE", "/own"),
        ("XDG_CACHE_HOME", "/xdg"),
        ("HOME", "/home/me"),
    ];
    assert_eq!(choose(&all).unwrap(), Source::Folder("/bin".into()));
    assert_eq!(choose(&all[1..]).unwrap(), cache("/own"));
    assert_eq!(choose(&all[2..]).unwrap(), cache("/xdg/stratum/assets"));
    assert_eq!(choose(&all[3..]).unwrap(), cache("/home/me/.cache/stratum/assets"));
    assert!(matches!(choose(&[("KUBEBUILDER_ASSETS", "")]), Err(Error::NoCache)));
}

#[tokio::test]
async fn a_program_missing_in_the_folder_is_named() {
    let folder = tempfile::tempdir().unwrap();
    write(&folder.path().join("etcd"), b"", Access::Executable).unwrap();
    let source = Source::Folder(folder.path().to_owned());
    assert_eq!(
        source.provide([Tool::Etcd]).await.unwrap(),
        [folder.path().join("etcd")]
    );
    let error = source
        .provide([Tool::Etcd, Tool::KubeApiserver])
        .await
        .unwrap_err()
        .to_string();
    assert!(
        error.starts_with(&format!("no kube-apiserver in {}", folder.path().display())),
        "{error}"
    );
}

#[test]
fn the_pinned_versions_are_those_of_the_modules() {
    assert!(
        Module::Kubernetes
            .definition()
            .contains(&format!("k8s.io/kubernetes v{KUBERNETES_VERSION}"))
    );
    for part in ["server", "etcdctl"] {
        assert!(
            Module::Etcd
                .definition()
                .contains(&format!("go.etcd.io/etcd/{part}/v3 v{ETCD_VERSION}"))
        );
    }
    assert!(Module::Kubernetes.linker_flags().contains("gitMinor=37 "));
    for tool in Tool::iter() {
        let recipe = tool.recipe();
        assert!(
            recipe.module.definition().contains(recipe.package),
            "{tool} is no tool of its module"
        );
        assert!(recipe.module.go_version().starts_with("1."));
        assert!(
            tool.version().starts_with(|digit: char| digit.is_ascii_digit()),
            "{tool}"
        );
    }
    assert_eq!(Tool::Containerd.version(), "2.4.2");
    assert_eq!(Tool::Runc.version(), "1.5.2");
}

/// Folders that are on people's disks; kube-apiserver takes ten minutes to build again. A change of version, of a module
/// file or of the flags that are in the name on purpose changes them here as well.
#[test]
fn a_module_keeps_the_folder_it_has() {
    let named = |module: Module| format!("{}-{}", module.name(), module.digest());
    assert_eq!(named(Module::Etcd), "etcd-393cb1b520d570ac");
    assert_eq!(named(Module::Kubernetes), "kubernetes-102200314011d086");
    let folders: std::collections::BTreeSet<String> = Module::iter().map(named).collect();
    assert_eq!(folders.len(), Module::iter().count());
}

#[test]
fn go_versions_compare_as_numbers() {
    for (printed, needed, enough) in [
        ("go version go1.26.8 linux/amd64", "1.26.0", true),
        ("go version go1.27rc1 linux/amd64", "1.26.0", true),
        ("go version go1.9.7 linux/amd64", "1.26.0", false),
        ("go version devel linux/amd64", "1.26.0", false),
        ("", "1.26.0", false),
    ] {
        assert_eq!(is_recent_enough(printed, needed), enough, "{printed}");
    }
}

/// A `go` of the test's own, first in nobody's PATH but the child's, would need the environment of this process changed;
/// the cache is tested with the program already in it, and by the cluster tier with the real toolchain.
#[tokio::test]
async fn what_is_in_the_cache_is_not_built() {
    let folder = tempfile::tempdir().unwrap();
    let module = Module::Etcd;
    let place = folder.path().join(format!("etcd-{}", module.digest()));
    std::fs::create_dir(&place).unwrap();
    write(&place.join("etcd"), b"#!/bin/sh\n", Access::Executable).unwrap();
    let source = Source::Cache {
        folder: folder.path().to_owned(),
        trampoline: None,
    };
    let [path] = source.provide([Tool::Etcd]).await.unwrap();
    assert_eq!(path, place.join("etcd"));
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o755);
    assert!(!Path::new(&place.join("module")).exists());
}
