//! A control plane with the operator and the real helm, and charts made for the tests.

use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use stratum::host::assets::{Source, Tool};
use stratum::host::atomic_file::{self, Access};
use stratum::host::child::{Finished, Program};
use stratum::host::layout::Identity;

use crate::support::operator::Operator;
use crate::support::{Cluster, Options, stratum, wait_for};

/// helm takes a second or two for a step, more on a busy machine.
pub(crate) const SOON: Duration = Duration::from_secs(90);
/// The namespace of most charts.
pub(crate) const SYSTEM: &str = "kube-system";

/// What a chart makes: a ConfigMap, and a failure when it is told to.
const CONFIG_MAP: &str = r#"apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ .Release.Name }}-greeting
data:
  greeting: {{ .Values.greeting | quote }}
  secret: {{ .Values.password | default "" | sha256sum | quote }}
  revision: {{ .Release.Revision | quote }}
{{- if .Values.broken }}
{{ fail (printf "told to fail with %s" .Values.password) }}
{{- end }}
"#;
/// What no API server takes.
const REFUSED: &str = r"{{- if .Values.refused }}
apiVersion: v1
kind: ConfigMap
metadata:
  name: Not_A_Name
---
{{- end }}
";

pub(crate) struct Bed {
    pub(crate) operator: Option<Operator>,
    pub(crate) cluster: Cluster,
    pub(crate) folder: tempfile::TempDir,
    pub(crate) helm: PathBuf,
    more: Vec<String>,
}

impl Bed {
    pub(crate) async fn new(more: &[&str]) -> Self {
        let source = Source::choose(|name| std::env::var_os(name), Some(stratum().to_owned())).unwrap();
        let [helm] = source.provide([Tool::Helm]).await.unwrap();
        let mut bed = Self {
            operator: None,
            cluster: Cluster::dedicated(Options::default()).await,
            folder: tempfile::tempdir().unwrap(),
            helm,
            more: more.iter().map(|argument| (*argument).to_owned()).collect(),
        };
        bed.start();
        bed.operator().leads().await;
        bed
    }

    pub(crate) fn start(&mut self) {
        let helm = self.helm.to_str().unwrap().to_owned();
        let mut more = vec!["--helm", &helm];
        more.extend(self.more.iter().map(String::as_str));
        self.operator = Some(Operator::start_with(&self.cluster, self.folder.path(), "a", &more));
    }

    pub(crate) fn operator(&self) -> &Operator {
        self.operator.as_ref().unwrap()
    }

    /// Makes or changes an object.
    pub(crate) async fn apply(&self, object: &Value) {
        let finished = self.try_apply(object).await;
        assert!(
            finished.exit.is_success(),
            "{}",
            String::from_utf8_lossy(&finished.stderr)
        );
    }

    pub(crate) async fn try_apply(&self, object: &Value) -> Finished {
        let arguments = [
            "apply",
            "--server-side",
            "--force-conflicts",
            "--field-manager=test",
            "-f",
            "-",
        ];
        self.cluster
            .kubectl_as(Identity::Admin, &arguments, &object.to_string())
            .await
    }

    pub(crate) async fn delete(&self, kind: &str, namespace: &str, name: &str) {
        self.cluster
            .kubectl_in(namespace, &["delete", kind, name, "--wait=false"])
            .await;
    }

    pub(crate) async fn get(&self, kind: &str, namespace: &str, name: &str) -> Option<Value> {
        let arguments = ["-n", namespace, "get", kind, name, "-o", "json", "--ignore-not-found"];
        let said = self.cluster.kubectl(&arguments).await;
        (!said.trim().is_empty()).then(|| serde_json::from_str(&said).unwrap())
    }

    /// Waits until the condition of a HelmChart has this reason and is about its present generation; the whole condition.
    pub(crate) async fn reason(&self, namespace: &str, name: &str, wanted: &str) -> Value {
        let what = format!("{namespace}/{name} to be {wanted}");
        let last = std::cell::RefCell::new(Value::Null);
        let ask = || async {
            let chart = self.get("helmchart", namespace, name).await?;
            let condition = chart["status"]["conditions"][0].clone();
            let is_of_now = condition["observedGeneration"] == chart["metadata"]["generation"];
            last.replace(condition.clone());
            (is_of_now && condition["reason"] == wanted).then_some(condition)
        };
        let waited = std::panic::AssertUnwindSafe(wait_for(&what, SOON, ask));
        match futures::FutureExt::catch_unwind(waited).await {
            Ok(condition) => condition,
            Err(_) => panic!("{what}; it is {}", last.borrow()),
        }
    }

