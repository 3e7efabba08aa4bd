//! What a joining worker is told while it waits for its certificate.

use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use k8s_openapi::ByteString;
use stratum::controllers::concern::chain;
use stratum::controllers::machine::claim;
use stratum::host::clock;
use stratum::pki::key::{Key, KeyKind, Serial};
use stratum::pki::leaf::{Request, issue};
use stratum::pki::name::Subject;

use super::bed::{Bed, other_authority};
use crate::support::wait_for;

const SOON: Duration = Duration::from_secs(60);

/// What was told so far.
#[derive(Clone, Default)]
struct Told(Arc<Mutex<String>>);

impl Told {
    async fn wait_until(&self, says: &str) {
        let said = || async { self.0.lock().unwrap().contains(says).then_some(()) };
        wait_for(&format!("the line {says:?}"), SOON, said).await;
    }
}

impl io::Write for Told {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().push_str(&String::from_utf8_lossy(bytes));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn a_worker_that_waits_for_its_certificate_says_what_for_meanwhile() {
    let bed = Bed::shared().await;
    let key = Key::generate(KeyKind::default()).unwrap();
    let told = Told::default();
    let client = bed.admin().await;
    let mut writer = told.clone();
    let asks = claim::certificate(&client, "patient", &key, SOON * 3, &mut writer);
    let told = &told;
    let answers = async {
        told.wait_until("is made, and waits to be approved").await;
        let line = told.0.lock().unwrap().clone();
        let name = line.split_whitespace().nth(2).unwrap().to_owned();
        assert_eq!(line.lines().count(), 1, "{line}");
        bed.cluster.kubectl(&["certificate", "approve", &name]).await;
        told.wait_until(&format!("{name} is approved, and waits to be signed"))
            .await;
        // Only the key matters to the one who asked.
        let subject = Subject::user("system:node:patient").in_group("system:nodes");
        let serial = Serial::random().unwrap();
        let certificate = issue(
            &other_authority(),
            &Request::client(subject),
            &key,
            serial,
            clock::now(),
        )
        .unwrap();
        let pem = ByteString(certificate.to_pem().into_bytes());
        let patch = serde_json::json!({"status": {"certificate": pem}}).to_string();
        let arguments = [
            "patch",
            "csr",
            &name,
            "--subresource=status",
            "--type=merge",
            "-p",
            &patch,
        ];
        bed.cluster.kubectl(&arguments).await;
    };
    let (issued, ()) = tokio::join!(asks, answers);
    issued.unwrap_or_else(|error| panic!("{}", chain(&error)));
    let told = told.0.lock().unwrap().clone();
    assert!(told.ends_with("the certificate of node patient is issued\n"), "{told}");
}

#[tokio::test]
async fn a_denied_request_is_told_as_one() {
    let bed = Bed::shared().await;
    let key = Key::generate(KeyKind::default()).unwrap();
    let told = Told::default();
    let client = bed.admin().await;
    let mut writer = told.clone();
    let asks = claim::certificate(&client, "unwanted", &key, SOON * 3, &mut writer);
    let denies = async {
        told.wait_until("is made, and waits to be approved").await;
        let line = told.0.lock().unwrap().clone();
        let name = line.split_whitespace().nth(2).unwrap().to_owned();
        bed.cluster.kubectl(&["certificate", "deny", &name]).await;
    };
    let (refused, ()) = tokio::join!(asks, denies);
    let refused = refused.unwrap_err();
    // So that the next try asks with another key: this verdict stays for as long as the request does.
    assert!(
        matches!(refused, claim::Error::Refused { denied: true, .. }),
        "{refused}"
    );
}
