//! The arguments of helm 4.
//!
//! helm runs in a folder of its own, which holds the files that are named here. Nothing that is secret is an argument, for
//! those are seen by everybody on the machine: passwords come on standard input or in files. No argument can be taken for a
//! flag: what a user wrote stands behind its flag, or was refused when it begins with `-`.

use secrecy::{ExposeSecret, SecretString};

use super::decide::Action;
use super::digest::Digest;
use super::source::{Accepted, Source};
use super::spec::{ChartSpec, ConfigSpec, CrdPolicy, DriftDetection, ServerSide};
use super::values::{Document, set_arguments};
use super::{ChartId, DIGEST_LABEL, NAME_LABEL, NAMESPACE_LABEL, ReleaseId};

/// The chart, as a file.
pub const CHART: &str = "chart.tgz";
/// Where a chart that is fetched is put: the only file there.
pub const FETCHED: &str = "fetched";
/// Revisions that are kept, where nothing is said.
const HISTORY: u32 = 5;
/// The repository's name for helm, which wants one.
const REPOSITORY: &str = "repository";

/// One run of helm.
#[derive(Clone, Debug, Default)]
pub struct Invocation {
    /// Its arguments.
    pub arguments: Vec<String>,
    /// Files that it needs: names and contents.
    pub files: Vec<(String, SecretString)>,
    /// What it reads from standard input.
    pub input: Option<SecretString>,
}

/// What shows a repository or registry who asks.
#[derive(Clone, Debug, Default)]
pub struct Credentials {
    /// The authorities its certificate may come from, as PEM.
    pub authorities: Option<String>,
    /// A user's name and password.
    pub password: Option<(String, SecretString)>,
    /// A client certificate and its key, as PEM.
    pub certificate: Option<(String, SecretString)>,
    /// The configuration of an OCI registry (`.dockerconfigjson`).
    pub registry: Option<SecretString>,
}

/// The runs that put the chart into [`FETCHED`], in their order; none for one that is a file already.
#[must_use]
pub fn fetch(source: &Source, spec: &ChartSpec, credentials: &Credentials) -> Vec<Invocation> {
    match source {
        Source::Content(_) | Source::File(_) => Vec::new(),
        Source::Address(address) => {
            let mut pull = Invocation::of(&["pull", address, "--destination", FETCHED]);
            pull.asking(spec, credentials);
            pull.version(spec, address.starts_with("oci://"));
            if spec.plain_http {
                pull.push(&["--plain-http"]);
            }
            if let Some(config) = registry(address, credentials) {
                pull.file("registry.json", config);
                pull.push(&["--registry-config", "registry.json"]);
            }
            vec![pull]
        }
        Source::Repository { repository, chart } => {
            let kept = [
                "--repository-config",
                "repositories.yaml",
                "--repository-cache",
                "repositories",
            ];
            let mut add = Invocation::of(&["repo", "add", REPOSITORY, repository]);
            add.push(&kept);
            add.asking(spec, credentials);
            // helm keeps them with the repository, for the chart itself.
            if let Some((user, password)) = &credentials.password {
                add.push(&["--username", user, "--password-stdin"]);
                add.input = Some(password.clone());
            }
            if spec.auth_pass_credentials {
                add.push(&["--pass-credentials"]);
            }
            let mut pull = Invocation::of(&["pull", &format!("{REPOSITORY}/{chart}"), "--destination", FETCHED]);
            pull.push(&kept);
            pull.version(spec, true);
            vec![add, pull]
        }
    }
}

/// The configuration that lets helm into an OCI registry.
fn registry(address: &str, credentials: &Credentials) -> Option<SecretString> {
    if let Some(config) = &credentials.registry {
        return Some(config.clone());
    }
    let host = address.strip_prefix("oci://")?.split('/').next()?;
    let (user, password) = credentials.password.as_ref()?;
    let config = serde_json::json!({"auths": {host: {"username": user, "password": password.expose_secret()}}});
    Some(config.to_string().into())
}

