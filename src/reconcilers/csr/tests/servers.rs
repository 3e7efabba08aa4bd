use super::*;

#[test]
fn a_node_gets_what_is_its_own() {
    let cluster = Cluster::new();
    for names in [
        "IP:10.0.0.5",
        "DNS:n1",
        "IP:10.0.0.5,DNS:n1",
        "DNS:n1.example.com,DNS:N1.Example.COM.,IP:fd00::1",
        "IP:::ffff:10.0.0.5",
    ] {
        let decision = cluster.serving(&serving_request(&kit::subject("n1"), names));
        assert_eq!(decision, Decision::Approve, "{names}");
    }
}

#[test]
fn names_that_are_not_the_nodes_own_wait() {
    let mut cluster = Cluster::new();
    // A node says of itself whatever it likes; none of this becomes its own by that.
    let said = [
        "10.0.0.5",
        "n1",
        "10.0.0.6",
        "n2",
        "10.0.0.1",
        "10.0.0.100",
        "10.96.0.1",
        "fd00:96::1",
        "127.0.0.1",
        "::1",
        "169.254.1.1",
        "fe80::1",
        "0.0.0.0",
        "::",
        "224.0.0.1",
        "ff02::1",
        "255.255.255.255",
        "localhost",
        "kubernetes",
        "kubernetes.default",
        "kubernetes.default.svc",
        "kubernetes.default.svc.cluster.local",
        "metrics.monitoring.svc",
        "fe80::1%eth0",
        "*.example.com",
    ];
    cluster.report("n1", &said, 10);
    for (names, why) in [
        ("IP:10.0.0.7", "not_its_own"),
        ("DNS:n3", "not_its_own"),
        ("IP:10.0.0.5,IP:10.0.0.7", "not_its_own"),
        ("IP:10.0.0.6", "held_by_another"),
        ("DNS:n2", "held_by_another"),
        ("DNS:n1,DNS:N2.", "held_by_another"),
        ("IP:10.0.0.1", "api_server"),
        ("IP:10.0.0.100", "shared"),
        ("IP:::ffff:10.0.0.100", "shared"),
        ("IP:10.96.0.1", "service_address"),
        ("IP:fd00:96::1", "service_address"),
        ("IP:127.0.0.1", "reserved_address"),
        ("IP:::1", "reserved_address"),
        ("IP:169.254.1.1", "reserved_address"),
        ("IP:fe80::1", "reserved_address"),
        ("IP:0.0.0.0", "reserved_address"),
        ("IP:::", "reserved_address"),
        ("IP:224.0.0.1", "reserved_address"),
        ("IP:ff02::1", "reserved_address"),
        ("IP:255.255.255.255", "reserved_address"),
        ("DNS:localhost", "reserved_name"),
        ("DNS:LOCALHOST.", "reserved_name"),
        ("DNS:kubernetes", "reserved_name"),
        ("DNS:kubernetes.default", "reserved_name"),
        ("DNS:kubernetes.default.svc", "reserved_name"),
        ("DNS:kubernetes.default.svc.cluster.local", "reserved_name"),
        ("DNS:metrics.monitoring.svc", "reserved_name"),
        ("DNS:*.example.com", "host_name"),
        // An empty name, one with a zero byte, one with a line break.
        ("DER:30:02:82:00", "host_name"),
        ("DER:30:05:82:03:6e:31:00", "host_name"),
        ("DER:30:05:82:03:6e:31:0a", "host_name"),
        // Five bytes are no address.
        ("DER:30:07:87:05:0a:00:00:05:00", "other_name"),
        ("DNS:a b", "host_name"),
        ("DNS:10.0.0.5", "host_name"),
        ("email:a@n1,DNS:n1", "other_name"),
        ("URI:spiffe://n1", "other_name"),
        ("otherName:1.2.3;UTF8:n1", "other_name"),
        ("", "no_names"),
    ] {
        let decision = cluster.serving(&serving_request(&kit::subject("n1"), names));
        assert_eq!(word(&decision), why, "{names}: {decision:?}");
    }
    // The victim and the controller lose nothing by it.
    let by = |name: &str, names: &str| Request {
        requester: format!("system:node:{name}"),
        ..serving_request(&kit::subject(name), names)
    };
    assert_eq!(cluster.serving(&by("n2", "IP:10.0.0.6,DNS:n2")), Decision::Approve);
    assert_eq!(cluster.serving(&by("c1", "IP:10.0.0.1,DNS:c1")), Decision::Approve);
}

