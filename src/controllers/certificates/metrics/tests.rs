//! The exposition over files that `openssl` made.

use super::*;
use crate::controllers::metrics::expose;
use crate::host::atomic_file::{self, Access};
use crate::host::certificates::fixtures::Openssl;
use crate::host::renewal_record::save_renewal_record;

fn scrape(layout: &Layout) -> String {
    expose(&[&registry(layout.clone())], "").unwrap().text
}

fn lines<'a>(text: &'a str, metric: &str) -> Vec<&'a str> {
    text.lines().filter(|line| line.starts_with(metric)).collect()
}

fn end(machine: &Openssl, file: &str) -> i64 {
    let said = machine.run(&format!(
        "x509 -in etc/kubernetes/pki/{file}.crt -noout -enddate -dateopt iso_8601"
    ));
    let said = said.trim().trim_start_matches("notAfter=").replace(' ', "T");
    said.parse::<Timestamp>().unwrap().as_second()
}

#[test]
fn every_certificate_is_shown_as_openssl_reads_it() {
    let machine = Openssl::kubeadm_controller();
    let text = scrape(&machine.kubeadm());
    for (name, file) in [
        ("apiserver", "apiserver"),
        ("etcd-server", "etcd/server"),
        ("ca", "ca"),
        ("etcd-ca", "etcd/ca"),
    ] {
        let line = format!(
            "stratum_certificate_not_after_timestamp_seconds{{name=\"{name}\"}} {}\n",
            end(&machine, file)
        );
        assert!(text.contains(&line), "{line}{text}");
    }
    for name in ["admin.conf", "scheduler.conf", "kubelet-client", "front-proxy-ca"] {
        let line = format!("stratum_certificate_not_after_timestamp_seconds{{name=\"{name}\"}} ");
        assert!(text.contains(&line), "{line}{text}");
    }
    assert!(
        lines(&text, "stratum_certificate_unreadable{")
            .iter()
            .all(|line| line.ends_with("} 0"))
    );
    assert!(
        text.contains("# TYPE stratum_certificate_not_after_timestamp_seconds gauge\n"),
        "{text}"
    );
}

#[test]
fn what_cannot_be_read_is_shown_and_hides_nothing_else() {
    let machine = Openssl::kubeadm_controller();
    let layout = machine.kubeadm();
    machine.write("etc/kubernetes/pki/apiserver.crt", "no certificate");
    machine.remove("etc/kubernetes/pki/front-proxy-client.crt");
    let text = scrape(&layout);
    assert!(
        text.contains("stratum_certificate_unreadable{name=\"apiserver\"} 1\n"),
        "{text}"
    );
    assert!(!text.contains("seconds{name=\"apiserver\"}"), "{text}");
    assert!(!text.contains("name=\"front-proxy-client\""), "absent: {text}");
    assert!(text.contains("seconds{name=\"etcd-server\"}"), "{text}");
    // A scrape reads the files anew.
    machine.remove("etc/kubernetes/pki/apiserver.crt");
    assert!(!scrape(&layout).contains("name=\"apiserver\""));
}

#[test]
fn the_last_attempt_and_its_marks() {
    let machine = Openssl::kubeadm_controller();
    let layout = machine.kubeadm();
    let value = |metric: &str| {
        let text = scrape(&layout);
        let lines = lines(&text, &format!("stratum_certificate_{metric} "));
        assert!(lines.len() < 2, "{lines:?}");
        lines.first().map(|line| line.rsplit_once(' ').unwrap().1.to_owned())
    };
    let values = || {
        [
            "renewal_last_attempt_timestamp_seconds",
            "renewal_last_attempt_success",
            "renewal_in_progress",
            "renewal_failures",
        ]
        .map(|metric| value(metric).unwrap_or_default())
    };
    assert_eq!(values(), ["", "", "", ""], "nothing was ever tried");
    let at = Timestamp::from_second(1_800_000_000).unwrap();
    let begun = RenewalRecord::begun(at, 1);
    save_renewal_record(&layout, &begun).unwrap();
    assert_eq!(values(), ["1800000000", "0", "1", "2"]);
    save_renewal_record(&layout, &begun.clone().failed(at, "no")).unwrap();
    assert_eq!(values(), ["1800000000", "0", "0", "2"]);
    save_renewal_record(&layout, &begun.succeeded(at)).unwrap();
    assert_eq!(values(), ["1800000000", "1", "0", "0"]);
    assert_eq!(value("renewal_record_unreadable").as_deref(), Some("0"));
    assert_eq!(value("rotation_incomplete").as_deref(), Some("0"));
    let put = |path: &std::path::Path| atomic_file::write(path, b"{", Access::Public).unwrap();
    put(&layout.renewal_record());
    put(&layout.rotation_incomplete());
    assert_eq!(values(), ["", "", "", ""]);
    assert_eq!(value("renewal_record_unreadable").as_deref(), Some("1"));
    assert_eq!(value("rotation_incomplete").as_deref(), Some("1"));
}

#[test]
fn a_machine_that_is_no_node_shows_none_and_a_broken_node_says_so() {
    let machine = Openssl::new();
    let layout = Layout::under(machine.path());
    let text = scrape(&layout);
    assert!(!text.contains("name="), "{text}");
    assert!(text.contains("stratum_certificate_roster_unreadable 0\n"), "{text}");
    machine.write("var/lib/stratum/node.yaml", "half a");
    assert!(scrape(&layout).contains("stratum_certificate_roster_unreadable 1\n"));
}
