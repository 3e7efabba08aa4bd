//! A kubeconfig file, reduced to what a connection needs: which server, whose CA, and who we are.
//!
//! Everything a kubeconfig can say and this program does not do is refused by name, instead of being ignored: a client
//! that quietly leaves out a proxy or an impersonation is worse than none.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use http::Uri;
use k8s_openapi::ByteString;
use kube::config::{AuthInfo, Cluster, Kubeconfig};
use secrecy::{ExposeSecret, SecretString};
use zeroize::Zeroizing;

/// Why a kubeconfig cannot be used.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each message says it")]
pub enum KubeconfigError {
    #[error("reading kubeconfig {}", path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    /// Without its source, whose words quote the file.
    #[error("kubeconfig {} cannot be read: {fault}", path.display())]
    Parse { path: PathBuf, fault: String },
    #[error("kubeconfig {} has no current-context and not exactly one context; set current-context", path.display())]
    NoContext { path: PathBuf },
    #[error("kubeconfig {} names {kind} {name:?}, which it does not define", path.display())]
    Undefined {
        path: PathBuf,
        kind: &'static str,
        name: String,
    },
    #[error("kubeconfig {}: {field} is not supported here; {instead}", path.display())]
    Unsupported {
        path: PathBuf,
        field: &'static str,
        instead: &'static str,
    },
    #[error("kubeconfig {}: {field} is missing; {instead}", path.display())]
    Missing {
        path: PathBuf,
        field: &'static str,
        instead: &'static str,
    },
    #[error("kubeconfig {}: {field} is not valid: {value:?}", path.display())]
    Invalid {
        path: PathBuf,
        field: &'static str,
        value: String,
    },
}

/// Where bytes come from: a file that may change, or the kubeconfig itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// Read anew at each check.
    File(PathBuf),
    /// Stood in the kubeconfig.
    Inline(Zeroizing<Vec<u8>>),
}

/// One cluster and one user of a kubeconfig.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Endpoint {
    pub(super) server: Uri,
    /// The name in the server's certificate; the host of `server` unless `tls-server-name` says otherwise.
    pub(super) server_name: String,
    pub(super) namespace: String,
    /// `None` only for a server without TLS.
    pub(super) authority: Option<Source>,
    /// Certificate chain and key; both or neither.
    pub(super) identity: Option<(Source, Source)>,
    pub(super) token: Option<Source>,
}

impl Endpoint {
    /// Means another server of the same cluster, which has to show a certificate for its address.
    pub(super) fn move_to(&mut self, server: SocketAddr) {
        let scheme = self.server.scheme_str().unwrap_or("https");
        // An address and a port always make a URI.
        if let Ok(moved) = format!("{scheme}://{server}").parse() {
            self.server = moved;
            self.server_name = server.ip().to_string();
        }
    }
}

/// Reads `text`, the content of the kubeconfig at `path`. Relative paths in it are relative to its folder, as kubectl
/// reads them.
pub(super) fn parse(path: &Path, text: &str) -> Result<Endpoint, KubeconfigError> {
    let kubeconfig = Kubeconfig::from_yaml(text).map_err(|_| KubeconfigError::Parse {
        path: path.to_owned(),
        fault: fault(text),
    })?;
    let reader = Reader { path };
    let (cluster, user, namespace) = reader.current(kubeconfig)?;
    reader.endpoint(&cluster, user.unwrap_or_default(), namespace)
}

/// Where the fault is, and never what stands there: that may be a token or a key.
fn fault(text: &str) -> String {
    match serde_saphyr::from_str::<serde_json::Value>(text) {
        Err(error) => error.location().map_or_else(
            || "it is no YAML".to_owned(),
            |at| format!("line {}, column {} is no YAML", at.line(), at.column()),
        ),
        Ok(_) => {
            "a field is not of the form it has in a kubeconfig; 'kubectl config view' with it names which".to_owned()
        }
    }
}

struct Reader<'a> {
    path: &'a Path,
}

