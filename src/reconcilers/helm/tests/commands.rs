//! What helm is told.

use secrecy::ExposeSecret;

use super::super::command::{CHART, Credentials, Invocation, Run, fetch, uninstall, without_effect};
use super::super::decide::{Action, UpgradeReason};
use super::*;

const UPGRADE: Action = Action::Upgrade(UpgradeReason::Changed);

fn told(text: &str, config: Option<&str>, action: Action) -> String {
    let (id, spec) = (ChartId::new("kube-system", "web"), spec(text));
    let config: Option<ConfigSpec> = config.map(|text| serde_saphyr::from_str(text).unwrap());
    let documents = documents("kube-system", &spec, config.as_ref(), &Sources::default()).unwrap();
    let run = Run {
        accepted: &accept(&id, &spec, &policy()).unwrap(),
        digest: &digest(&spec, config.as_ref(), &documents, None),
        id: &id,
        spec: &spec,
        config: config.as_ref(),
        documents: &documents,
        chart: CHART,
    };
    let Invocation { arguments, files, .. } = run.invocation(action);
    let files: Vec<String> = files
        .iter()
        .map(|(name, text)| format!("<{name}: {}>", text.expose_secret()))
        .collect();
    format!("{} {}", arguments.join(" "), files.join(" "))
}

#[test]
fn an_install_says_what_was_asked_for() {
    let plain = told("chart: web.tgz", None, Action::Install);
    assert!(
        plain.starts_with("install web chart.tgz --namespace kube-system --timeout 300s --labels "),
        "{plain}"
    );
    assert!(
        plain.contains(&format!(
            "{NAMESPACE_LABEL}=kube-system,{NAME_LABEL}=web,{DIGEST_LABEL}="
        )),
        "{plain}"
    );
    let full = told(
        "{chart: web.tgz, targetNamespace: apps, createNamespace: true, valuesContent: 'a: 1', set: {b: x}, crds: skip, takeOwnership: true, atomic: true, timeout: 1m, serverSide: auto, forceConflicts: true}",
        Some("values: {c: 2}"),
        Action::Install,
    );
    for part in [
        "--namespace apps --timeout 60s",
        "--create-namespace",
        "--values values-0.yaml --values values-1.yaml --set-string b=x",
        "--skip-crds",
        "--take-ownership",
        "--wait=watcher --rollback-on-failure",
        "--force-conflicts",
        "<values-0.yaml: a: 1> <values-1.yaml: {\"c\":2}>",
    ] {
        assert!(full.contains(part), "{part}: {full}");
    }
    // It cannot be said beforehand which way `auto` goes, and helm refuses to force the one.
    assert!(full.contains("--server-side=true --force-conflicts"), "{full}");
    assert!(!full.contains("--history-max"), "{full}");
    let auto = told("{chart: web.tgz, serverSide: auto}", None, Action::Install);
    assert!(!auto.contains("--server-side"), "an install knows no auto: {auto}");
}

#[test]
fn an_upgrade_does_not_take_the_values_of_before() {
    let plain = told("chart: web.tgz", None, UPGRADE);
    assert!(plain.contains("--reset-values --history-max 5"), "{plain}");
    assert!(told("{chart: web.tgz, maxHistory: 2}", None, UPGRADE).contains("--history-max 2"));
    assert!(!told("{chart: web.tgz, createNamespace: true}", None, UPGRADE).contains("--create-namespace"));
    assert!(told("{chart: web.tgz, serverSide: auto}", None, UPGRADE).contains("--server-side=auto"));
}

/// The pair that klipper-helm got wrong: helm refuses it.
#[test]
fn conflicts_are_not_forced_where_helm_merges() {
    let told = |spec: &str, config| told(spec, config, UPGRADE);
    let text = told("{chart: web.tgz, serverSide: 'false', forceConflicts: true}", None);
    assert!(
        text.contains("--server-side=false") && !text.contains("--force-conflicts"),
        "{text}"
    );
    let text = told("{chart: web.tgz, forceConflicts: true}", Some("serverSide: 'false'"));
    assert!(
        text.contains("--server-side=false") && !text.contains("--force-conflicts"),
        "{text}"
    );
    let text = told(
        "{chart: web.tgz, serverSide: 'false'}",
        Some("{serverSide: 'true', forceConflicts: true}"),
    );
    assert!(
        text.contains("--server-side=true") && text.contains("--force-conflicts"),
        "{text}"
    );
}