#[test]
fn names_that_cannot_be_a_node_are_never_asked_about() {
    let cluster = Cluster::new();
    for subject in [
        "system:node:",
        "system:node:a:b",
        "system:node:N1",
        "system:node:n1.",
        "n1",
        "system:bootstrap:n1",
        "",
    ] {
        let request = Request {
            requester: subject.to_owned(),
            ..serving_request(&kit::subject("n1"), "DNS:n1")
        };
        assert_eq!(word(&cluster.serving(&request)), "requester", "{subject}");
    }
}

#[test]
fn every_field_of_the_form_is_checked() {
    let cluster = Cluster::new();
    let good = || serving_request(&kit::subject("n1"), "DNS:n1");
    let with_subject = |subject: &str| serving_request(subject, "DNS:n1");
    let usages = |usages: &[&str]| Request {
        usages: owned(usages),
        ..good()
    };
    let asks = |extension: &str| Request {
        pem: kit::request(kit::P256, &kit::subject("n1"), &["subjectAltName=DNS:n1", extension]),
        ..good()
    };
    for (request, why) in [
        (good(), "approve"),
        (
            Request {
                groups: owned(&["system:authenticated"]),
                ..good()
            },
            "groups",
        ),
        (
            usages(&["digital signature", "server auth", "key encipherment"]),
            "approve",
        ),
        (usages(&["server auth", "digital signature"]), "approve"),
        (usages(&["digital signature", "server auth", "client auth"]), "usages"),
        (
            usages(&["digital signature", "digital signature", "server auth"]),
            "usages",
        ),
        (usages(&["digital signature"]), "usages"),
        (usages(&["digital signature", "client auth"]), "usages"),
        (usages(&[]), "usages"),
        (with_subject("/O=system:nodes/CN=system:node:n2"), "common_name"),
        (with_subject("/O=system:nodes/CN=n1"), "common_name"),
        (
            with_subject("/O=system:nodes/CN=system:node:n1/CN=system:node:n2"),
            "node_name",
        ),
        (with_subject("/O=system:nodes"), "node_name"),
        (with_subject("/CN=system:node:n1"), "organizations"),
        (
            with_subject("/O=system:nodes/O=system:nodes/CN=system:node:n1"),
            "organizations",
        ),
        (
            with_subject("/O=system:nodes/O=system:masters/CN=system:node:n1"),
            "organizations",
        ),
        (with_subject("/O=system:nodes/OU=x/CN=system:node:n1"), "unreadable"),
        (asks("basicConstraints=CA:TRUE"), "extension"),
        (asks("keyUsage=keyCertSign"), "extension"),
        (asks("extendedKeyUsage=clientAuth"), "extension"),
        (asks("extendedKeyUsage=serverAuth,codeSigning"), "extension"),
        (asks("extendedKeyUsage=serverAuth"), "approve"),
        (
            Request {
                pem: b"junk".to_vec(),
                ..good()
            },
            "unreadable",
        ),
        (
            Request {
                pem: [good().pem, good().pem].concat(),
                ..good()
            },
            "unreadable",
        ),
    ] {
        let decision = cluster.serving(&request);
        assert_eq!(word(&decision), why, "{decision:?}");
    }
}

