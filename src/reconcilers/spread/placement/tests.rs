//! The scheduler's rules, one by one.

use serde_json::{Value, json};

use super::*;
use crate::reconcilers::spread::tests::node;

fn labels() -> BTreeMap<String, String> {
    [("k8s-app".to_owned(), "kube-dns".to_owned())].into()
}

#[test]
fn a_node_must_be_ready_schedulable_and_staying() {
    let template = Template::default();
    type Change = fn(&mut NodeFacts);
    let cases: &[(&str, Change)] = &[
        ("", |_| ()),
        ("it is not Ready", |node| node.is_ready = false),
        ("it is cordoned", |node| node.is_cordoned = true),
        ("it is being deleted", |node| node.is_leaving = true),
        // It is marked with a taint as well, but that is not the reason to be told.
        ("it is not Ready", |node| {
            node.is_ready = false;
            node.taints = vec![taint("node.kubernetes.io/not-ready:NoSchedule")];
        }),
    ];
    for (misfit, change) in cases {
        let mut node = node("n");
        change(&mut node);
        let found = suits(&template, &node).err().map(|misfit| misfit.to_string());
        assert_eq!(found.unwrap_or_default(), *misfit);
    }
}

fn taint(text: &str) -> Taint {
    let (name, effect) = text.split_once(':').unwrap();
    let (key, value) = name.split_once('=').unwrap_or((name, ""));
    Taint {
        key: key.to_owned(),
        value: value.to_owned(),
        effect: effect.to_owned(),
    }
}

#[test]
fn taints_are_tolerated_as_the_scheduler_does_it() {
    for (tolerations, taints, is_tolerated) in [
        (json!([]), "k:NoSchedule", false),
        (json!([]), "k:NoExecute", false),
        (json!([]), "k:PreferNoSchedule", true),
        (json!([]), "k:Unheard", false),
        (json!([{"operator": "Exists"}]), "k=v:NoExecute", true),
        (json!([{"key": "k", "operator": "Exists"}]), "k=v:NoExecute", true),
        (json!([{"key": "other", "operator": "Exists"}]), "k=v:NoExecute", false),
        (
            json!([{"key": "k", "operator": "Exists", "effect": "NoSchedule"}]),
            "k=v:NoExecute",
            false,
        ),
        (
            json!([{"key": "k", "operator": "Exists", "effect": "NoSchedule"}]),
            "k=v:NoSchedule",
            true,
        ),
        (json!([{"key": "k"}]), "k:NoSchedule", true),
        (json!([{"key": "k"}]), "k=v:NoSchedule", false),
        (json!([{"key": "k", "value": "v"}]), "k=v:NoSchedule", true),
        (
            json!([{"key": "k", "operator": "Equal", "value": "w"}]),
            "k=v:NoSchedule",
            false,
        ),
        (
            json!([{"key": "k", "operator": "Gt", "value": "1"}]),
            "k=2:NoSchedule",
            false,
        ),
        // It would come, and be evicted again.
        (
            json!([{"key": "k", "operator": "Exists", "tolerationSeconds": 300}]),
            "k:NoExecute",
            false,
        ),
        (
            json!([{"key": "k", "operator": "Exists", "tolerationSeconds": 300}]),
            "k:NoSchedule",
            true,
        ),
        (
            json!([{"key": "k", "operator": "Exists"}]),
            "k:NoSchedule l:NoSchedule",
            false,
        ),
        (
            json!([{"key": "k", "operator": "Exists"}, {"key": "l"}]),
            "k:NoSchedule l:NoSchedule",
            true,
        ),
    ] {
        let template = Template {
            tolerations: serde_json::from_value(tolerations.clone()).unwrap(),
            ..Template::default()
        };
        let mut node = node("n");
        node.taints = taints.split(' ').map(taint).collect();
        let found = suits(&template, &node);
        assert_eq!(found.is_ok(), is_tolerated, "{tolerations} {taints}");
        assert!(matches!(found, Ok(()) | Err(Misfit::Tainted(_))));
    }
}