/// Only the passwords of a registry's configuration: what else it may hold names programs that are asked for them. `None` when
/// it is no JSON, or has none.
#[must_use]
pub fn only_passwords(config: &str) -> Option<SecretString> {
    let config: serde_json::Value = serde_json::from_str(config).ok()?;
    let passwords = config.get("auths").filter(|passwords| passwords.is_object())?;
    Some(serde_json::json!({"auths": passwords}).to_string().into())
}

/// Who acts, and what is told apart by it.
#[derive(Clone, Debug)]
pub struct Run<'a> {
    /// Which HelmChart.
    pub id: &'a ChartId,
    /// What it says.
    pub spec: &'a ChartSpec,
    /// What its config adds.
    pub config: Option<&'a ConfigSpec>,
    /// Where to.
    pub accepted: &'a Accepted,
    /// Its values.
    pub documents: &'a [Document],
    /// What tells the wish from another.
    pub digest: &'a Digest,
    /// The file of the chart.
    pub chart: &'a str,
}

impl Run<'_> {
    /// The run for an action.
    #[must_use]
    pub fn invocation(&self, action: Action) -> Invocation {
        match action {
            Action::Install => self.bring("install"),
            Action::Upgrade(_) => self.bring("upgrade"),
            Action::Rollback { to } => self.rollback(to),
            Action::Uninstall(_) => {
                let timeout = self.accepted.timeout.as_secs();
                uninstall(&self.accepted.release, self.acts_as(), timeout)
            }
        }
    }

    fn bring(&self, verb: &str) -> Invocation {
        let Self { spec, accepted, .. } = self;
        let mut run = Invocation::of(&[verb, &accepted.release.name, self.chart]);
        run.placed(&accepted.release, self.acts_as(), accepted.timeout.as_secs());
        let is_install = verb == "install";
        // Without it an upgrade without values takes those of the revision before.
        run.push(if is_install { &[] } else { &["--reset-values"] });
        if is_install && spec.create_namespace {
            run.push(&["--create-namespace"]);
        }
        if !is_install {
            run.push(&["--history-max", &spec.max_history.unwrap_or(HISTORY).to_string()]);
        }
        for (number, document) in self.documents.iter().enumerate() {
            let name = format!("values-{number}.yaml");
            run.push(&["--values", &name]);
            run.file(&name, document.text.clone());
        }
        run.arguments.extend(set_arguments(&spec.set));
        if spec.crds == Some(CrdPolicy::Skip) {
            run.push(&["--skip-crds"]);
        }
        if spec.take_ownership {
            run.push(&["--take-ownership"]);
        }
        if spec.atomic {
            run.push(&["--wait=watcher", "--rollback-on-failure"]);
        }
        self.merged(&mut run, is_install);
        let ChartId { namespace, name } = self.id;
        let labels = format!(
            "{NAMESPACE_LABEL}={namespace},{NAME_LABEL}={name},{DIGEST_LABEL}={}",
            self.digest.label()
        );
        run.push(&["--labels", &labels]);
        run
    }

    /// Who merges the objects. An install knows no `auto`, which is `true` there.
    fn merged(&self, run: &mut Invocation, is_install: bool) {
        let server_side = self
            .config
            .and_then(|config| config.server_side)
            .or(self.spec.server_side);
        let force = self
            .config
            .and_then(|config| config.force_conflicts)
            .unwrap_or(self.spec.force_conflicts);
        // helm refuses to force where it merges itself, as there are no conflicts then; and who does it the way of the last
        // revision cannot say beforehand which that is.
        let server_side = match server_side {
            None | Some(ServerSide::Auto) if force => Some(ServerSide::True),
            Some(ServerSide::Auto) if is_install => None,
            other => other,
        };
        if let Some(server_side) = server_side {
            let word: &str = server_side.into();
            run.push(&[&format!("--server-side={word}")]);
        }
        if force && server_side != Some(ServerSide::False) {
            run.push(&["--force-conflicts"]);
        }
    }

    fn rollback(&self, to: u32) -> Invocation {
        let Accepted { release, timeout, .. } = self.accepted;
        let mut run = Invocation::of(&["rollback", &release.name, &to.to_string()]);
        run.placed(release, self.acts_as(), timeout.as_secs());
        run.push(&["--history-max", &self.spec.max_history.unwrap_or(HISTORY).to_string()]);
        run
    }

    fn acts_as(&self) -> Option<(&str, &str)> {
        let account = self.accepted.service_account.as_deref();
        account.map(|account| (self.id.namespace.as_str(), account))
    }
}