#[test]
fn what_is_decided_is_left_alone() {
    let cluster = Cluster::new();
    for standing in [
        Standing::Approved,
        Standing::Issued,
        Standing::Refused,
        Standing::Deleted,
    ] {
        let request = Request {
            standing,
            ..serving_request(&kit::subject("n1"), "DNS:n1")
        };
        assert_eq!(cluster.serving(&request), Decision::Settled);
    }
}

#[test]
fn what_is_not_known_yet_is_waited_for() {
    let request = serving_request(&kit::subject("n1"), "DNS:n1");
    let mut cluster = Cluster::new();
    let unknown = serving::World {
        node: cluster.nodes.iter().find(|node| node.name == "n1"),
        holders: &cluster.holders,
        network: Err("GET /x: no answer"),
    };
    let decision = serving::decide(&request, unknown);
    assert!(matches!(&decision, Decision::Wait(reason) if reason.to_string().ends_with("GET /x: no answer")));

    let nobody = Cluster {
        holders: Holders::default(),
        ..Cluster::new()
    };
    assert_eq!(word(&nobody.serving(&request)), "not_recorded");

    cluster.report("n1", &[], 5);
    assert_eq!(word(&cluster.serving(&request)), "no_addresses");
    cluster.nodes.retain(|node| node.name != "n1");
    assert_eq!(word(&cluster.serving(&request)), "no_node");
    cluster.report("n1", &["n1"], 6);
    assert_eq!(cluster.serving(&request), Decision::Approve);
}

#[test]
fn the_first_to_have_an_address_keeps_it() {
    let mut cluster = Cluster::new();
    cluster.report("n3", &["10.0.0.9"], 50);
    cluster.report("a-hostile", &["10.0.0.9", "10.0.0.10"], 60);
    let by = |name: &str| Request {
        requester: format!("system:node:{name}"),
        ..serving_request(&kit::subject(name), "IP:10.0.0.9")
    };
    assert_eq!(cluster.serving(&by("n3")), Decision::Approve);
    let decision = cluster.serving(&by("a-hostile"));
    let Decision::Wait(reason) = &decision else {
        panic!("{decision:?}")
    };
    let text = reason.to_string();
    assert!(
        text.contains("10.0.0.9 was node n3's before") && text.contains("stratum node forget n3"),
        "{text}"
    );
    cluster.holders.remove("n3");
    assert_eq!(cluster.serving(&by("a-hostile")), Decision::Approve);
}

#[test]
fn the_name_of_a_node_is_its_own_before_it_tells_it() {
    let mut cluster = Cluster::new();
    cluster.report("silent", &[], 50);
    cluster.report("n1", &["10.0.0.5", "silent", "n2"], 60);
    for name in ["DNS:silent", "DNS:n2"] {
        let decision = cluster.serving(&serving_request(&kit::subject("n1"), name));
        assert_eq!(word(&decision), "held_by_another", "{name}: {decision:?}");
    }
}

#[test]
fn a_node_keeps_what_it_has_while_it_tells_nothing_and_gives_up_what_it_no_longer_tells() {
    let view = |addresses: &[&str]| NodeView {
        uid: Uid("u".to_owned()),
        name: "n".to_owned(),
        controller: false,
        addresses: addresses.iter().map(|text| host(text)).collect(),
    };
    let first = follow(None, &view(&["10.0.0.9", "n"]), at(1)).unwrap();
    assert_eq!(first.addresses[0].first_seen, at(1));
    assert_eq!(
        follow(Some(&first), &view(&["10.0.0.9", "n"]), at(2)),
        None,
        "nothing new"
    );
    assert_eq!(follow(Some(&first), &view(&[]), at(2)), None);
    let moved = follow(Some(&first), &view(&["10.0.0.10", "n"]), at(3)).unwrap();
    let seen: Vec<_> = moved
        .addresses
        .iter()
        .map(|one| (one.address.as_str(), one.first_seen))
        .collect();
    assert_eq!(seen, [("10.0.0.10", at(3)), ("n", at(1))]);
    assert_eq!(moved.certificate, first.certificate);
}
