//! The table of differences between kubectl's YAML reader and others, row by row.

use serde_json::json;

use super::*;

fn one(text: &str) -> Value {
    let mut all = values(text, 1).unwrap_or_else(|e| panic!("{text:?}: {e:?}"));
    assert_eq!(all.len(), 1, "{text:?}");
    all.remove(0)
}

fn refused(text: &str, line: usize, has: &str) {
    let error = values(text, 1).expect_err(text);
    assert_eq!(error.line, Some(line), "{text:?}: {error:?}");
    assert!(error.message.contains(has), "{text:?}: {error:?}");
    assert!(!error.message.contains('\n'), "{error:?}");
}

#[test]
fn scalars_mean_what_kubectl_says() {
    for (text, want) in [
        ("0644", json!(420)),
        ("00123", json!(83)),
        ("0o644", json!(420)),
        ("yes", json!(true)),
        ("on", json!(true)),
        ("y", json!(true)),
        ("off", json!(false)),
        ("1_000", json!(1000)),
        ("12:30:45", json!("12:30:45")),
        ("12345678901234567890123", json!(1.2345678901234568e22)),
        ("1.0", json!(1)),
        ("1e3", json!(1000)),
        ("-5", json!(-5)),
        ("0.5", json!(0.5)),
        ("100m", json!("100m")),
        ("1.2.3", json!("1.2.3")),
        ("2001-12-14", json!("2001-12-14")),
        ("18446744073709551615", json!(18446744073709551615_f64)),
        ("~", json!(null)),
        ("", json!(null)),
        ("\"0644\"", json!("0644")),
        ("'yes'", json!("yes")),
        ("!!str 0644", json!("0644")),
        ("!!binary aGVsbG8=", json!("hello")),
        ("0x1F", json!(31)),
        ("0b101", json!(5)),
    ] {
        assert_eq!(one(&format!("a: {text}\n")), json!({ "a": want }), "{text}");
    }
}

#[test]
fn structure_means_what_kubectl_says() {
    assert_eq!(
        one("b: &a {x: 1}\nc:\n  <<: *a\n  z: 2\n"),
        json!({"b": {"x": 1}, "c": {"x": 1, "z": 2}})
    );
    assert_eq!(
        one("b: &a {x: 1}\nc:\n  <<: *a\n  x: 2\n"),
        json!({"b": {"x": 1}, "c": {"x": 2}})
    );
    assert_eq!(
        one("b: &a {x: 1}\nc: {<<: [*a, {x: 5, z: 3}]}\n")["c"],
        json!({"x": 1, "z": 3})
    );
    assert_eq!(one("a: b\r\nc: |\r\n  x\r\n  y\r\n"), json!({"a": "b", "c": "x\ny\n"}));
    assert_eq!(one("a: &x [1]\nb: *x\n"), json!({"a": [1], "b": [1]}));
    assert_eq!(one("8080: a\n"), json!({"8080": "a"}));
    assert_eq!(one("a: te"), json!({"a": "te"}));
}

#[test]
fn refused_with_line() {
    refused("a: 1\nb: 2\na: 3\n", 3, "duplicate");
    refused("a:\n\tb: 1\n", 2, "");
    refused("a: 1\nb: \"x\n", 2, "");
    refused("a: 1\n0644: x\n", 2, "quote it");
    refused("on: x\n", 1, "quote it");
    refused("a: 1\nb: !foo x\n", 2, "tag");
    refused("a: .inf\n", 1, "JSON");
    refused("{\"a\": 1,\n\"a\": 2}\n", 2, "duplicate");
    refused("b: &a {x: 1}\nc:\n  x: 2\n  <<: *a\n", 4, "first key");
    refused("a: x\n\u{feff}b: 1\n", 2, "");
    refused("? [a]\n: b\n", 1, "key");
}