impl Reader<'_> {
    fn current(&self, kubeconfig: Kubeconfig) -> Result<(Cluster, Option<AuthInfo>, Option<String>), KubeconfigError> {
        let name = match (kubeconfig.current_context, kubeconfig.contexts.as_slice()) {
            (Some(name), _) if !name.is_empty() => name,
            (_, [only]) => only.name.clone(),
            (_, _) => {
                return Err(KubeconfigError::NoContext {
                    path: self.path.to_owned(),
                });
            }
        };
        let context = kubeconfig
            .contexts
            .into_iter()
            .find(|context| context.name == name)
            .and_then(|context| context.context)
            .ok_or_else(|| self.undefined("context", &name))?;
        let cluster = kubeconfig
            .clusters
            .into_iter()
            .find(|cluster| cluster.name == context.cluster)
            .and_then(|cluster| cluster.cluster)
            .ok_or_else(|| self.undefined("cluster", &context.cluster))?;
        let user = match context.user.filter(|user| !user.is_empty()) {
            None => None,
            Some(user) => Some(
                kubeconfig
                    .auth_infos
                    .into_iter()
                    .find(|named| named.name == user)
                    .ok_or_else(|| self.undefined("user", &user))?
                    .auth_info
                    .unwrap_or_default(),
            ),
        };
        Ok((cluster, user, context.namespace))
    }

    fn endpoint(
        &self,
        cluster: &Cluster,
        user: AuthInfo,
        namespace: Option<String>,
    ) -> Result<Endpoint, KubeconfigError> {
        self.refuse_unsupported(cluster, &user)?;
        let text = cluster
            .server
            .as_deref()
            .ok_or_else(|| self.missing("server", "name the API server as https://HOST:PORT"))?;
        let server: Uri = text.parse().map_err(|_| self.invalid("server", text))?;
        let (Some(scheme), Some(host)) = (server.scheme_str(), server.host()) else {
            return Err(self.invalid("server", text));
        };
        let with_tls = match scheme {
            "https" => true,
            "http" => false,
            _ => return Err(self.invalid("server", text)),
        };
        let server_name = cluster
            .tls_server_name
            .clone()
            .unwrap_or_else(|| host.trim_start_matches('[').trim_end_matches(']').to_owned());
        let authority = self.pem(
            "certificate-authority-data",
            cluster.certificate_authority_data.as_deref(),
            cluster.certificate_authority.as_deref(),
        )?;
        if with_tls && authority.is_none() {
            return Err(self.missing(
                "certificate-authority",
                "name the file of the CA that signed the API server",
            ));
        }
        Ok(Endpoint {
            server_name,
            namespace: namespace.unwrap_or_else(|| "default".to_owned()),
            authority: authority.filter(|_| with_tls),
            identity: self.identity(&user)?,
            token: self.token(&user),
            server,
        })
    }

    fn identity(&self, user: &AuthInfo) -> Result<Option<(Source, Source)>, KubeconfigError> {
        let certificate = self.pem(
            "client-certificate-data",
            user.client_certificate_data.as_deref(),
            user.client_certificate.as_deref(),
        )?;
        let key_data = user.client_key_data.as_ref().map(expose);
        let key = self.pem("client-key-data", key_data, user.client_key.as_deref())?;
        match (certificate, key) {
            (Some(certificate), Some(key)) => Ok(Some((certificate, key))),
            (None, None) => Ok(None),
            (Some(_), None) => Err(self.missing("client-key", "a client certificate is of no use without its key")),
            (None, Some(_)) => {
                Err(self.missing("client-certificate", "a client key is of no use without a certificate"))
            }
        }
    }

    fn token(&self, user: &AuthInfo) -> Option<Source> {
        match (&user.token, &user.token_file) {
            (Some(token), _) => Some(Source::Inline(Zeroizing::new(expose(token).as_bytes().to_vec()))),
            (None, Some(file)) => Some(Source::File(self.beside(file))),
            (None, None) => None,
        }
    }

    fn pem(
        &self,
        field: &'static str,
        data: Option<&str>,
        file: Option<&str>,
    ) -> Result<Option<Source>, KubeconfigError> {
        match (
            data.filter(|data| !data.is_empty()),
            file.filter(|file| !file.is_empty()),
        ) {
            (Some(data), _) => decode_base64(data)
                .map(|bytes| Some(Source::Inline(bytes)))
                // The value may be a key: name the field only.
                .ok_or_else(|| self.invalid(field, "(not base64)")),
            (None, Some(file)) => Ok(Some(Source::File(self.beside(file)))),
            (None, None) => Ok(None),
        }
    }

    fn refuse_unsupported(&self, cluster: &Cluster, user: &AuthInfo) -> Result<(), KubeconfigError> {
        let credentials = "use a client certificate, token or tokenFile";
        let refused = [
            (user.exec.is_some(), "exec (a credential plugin)", credentials),
            (user.auth_provider.is_some(), "auth-provider", credentials),
            (
                user.username.is_some() || user.password.is_some(),
                "username and password",
                credentials,
            ),
            (
                user.impersonate.is_some() || user.impersonate_groups.is_some() || user.impersonate_uid.is_some(),
                "as (impersonation)",
                "use the credentials of that user",
            ),
            (
                cluster.insecure_skip_tls_verify == Some(true),
                "insecure-skip-tls-verify",
                "name the CA in certificate-authority",
            ),
            (
                cluster.proxy_url.is_some(),
                "proxy-url",
                "name a server that can be reached directly",
            ),
        ];
        match refused.into_iter().find(|(set, _, _)| *set) {
            None => Ok(()),
            Some((_, field, instead)) => Err(KubeconfigError::Unsupported {
                path: self.path.to_owned(),
                field,
                instead,
            }),
        }
    }

    fn beside(&self, file: &str) -> PathBuf {
        self.path.parent().unwrap_or(Path::new("")).join(file)
    }

    fn undefined(&self, kind: &'static str, name: &str) -> KubeconfigError {
        KubeconfigError::Undefined {
            path: self.path.to_owned(),
            kind,
            name: name.to_owned(),
        }
    }

    fn missing(&self, field: &'static str, instead: &'static str) -> KubeconfigError {
        KubeconfigError::Missing {
            path: self.path.to_owned(),
            field,
            instead,
        }
    }

    fn invalid(&self, field: &'static str, value: &str) -> KubeconfigError {
        KubeconfigError::Invalid {
            path: self.path.to_owned(),
            field,
            value: value.to_owned(),
        }
    }
}

fn expose(secret: &SecretString) -> &str {
    secret.expose_secret()
}

/// Base64 as every `*-data` field carries it; `None` when it is not.
fn decode_base64(text: &str) -> Option<Zeroizing<Vec<u8>>> {
    let decoded: ByteString = serde_json::from_value(serde_json::Value::String(text.trim().to_owned())).ok()?;
    Some(Zeroizing::new(decoded.0))
}

#[cfg(test)]
mod tests;
