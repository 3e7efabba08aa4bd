use super::kit::{P256, request, subject};
use super::*;

fn read(key: &[&str], extensions: &[&str]) -> Result<SigningRequest, Error> {
    SigningRequest::from_pem(&request(key, &subject("n1"), extensions))
}

fn refusal(key: &[&str]) -> String {
    read(key, &[]).unwrap_err().to_string()
}

#[test]
fn a_kubelets_request_is_read() {
    let names = "subjectAltName=DNS:n1,IP:10.0.0.5,IP:fd00::1,email:a@b,URI:spiffe://x,otherName:1.2.3;UTF8:y";
    let read = read(P256, &[names]).unwrap();
    assert_eq!(read.common_names, ["system:node:n1"]);
    assert_eq!(read.organizations, ["system:nodes"]);
    let names = &read.alternative_names;
    assert_eq!(names[0], AlternativeName::dns("n1"));
    assert_eq!(names[1], AlternativeName::Ip([10, 0, 0, 5].into()));
    assert_eq!(names[2], AlternativeName::Ip("fd00::1".parse().unwrap()));
    assert_eq!(names.len(), 6);
    let other = names
        .iter()
        .filter(|name| matches!(name, AlternativeName::Other(_)))
        .count();
    assert_eq!(other, 3, "{names:?}");
    assert_eq!(read.asks, Asks::default());
}

#[test]
fn every_key_a_kubelet_may_have_is_taken() {
    for key in [
        P256,
        &["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-384"],
        &["-newkey", "rsa:2048"],
        &["-newkey", "rsa:2048", "-sha512"],
    ] {
        read(key, &[]).unwrap();
    }
}

#[test]
fn weak_and_strange_keys_are_refused() {
    for (key, why) in [
        (&["-newkey", "rsa:1024"][..], "RSA of 1024 bits"),
        (&["-newkey", "ed25519"], "of algorithm 1.3.101.112"),
        (
            &["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-521"],
            "on the curve 1.3.132.0.35",
        ),
        (&["-newkey", "rsa:2048", "-sha1"], "SHA-1"),
        (
            &[
                "-newkey",
                "ec",
                "-pkeyopt",
                "ec_paramgen_curve:P-256",
                "-pkeyopt",
                "ec_param_enc:explicit",
            ],
            "on an unnamed curve",
        ),
    ] {
        let refused = refusal(key);
        assert!(refused.contains(why), "{key:?}: {refused}");
    }
}

#[test]
fn what_it_asks_for_besides_is_seen() {
    let asks = |extensions: &[&str]| read(P256, extensions).unwrap().asks;
    assert!(asks(&["basicConstraints=CA:TRUE"]).authority);
    assert_eq!(asks(&["basicConstraints=CA:FALSE"]), Asks::default());
    assert!(asks(&["keyUsage=digitalSignature,keyCertSign"]).authority);
    assert!(asks(&["keyUsage=cRLSign"]).authority);
    let purposes = asks(&["extendedKeyUsage=serverAuth,clientAuth,codeSigning,anyExtendedKeyUsage,1.2.3.4"]);
    assert!(purposes.client_auth && purposes.server_auth && !purposes.authority);
    assert_eq!(purposes.other, ["any purpose", "code signing", "1.2.3.4"]);
    let other = asks(&["nameConstraints=permitted;DNS:x"]).other;
    assert_eq!(other, ["extension 2.5.29.30"]);
}

#[test]
fn a_subject_holds_common_names_and_organizations_only() {
    let read = |subject: &str| SigningRequest::from_pem(&request(P256, subject, &[]));
    let two = read("/O=system:nodes/O=system:masters/CN=a/CN=b").unwrap();
    assert_eq!(two.organizations, ["system:nodes", "system:masters"]);
    assert_eq!(two.common_names, ["a", "b"]);
    let refused = read("/O=system:nodes/OU=x/CN=a").unwrap_err().to_string();
    assert!(refused.contains("attribute 2.5.4.11"), "{refused}");
}

#[test]
fn damage_is_named() {
    let good = String::from_utf8(request(P256, &subject("n1"), &[])).unwrap();
    let error = |pem: &str| SigningRequest::from_pem(pem.as_bytes()).unwrap_err().to_string();
    assert_eq!(error(""), "0 PEM blocks where one is expected");
    assert_eq!(error("junk"), "0 PEM blocks where one is expected");
    assert_eq!(error(&format!("{good}{good}")), "2 PEM blocks where one is expected");
    let cut = good.rsplit_once("-----END").unwrap().0;
    assert_eq!(error(&format!("{good}{cut}")), "2 PEM blocks where one is expected");
    let foreign = good.replace("CERTIFICATE REQUEST", "CERTIFICATE");
    assert!(error(&foreign).starts_with("a \"CERTIFICATE\" block"));

    let der = pem::parse(&good).unwrap().into_contents();
    let error = |der: &[u8]| SigningRequest::from_der(der).unwrap_err().to_string();
    assert!(error(&der[..der.len() - 1]).starts_with("the PEM block holds no certificate request"));
    assert!(error(&[&der[..], &[0]].concat()).contains("bytes after its end"));
    // The reader is laxer about DER than the signer is, but what it reads is what was signed.
    let whole = SigningRequest::from_der(&der).unwrap();
    for index in 0..der.len() {
        for bit in 0..8 {
            let mut flipped = der.clone();
            flipped[index] ^= 1 << bit;
            let read = SigningRequest::from_der(&flipped);
            assert!(read.is_err() || read.unwrap() == whole, "bit {bit} of byte {index}");
        }
    }
}