#[test]
fn node_selectors_and_required_affinity_must_match() {
    let rule = |key: &str, operator: &str, values: &[&str]| json!({"key": key, "operator": operator, "values": values});
    let term = |rules: &[Value]| json!({"matchExpressions": rules});
    let name = |operator: &str, name: &str| json!({"matchFields": [rule("metadata.name", operator, &[name])]});
    for (terms, matches) in [
        (json!([]), false),
        (json!([{}]), false),
        (json!([{"matchExpressions": [], "matchFields": []}]), false),
        (json!([term(&[rule("zone", "In", &["a", "b"])])]), true),
        (json!([term(&[rule("zone", "In", &["b"])])]), false),
        (json!([term(&[rule("nowhere", "In", &["a"])])]), false),
        (json!([term(&[rule("zone", "NotIn", &["b"])])]), true),
        (json!([term(&[rule("zone", "NotIn", &["a"])])]), false),
        (json!([term(&[rule("nowhere", "NotIn", &["a"])])]), true),
        (json!([term(&[rule("zone", "Exists", &[])])]), true),
        (json!([term(&[rule("nowhere", "Exists", &[])])]), false),
        (json!([term(&[rule("zone", "DoesNotExist", &[])])]), false),
        (json!([term(&[rule("nowhere", "DoesNotExist", &[])])]), true),
        (json!([term(&[rule("cores", "Gt", &["7"])])]), true),
        (json!([term(&[rule("cores", "Gt", &["8"])])]), false),
        (json!([term(&[rule("cores", "Lt", &["9"])])]), true),
        (json!([term(&[rule("cores", "Lt", &["8"])])]), false),
        (json!([term(&[rule("cores", "Gt", &[])])]), false),
        (json!([term(&[rule("cores", "Gt", &["1", "2"])])]), false),
        (json!([term(&[rule("zone", "Gt", &["1"])])]), false),
        (json!([term(&[rule("nowhere", "Lt", &["1"])])]), false),
        (json!([term(&[rule("zone", "Like", &["a"])])]), false),
        (json!([name("In", "n")]), true),
        (json!([name("In", "m")]), false),
        (json!([name("NotIn", "n")]), false),
        (json!([name("NotIn", "m")]), true),
        (json!([{"matchFields": [rule("metadata.uid", "NotIn", &["x"])]}]), false),
        // All of a term, any of the terms.
        (
            json!([term(&[rule("zone", "In", &["a"]), rule("cores", "Gt", &["8"])])]),
            false,
        ),
        (
            json!([
                term(&[rule("zone", "In", &["b"])]),
                term(&[rule("cores", "Gt", &["7"])])
            ]),
            true,
        ),
    ] {
        let template = Template {
            node_affinity: Some(serde_json::from_value(terms.clone()).unwrap()),
            ..Template::default()
        };
        let mut node = node("n");
        node.labels = [("zone", "a"), ("cores", "8")]
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .into();
        let expected = if matches { Ok(()) } else { Err(Misfit::NodeAffinity) };
        assert_eq!(suits(&template, &node), expected, "{terms}");
    }
    let mut template = Template::default();
    for (key, value, matches) in [
        ("kubernetes.io/os", "linux", true),
        ("kubernetes.io/arch", "arm64", false),
    ] {
        template.node_selector.insert(key.to_owned(), value.to_owned());
        assert_eq!(suits(&template, &node("n")).is_ok(), matches, "{key}");
    }
    let misfit = suits(&template, &node("n")).unwrap_err().to_string();
    assert_eq!(
        misfit,
        "it lacks the label kubernetes.io/arch=arm64 of the pods' nodeSelector"
    );
}