    /// Waits until what the chart made says this.
    pub(crate) async fn greets(&self, namespace: &str, release: &str, greeting: &str) -> Value {
        let name = format!("{release}-greeting");
        let ask = || async {
            let map = self.get("configmap", namespace, &name).await?;
            (map["data"]["greeting"] == greeting).then_some(map)
        };
        wait_for(&format!("{name} to say {greeting}"), SOON, ask).await
    }

    /// Asks helm itself, as administrator.
    pub(crate) async fn helm(&self, arguments: &[&str]) -> String {
        let kubeconfig = self.cluster.kubeconfig(Identity::Admin);
        let program = Program::new(&self.helm)
            .arguments(arguments.iter().copied())
            .variable("KUBECONFIG", &kubeconfig)
            .variable("HOME", self.folder.path());
        let finished = program.run(Vec::new()).await.unwrap();
        let stderr = String::from_utf8_lossy(&finished.stderr).into_owned();
        assert!(finished.exit.is_success(), "helm {arguments:?}: {stderr}");
        String::from_utf8(finished.stdout).unwrap()
    }

    /// The file of a chart of this version.
    pub(crate) fn packed(&self, version: &str) -> String {
        let path = self.folder.path().join(format!("web-{version}.tgz"));
        atomic_file::write(&path, &archive(version), Access::Public).unwrap();
        path.to_str().unwrap().to_owned()
    }

    /// The state and revision that helm tells of a release.
    pub(crate) async fn listed(&self, namespace: &str, release: &str) -> Option<(String, String)> {
        let filter = format!("^{release}$");
        let said = self
            .helm(&["list", "-n", namespace, "--filter", &filter, "-o", "json"])
            .await;
        let all: Vec<Value> = serde_json::from_str(&said).unwrap();
        let one = all.first()?;
        let text = |name: &str| one[name].as_str().unwrap().to_owned();
        Some((text("status"), text("revision")))
    }
}

/// A chart of this version, packed.
pub(crate) fn archive(version: &str) -> Vec<u8> {
    let chart = format!("apiVersion: v2\nname: web\nversion: {version}\nappVersion: '9.{version}'\n");
    let mut tar = tar::Builder::new(flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast()));
    for (name, text) in [
        ("web/Chart.yaml", chart.as_str()),
        ("web/values.yaml", "greeting: hello\nbroken: false\nrefused: false\n"),
        ("web/templates/greeting.yaml", CONFIG_MAP),
        ("web/templates/refused.yaml", REFUSED),
    ] {
        let mut header = tar::Header::new_gnu();
        header.set_size(text.len() as u64);
        header.set_mode(0o644);
        header.set_cksum();
        tar.append_data(&mut header, name, text.as_bytes()).unwrap();
    }
    let mut packed = tar.into_inner().unwrap();
    packed.flush().unwrap();
    packed.finish().unwrap()
}

/// A HelmChart with the chart in it, and more fields.
pub(crate) fn chart(namespace: &str, name: &str, more: Value) -> Value {
    let mut spec = json!({"chartContent": STANDARD.encode(archive("1.0.0"))});
    let fields = spec.as_object_mut().unwrap();
    for (key, value) in more.as_object().unwrap() {
        fields.insert(key.clone(), value.clone());
        if key == "chart" {
            fields.remove("chartContent");
        }
    }
    json!({
        "apiVersion": "helm.stratum.ciq.com/v1", "kind": "HelmChart",
        "metadata": {"namespace": namespace, "name": name}, "spec": spec,
    })
}

/// A Secret or ConfigMap.
pub(crate) fn values(kind: &str, namespace: &str, name: &str, text: &str) -> Value {
    let field = if kind == "Secret" { "stringData" } else { "data" };
    json!({
        "apiVersion": "v1", "kind": kind, "metadata": {"namespace": namespace, "name": name},
        field: {"values.yaml": text},
    })
}