/// The run that uninstalls a release; `acts_as` is the namespace and the name of a ServiceAccount. A release that is gone is
/// no failure.
#[must_use]
pub fn uninstall(release: &ReleaseId, acts_as: Option<(&str, &str)>, timeout: u64) -> Invocation {
    let mut run = Invocation::of(&["uninstall", &release.name, "--ignore-not-found"]);
    run.placed(release, acts_as, timeout);
    run
}

/// The fields that are accepted and do nothing.
#[must_use]
pub fn without_effect(spec: &ChartSpec) -> Vec<&'static str> {
    let fields = [
        ("bootstrap", spec.bootstrap),
        ("jobImage", spec.job_image.is_some()),
        ("backOffLimit", spec.back_off_limit.is_some()),
        ("podSecurityContext", spec.pod_security_context.is_some()),
        ("securityContext", spec.security_context.is_some()),
        // Drift is not looked for yet, and CRDs are made by helm alone.
        (
            "driftDetection",
            spec.drift_detection
                .is_some_and(|mode| mode != DriftDetection::Disabled),
        ),
        ("crds: createReplace", spec.crds == Some(CrdPolicy::CreateReplace)),
    ];
    fields
        .into_iter()
        .filter(|(_, is_set)| *is_set)
        .map(|(name, _)| name)
        .collect()
}

impl Invocation {
    fn of(arguments: &[&str]) -> Self {
        let mut invocation = Self::default();
        invocation.push(arguments);
        invocation
    }

    fn push(&mut self, arguments: &[&str]) {
        self.arguments
            .extend(arguments.iter().map(|argument| (*argument).to_owned()));
    }

    fn file(&mut self, name: &str, content: SecretString) {
        self.files.push((name.to_owned(), content));
    }

    /// Where to, as whom, and how long.
    fn placed(&mut self, release: &ReleaseId, acts_as: Option<(&str, &str)>, timeout: u64) {
        self.push(&["--namespace", &release.namespace, "--timeout", &format!("{timeout}s")]);
        if let Some((namespace, account)) = acts_as {
            self.push(&[
                "--kube-as-user",
                &format!("system:serviceaccount:{namespace}:{account}"),
            ]);
            // The groups of a token of that ServiceAccount, which an impersonation does not bring.
            for group in [
                "system:serviceaccounts".to_owned(),
                format!("system:serviceaccounts:{namespace}"),
                "system:authenticated".to_owned(),
            ] {
                self.push(&["--kube-as-group", &group]);
            }
        }
    }

    /// How a repository is asked.
    fn asking(&mut self, spec: &ChartSpec, credentials: &Credentials) {
        if let Some(authorities) = &credentials.authorities {
            self.file("ca.crt", authorities.clone().into());
            self.push(&["--ca-file", "ca.crt"]);
        }
        if let Some((certificate, key)) = &credentials.certificate {
            self.file("client.crt", certificate.clone().into());
            self.file("client.key", key.clone());
            self.push(&["--cert-file", "client.crt", "--key-file", "client.key"]);
        }
        if spec.insecure_skip_tls_verify {
            self.push(&["--insecure-skip-tls-verify"]);
        }
    }

    fn version(&mut self, spec: &ChartSpec, has_versions: bool) {
        if let Some(version) = spec
            .version
            .as_ref()
            .filter(|version| has_versions && !version.is_empty())
        {
            self.push(&["--version", version]);
        }
    }
}
