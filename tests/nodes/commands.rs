//! Commands of `stratum` on a node that are not expected to succeed, and what they may have changed.

use std::collections::BTreeSet;

use stratum::host::child::{Child, Exit, Output};

use crate::rig::Node;

/// Where a node keeps what it is.
pub(crate) const STATE: &str = "/var/lib/stratum/node.yaml";
/// 3: refused before any change.
pub(crate) const REFUSED: Exit = Exit::Status(3);
/// 1: tried, and failed.
pub(crate) const FAILED: Exit = Exit::Status(1);

/// What can be seen of the files of a machine, without locks.
pub(crate) async fn files(machine: &Node) -> BTreeSet<String> {
    let folders = ["/etc", "/opt", "/run", "/var/lib", "/var/log"];
    let found = machine.run("find", &folders).await.unwrap();
    let counts = |path: &&str| !path.starts_with("/run/stratum");
    found.lines().filter(counts).map(str::to_owned).collect()
}

pub(crate) fn started(machine: &Node, words: &[impl AsRef<str>], payload: bool, log: &str) -> Child {
    let words: Vec<&str> = words.iter().map(AsRef::as_ref).collect();
    machine
        .command(&words, payload)
        .start(&Output::Log(machine.log(log)))
        .unwrap()
}

pub(crate) async fn refused(machine: &Node, words: &[&str], exit: Exit, says: &str) -> String {
    let payload = words.first().is_some_and(|word| ["join", "server"].contains(word));
    refused_with(machine, words, payload, exit, says).await
}

/// Runs a command that ends with `exit` and says something; everything it said.
pub(crate) async fn refused_with(machine: &Node, words: &[&str], payload: bool, exit: Exit, says: &str) -> String {
    let finished = machine.command(words, payload).run(Vec::new()).await.unwrap();
    let told = [finished.stdout, finished.stderr].concat();
    let told = String::from_utf8_lossy(&told).into_owned();
    assert_eq!(finished.exit, exit, "stratum {}: {told}", words.join(" "));
    assert!(
        told.contains(says),
        "stratum {} does not say {says:?}: {told}",
        words.join(" ")
    );
    told
}
