//! Requests for tests, made by the `openssl` command: it can also make those that no library of ours would.
#![expect(
    clippy::disallowed_methods,
    reason = "the maker is a program, and pki may not use host::child"
)]

use std::process::Command;

/// What openssl calls a key that kubelets make.
pub(crate) const P256: &[&str] = &["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"];

/// A request in PEM, with a new key.
pub(crate) fn request(key: &[&str], subject: &str, extensions: &[&str]) -> Vec<u8> {
    let mut openssl = Command::new("openssl");
    openssl.args([
        "req",
        "-new",
        "-batch",
        "-utf8",
        "-noenc",
        "-keyout",
        "/dev/null",
        "-config",
        "/dev/null",
    ]);
    openssl.args(key).args(["-subj", subject]);
    for extension in extensions {
        openssl.args(["-addext", extension]);
    }
    let output = openssl.output().expect("openssl is installed");
    let problem = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{subject} {extensions:?}: {problem}");
    output.stdout
}

/// What a kubelet's subject looks like to openssl.
pub(crate) fn subject(node: &str) -> String {
    format!("/O=system:nodes/CN=system:node:{node}")
}
