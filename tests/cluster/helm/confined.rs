//! What helm may not do, shown by a program in its place; and the real one.

use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::time::Duration;

use stratum::host::assets::{Source, Tool};
use stratum::host::atomic_file::{self, Access};
use stratum::host::helm::{Ended, Error, Helm};
use tokio_util::sync::CancellationToken;

use crate::support::stratum;

const LIMIT: Duration = Duration::from_secs(30);

/// A program that says this version, and otherwise runs its first argument.
fn stand_in(folder: &Path, version: &str) -> PathBuf {
    let path = folder.join(format!("helm-{version}"));
    let script = format!("#!/bin/sh\nif [ \"$1\" = version ]; then echo {version}; exit; fi\neval \"$1\"\n");
    atomic_file::write(&path, script.as_bytes(), Access::Public).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path
}

async fn find(places: &[PathBuf], state: &Path) -> Result<Helm, Error> {
    Helm::find(places, stratum(), state).await
}

#[tokio::test]
async fn helm_has_a_user_a_folder_and_an_environment_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("state");
    atomic_file::create_folder(&state, Access::Secret).unwrap();
    let program = stand_in(&state, "v4.9.9");
    let helm = find(&[state.join("none"), program.clone()], &state).await.unwrap();
    assert_eq!(
        (helm.version().to_string().as_str(), helm.path()),
        ("4.9.9", program.as_path())
    );
    // Nobody else may enter the folders above it, nor the one the program is in.
    for folder in [state.clone(), state.join("helm")] {
        assert_eq!(
            std::fs::metadata(&folder).unwrap().permissions().mode() & 0o077,
            0,
            "{folder:?}"
        );
    }
    let workspace = helm.workspace().unwrap();
    workspace.put("values-0.yaml", b"a: 1").unwrap();
    let never = CancellationToken::new();
    let run = async |script: &str| {
        helm.run(&workspace, &[script.to_owned()], None, LIMIT, &never)
            .await
            .unwrap()
    };
    let said = async |script: &str| {
        let ran = run(script).await;
        assert!(ran.is_success(), "{script}: {}", ran.complaint(&[]));
        ran.output.stdout.text().trim().to_owned()
    };
    let user = std::fs::read_to_string("/proc/self/status").unwrap();
    let is_root = user.lines().any(|line| line == "Uid:\t0\t0\t0\t0");
    if is_root {
        assert_eq!(
            said("/usr/bin/id -u; /usr/bin/id -g; /usr/bin/id -G").await,
            "64738\n64738\n64738"
        );
    }
    assert_eq!(
        said("read line < values-0.yaml; echo \"$line\"; : > home/mine; [ -f home/mine ] && echo made").await,
        "a: 1\nmade"
    );
    assert_eq!(said("ulimit -n; ulimit -c").await, "1024\n0");
    let status =
        said("while read -r line; do case $line in NoNewPrivs*) echo \"$line\";; esac; done < /proc/self/status").await;
    assert!(status.ends_with('1'), "{status}");
    let environment = said("/usr/bin/env").await;
    for wanted in [
        "HOME=/proc/self/cwd/home",
        "KUBECONFIG=/proc/self/cwd/kubeconfig",
        "PWD=/proc/self/cwd",
        "PATH=/proc/self/cwd/home/programs",
        "HELM_DRIVER=secret",
    ] {
        assert!(
            environment.lines().any(|line| line == wanted),
            "{wanted}: {environment}"
        );
    }
    assert!(!environment.contains("CARGO"), "{environment}");
    if is_root {
        let private = folder.path().join("private");
        atomic_file::write(&private, b"secret", Access::Secret).unwrap();
        chown(&private, Some(0), Some(0)).unwrap();
        let ran = run(&format!("read line < {}", private.display())).await;
        assert!(!ran.is_success(), "it reads what is root's");
    }
    let path = workspace.path().to_owned();
    drop(workspace);
    assert!(!path.exists());
}

#[tokio::test]
async fn helm_is_ended_in_time_and_when_it_is_to_stop() {
    let state = tempfile::tempdir().unwrap();
    let helm = find(&[stand_in(state.path(), "v4.0.0")], state.path()).await.unwrap();
    let workspace = helm.workspace().unwrap();
    let script = ["trap '' TERM; while :; do /usr/bin/sleep 1; done".to_owned()];
    let never = CancellationToken::new();
    let late = helm
        .run(&workspace, &script, None, Duration::from_millis(300), &never)
        .await
        .unwrap();
    assert_eq!(late.ended, Ended::DeadlinePassed);
    assert!(late.complaint(&[]).contains("did not end in time"));
    let stop = CancellationToken::new();
    let stopping = async {
        stratum::host::clock::sleep(Duration::from_millis(300)).await;
        stop.cancel();
    };
    let (stopped, ()) = tokio::join!(helm.run(&workspace, &script, None, LIMIT, &stop), stopping);
    assert_eq!(stopped.unwrap().ended, Ended::Stopped);
}

#[tokio::test]
async fn what_is_no_helm_of_this_generation_is_named() {
    let state = tempfile::tempdir().unwrap();
    let program = |version: &str| vec![stand_in(state.path(), version)];
    let error = find(&program("v3.19.0"), state.path()).await.unwrap_err();
    assert!(
        matches!(error, Error::OtherVersion { .. }) && error.to_string().contains("3.19.0"),
        "{error}"
    );
    let error = find(&program("hello"), state.path()).await.unwrap_err();
    assert!(
        matches!(error, Error::NoVersion { .. }) && error.to_string().contains("hello"),
        "{error}"
    );
    let error = find(&[state.path().join("none")], state.path()).await.unwrap_err();
    assert!(
        matches!(error, Error::NotFound { .. }) && error.to_string().contains("none"),
        "{error}"
    );
    let source = Source::choose(|name| std::env::var_os(name), Some(stratum().to_owned())).unwrap();
    let [real] = source.provide([Tool::Helm]).await.unwrap();
    let helm = find(&[real], state.path()).await.unwrap();
    assert_eq!(helm.version().to_string(), Tool::Helm.version());
}