#[test]
fn yaml_1_1_is_read_by_kubectl() {
    refused("a: 1\nb: x\u{2028}y\n", 2, "line break");
    refused("a: 1\n# note\u{85}b: 2\n", 2, "line break");
    assert_eq!(one("a: \"x\\u2028y\"\n"), json!({"a": "x\u{2028}y"}));
    assert_eq!(
        one("{\"a\": \"x\u{2028}y\"}\n"),
        json!({"a": "x\u{2028}y"}),
        "JSON has no such rule"
    );
    refused("a: 1\nb: {a:}\n", 2, "space behind the :");
    refused("a: [b:]\n", 1, "space behind the :");
    refused("a: {b:,c: d}\n", 1, "space behind the :");
    refused("a: [http://x/?q=1]\n", 1, "quote the text");
    refused("a: [?b]\n", 1, "quote the text");
    refused("a: [:b]\n", 1, "quote the text");
    refused("a: {x\n  y: 1}\n", 1, "several lines");
    assert_eq!(
        one("a: {b: http://x/y, c: 'x?y', \"d\":1}\ne: http://x/?q=1\nf: :g\n"),
        json!({"a": {"b": "http://x/y", "c": "x?y", "d": 1}, "e": "http://x/?q=1", "f": ":g"})
    );
    refused("a: 1\n3.14159265358979: v\n", 2, "quote it");
    refused("18446744073709551615: v\n", 1, "quote it");
}

#[test]
fn what_differs_from_kubectl_is_refused_or_the_same() {
    for text in [
        "nan",
        "inf",
        "Infinity",
        "yEs",
        "tRUE",
        "nULL",
        "0X1F",
        "0O17",
        "+0x1",
        "1e999",
        "089",
        "-017",
        "+5",
        ".5",
        "5.",
        "-.5",
        "+.inf",
        "0_7",
        "1__0",
        "_1",
        "0x_1",
        "1_",
        "0b",
        "0o",
        "0o8",
        "-",
        "+",
        ".",
        "..",
        "1e",
        "- 1",
        "=",
        "<",
        "1:2",
        "0.0",
        "-0",
        "-0.0",
        "9223372036854775808",
        "18446744073709551616",
        "0777777777777777777777",
        "1,000",
        ".5_0",
        "._5",
        "0b-1",
        "0b+1",
        "-0b-1",
        "١",
    ] {
        let Ok(got) = values(&format!("a: {text}\n"), 1) else {
            continue;
        };
        let mut want = plain(text).value(text).unwrap();
        settle(&mut want);
        assert_eq!(got[0]["a"], want, "{text}");
    }
}

#[test]
fn json_values_follow_each_other() {
    assert_eq!(
        values("{\"a\": 1}\n{\"a\": 1.0}\n", 1).unwrap(),
        [json!({"a": 1}), json!({"a": 1})]
    );
    assert_eq!(one("{a: 0644}\n"), json!({"a": 420}));
    assert_eq!(one("{\"a\": \"\\ud83d\\ude00\\/\"}\n"), json!({"a": "\u{1f600}/"}));
}

#[test]
fn a_bomb_stops_early() {
    let mut text = "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n".to_owned();
    for i in 1..100 {
        let before = format!("*a{}", i - 1);
        text.push_str(&format!("a{i}: &a{i} [{}]\n", [before.as_str(); 10].join(",")));
    }
    assert!(values(&text, 1).is_err());
    let deep = format!("a: {}{}\n", "[".repeat(5000), "]".repeat(5000));
    assert!(values(&deep, 1).is_err());
    assert!(values(&"- ".repeat(5000), 1).is_err());
}

#[test]
fn lines_are_the_files() {
    let error = values("a: 1\na: 2\n", 41).unwrap_err();
    assert_eq!(error.line, Some(42));
    assert_eq!(error.message, "duplicate mapping key: a at line 42, column 1");
    assert!(!error.message.contains("line 2"), "{error:?}");
}
