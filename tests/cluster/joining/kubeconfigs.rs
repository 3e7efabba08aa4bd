//! `stratum kubeconfig create`: a credential that the API server takes, and what is made for nobody.

use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};
use stratum::host::child::{Exit, Program};

use super::bed::Bed;

#[tokio::test]
async fn a_person_gets_a_credential_with_groups_and_an_end() {
    let bed = Bed::shared().await;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("jane.conf");
    let file = path.to_str().unwrap();
    let create = [
        "kubeconfig",
        "create",
        "--user",
        "jane",
        "--group",
        "dev",
        "--group",
        "ops",
    ];
    assert_eq!(
        bed.done(&[&create[..], &["--ttl", "2h", "-o", file]].concat()).await,
        ""
    );
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let who = Program::new(crate::support::kubectl().await)
        .arguments(["--kubeconfig", file, "auth", "whoami", "-o", "json"])
        .variable("KUBECACHEDIR", folder.path())
        .run(Vec::new())
        .await
        .unwrap();
    assert!(who.exit.is_success(), "{}", String::from_utf8_lossy(&who.stderr));
    let user: Value = serde_json::from_slice(&who.stdout).unwrap();
    let user = &user["status"]["userInfo"];
    assert_eq!(user["username"], "jane");
    assert_eq!(user["groups"], json!(["dev", "ops", "system:authenticated"]));
    let bound = bed
        .cluster
        .kubectl(&["auth", "can-i", "--list", "--as=jane", "--as-group=dev"])
        .await;
    assert!(!bound.contains("*.*"), "it grants nothing by itself: {bound}");

    let printed = bed.done(&create).await;
    assert!(printed.starts_with("apiVersion: v1\nkind: Config\n"), "{printed}");
    let again = bed.stratum(&[&create[..], &["-o", file]].concat()).await;
    assert_eq!(again.exit, Exit::Status(1));
    assert!(String::from_utf8_lossy(&again.stderr).contains("is not overwritten"));
}

#[tokio::test]
async fn what_is_made_for_nobody_is_refused_with_a_reason() {
    let bed = Bed::shared().await;
    let refused = |arguments: &'static [&'static str], code: i32, why: &'static str| async move {
        let finished = bed.stratum(&[&["kubeconfig", "create"], arguments].concat()).await;
        let stderr = String::from_utf8(finished.stderr).unwrap();
        assert_eq!(finished.exit, Exit::Status(code), "{stderr}");
        assert!(stderr.contains(why) && finished.stdout.is_empty(), "{stderr}");
    };
    let masters = ["--user", "jane", "--group", "dev", "--group", "system:masters"];
    refused(
        &["--user", "jane", "--group", "dev", "--group", "system:masters"],
        3,
        "no binding limits it",
    )
    .await;
    refused(&["--user", " jane"], 3, "no name of a user or group").await;
    refused(&["--user", "jane", "--ttl", "0"], 2, "it always ends").await;
    refused(&["--user", "jane", "--ttl", "soon"], 2, "is no time: say 30m").await;
    refused(&["--group", "dev"], 2, "--user").await;
    let root = tempfile::tempdir().unwrap();
    let all = [&["kubeconfig", "create"], &masters[..4]].concat();
    let nowhere = bed.stratum_at(root.path().to_owned(), &all).await;
    assert_eq!(nowhere.exit, Exit::Status(3));
    assert!(String::from_utf8_lossy(&nowhere.stderr).contains("this machine is no node yet"));
}