#[test]
fn there_must_be_room_of_everything() {
    let amounts = |pairs: Value| Resources::asked(Some(&serde_json::from_value(pairs).unwrap()));
    // The node gives 2 cores, 4Gi and 110 pods.
    for (asked, used, pods, lacks) in [
        (json!({}), json!({}), 0, None),
        (json!({"cpu": "500m"}), json!({"cpu": "1500m"}), 7, None),
        (json!({"cpu": "500m"}), json!({"cpu": "1501m"}), 7, Some("cpu")),
        (json!({"cpu": "500m"}), json!({"cpu": "9"}), 7, Some("cpu")),
        (json!({"memory": "70Mi"}), json!({"memory": "4026Mi"}), 7, None),
        (
            json!({"memory": "70Mi"}),
            json!({"memory": "4027Mi"}),
            7,
            Some("memory"),
        ),
        (json!({"memory": "1e3"}), json!({"cpu": "100"}), 7, None),
        (json!({}), json!({}), 109, None),
        (json!({}), json!({}), 110, Some("pods")),
        (json!({"example.com/card": "1"}), json!({}), 0, Some("example.com/card")),
        (json!({"example.com/card": "0"}), json!({}), 0, None),
    ] {
        let usage = Usage {
            pods,
            asked: amounts(used.clone()),
        };
        let found = has_room(&amounts(asked.clone()), &node("n"), &usage);
        let resource = match &found {
            Err(Misfit::Full { resource, .. }) => Some(resource.as_str()),
            Ok(()) => None,
            Err(other) => panic!("{other}"),
        };
        assert_eq!(resource, lacks, "{asked} beside {used} and {pods} pods");
    }
    let template = Template {
        asked: amounts(json!({"cpu": "3"})),
        ..Template::default()
    };
    assert_eq!(
        suits(&template, &node("n")).unwrap_err().to_string(),
        "it has 2 cpu left, and one replica needs 3",
        "too small, whatever is on it"
    );
}

#[test]
fn rules_that_need_more_than_a_node_are_told() {
    let own = json!({"matchLabels": {"k8s-app": "kube-dns"}});
    let also_own = json!({"matchExpressions": [{"key": "k8s-app", "operator": "In", "values": ["kube-dns"]}]});
    let foreign = json!({"matchLabels": {"app": "web"}});
    let required = |selector: &Value, key: &str| json!({"requiredDuringSchedulingIgnoredDuringExecution": [{"labelSelector": selector, "topologyKey": key}]});
    let spread = |selector: &Value, key: &str, when: &str| json!([{"maxSkew": 1, "labelSelector": selector, "topologyKey": key, "whenUnsatisfiable": when}]);
    let zone = "topology.kubernetes.io/zone";
    let preferred = json!({"preferredDuringSchedulingIgnoredDuringExecution": [
        {"weight": 100, "podAffinityTerm": {"labelSelector": own, "topologyKey": zone}},
    ]});
    let mut in_namespaces = required(&own, HOST);
    in_namespaces["requiredDuringSchedulingIgnoredDuringExecution"][0]["namespaces"] = json!(["other"]);
    for (affinity, constraints, word) in [
        (json!({}), json!([]), None),
        (
            json!({"podAntiAffinity": preferred, "podAffinity": preferred}),
            json!([]),
            None,
        ),
        (json!({"podAntiAffinity": required(&own, HOST)}), json!([]), None),
        (json!({"podAntiAffinity": required(&also_own, HOST)}), json!([]), None),
        (
            json!({"podAntiAffinity": required(&own, zone)}),
            json!([]),
            Some("podAntiAffinity"),
        ),
        (
            json!({"podAntiAffinity": required(&foreign, HOST)}),
            json!([]),
            Some("podAntiAffinity"),
        ),
        (
            json!({"podAntiAffinity": in_namespaces}),
            json!([]),
            Some("podAntiAffinity"),
        ),
        (
            json!({"podAffinity": required(&foreign, HOST)}),
            json!([]),
            Some("podAffinity"),
        ),
        (json!({}), spread(&own, HOST, "DoNotSchedule"), None),
        (json!({}), spread(&own, zone, "ScheduleAnyway"), None),
        (
            json!({}),
            spread(&own, zone, "DoNotSchedule"),
            Some("topologySpreadConstraint"),
        ),
        (
            json!({}),
            spread(&foreign, HOST, "DoNotSchedule"),
            Some("topologySpreadConstraint"),
        ),
    ] {
        let typed = serde_json::from_value(affinity.clone()).unwrap();
        let all: Vec<TopologySpreadConstraint> = serde_json::from_value(constraints.clone()).unwrap();
        let found = unjudged_rule(&labels(), &typed, &all);
        match word {
            None => assert_eq!(found, None, "{affinity} {constraints}"),
            Some(word) => assert!(
                found.is_some_and(|rule| rule.contains(word)),
                "{affinity} {constraints}: {found:?}"
            ),
        }
    }
}