#[test]
fn a_service_account_acts_with_its_own_groups() {
    let release = ReleaseId {
        namespace: "dev".into(),
        name: "web".into(),
    };
    let arguments = uninstall(&release, Some(("dev", "builder")), 60).arguments.join(" ");
    assert_eq!(
        arguments,
        "uninstall web --ignore-not-found --namespace dev --timeout 60s --kube-as-user system:serviceaccount:dev:builder \
         --kube-as-group system:serviceaccounts --kube-as-group system:serviceaccounts:dev --kube-as-group system:authenticated"
    );
    assert!(!uninstall(&release, None, 60).arguments.join(" ").contains("--kube-as"));
    let rollback = told("chart: web.tgz", None, Action::Rollback { to: 3 });
    assert!(
        rollback.starts_with("rollback web 3 --namespace kube-system"),
        "{rollback}"
    );
}

#[test]
fn what_is_secret_is_no_argument() {
    let credentials = Credentials {
        authorities: Some("ca".into()),
        password: Some(("user".into(), "hunter2".into())),
        certificate: Some(("certificate".into(), "hunter2-key".into())),
        registry: None,
    };
    for text in [
        "{chart: web, repo: 'https://charts.example.org', version: 1.x, authPassCredentials: true, insecureSkipTLSVerify: true}",
        "{chart: 'oci://charts.example.org:5000/web', version: 1.2.3, plainHTTP: true}",
    ] {
        let spec = spec(text);
        let source = accept(&ChartId::new("kube-system", "web"), &spec, &policy())
            .unwrap()
            .source;
        let runs = fetch(&source, &spec, &credentials);
        for run in &runs {
            assert!(!run.arguments.join(" ").contains("hunter2"), "{:?}", run.arguments);
            assert!(!format!("{run:?}").contains("hunter2"));
        }
        let all: Vec<String> = runs.iter().map(|run| run.arguments.join(" ")).collect();
        match &source {
            Source::Repository { .. } => {
                assert_eq!(runs.len(), 2);
                assert!(
                    all[0].starts_with("repo add repository https://charts.example.org ")
                        && all[0].contains("--username user --password-stdin --pass-credentials"),
                    "{all:?}"
                );
                assert_eq!(runs[0].input.as_ref().unwrap().expose_secret(), "hunter2");
                assert!(
                    all[1].starts_with("pull repository/web --destination fetched")
                        && all[1].ends_with("--version 1.x"),
                    "{all:?}"
                );
            }
            _ => {
                assert_eq!(runs.len(), 1);
                assert!(
                    all[0].contains("--plain-http --registry-config registry.json")
                        && all[0].contains("--version 1.2.3"),
                    "{all:?}"
                );
                let file = runs[0]
                    .files
                    .iter()
                    .find(|(name, _)| name == "registry.json")
                    .unwrap()
                    .1
                    .expose_secret();
                assert!(
                    file.contains("\"charts.example.org:5000\"") && file.contains("hunter2"),
                    "{file}"
                );
            }
        }
    }
    assert!(fetch(&Source::File("a.tgz".into()), &spec("chart: a.tgz"), &credentials).is_empty());
}

#[test]
fn a_registrys_configuration_names_no_program() {
    use super::super::command::only_passwords;
    let config =
        r#"{"auths": {"a.example.org": {"auth": "eDp5"}}, "credsStore": "evil", "credHelpers": {"b": "evil"}}"#;
    let kept = only_passwords(config).unwrap();
    assert_eq!(kept.expose_secret(), r#"{"auths":{"a.example.org":{"auth":"eDp5"}}}"#);
    for none in ["", "[]", "{}", r#"{"auths": []}"#, r#"{"credsStore": "evil"}"#] {
        assert!(only_passwords(none).is_none(), "{none}");
    }
}

#[test]
fn what_has_no_effect_is_named() {
    let all = "{chart: a.tgz, bootstrap: true, jobImage: a, backOffLimit: 1, podSecurityContext: {}, securityContext: {}, driftDetection: repair, crds: createReplace}";
    assert_eq!(
        without_effect(&spec(all)),
        [
            "bootstrap",
            "jobImage",
            "backOffLimit",
            "podSecurityContext",
            "securityContext",
            "driftDetection",
            "crds: createReplace"
        ]
    );
    assert!(without_effect(&spec("chart: a.tgz")).is_empty());
}
