//! The certificates and keys of the control plane, in the files and under the names kubeadm gives them.
//!
//! What is there and good stays. A leaf is renewed, with its key kept, when its signer, subject or names changed or its
//! renewal is due. An authority is never replaced: what one file of a pair is missing is an error, for everything the
//! cluster stands on would silently change.

use std::io;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use jiff::{SignedDuration, Timestamp};

use super::super::atomic_file::{self, Access};
use super::super::layout::{Identity, Layout};
use super::Credential;
use crate::pki::authority::{self, Authority};
use crate::pki::certificate::Certificate;
use crate::pki::key::{self, Key, KeyKind, Serial};
use crate::pki::leaf::{self, Request, Usage, issue};
use crate::pki::name::{AlternativeName, Subject};

/// A certificate or key that cannot be prepared.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// A file cannot be written.
    #[error(transparent)]
    Write(#[from] atomic_file::Error),
    /// Of an authority's two files one is missing.
    #[error("{} is missing, but its other half is there: bring it back, or remove both to start with a new authority", path.display())]
    HalfAuthority {
        /// The missing file.
        path: PathBuf,
    },
    /// An authority cannot be made or loaded.
    #[error("the authority in {} cannot be used", path.display())]
    Authority {
        /// Its certificate's file.
        path: PathBuf,
        /// What is wrong.
        #[source]
        source: authority::Error,
    },
    /// A key cannot be made or read.
    #[error("the key {} cannot be used", path.display())]
    Key {
        /// Its file.
        path: PathBuf,
        /// What is wrong.
        #[source]
        source: key::Error,
    },
    /// A certificate cannot be issued.
    #[error("cannot issue {}", path.display())]
    Issue {
        /// Its file.
        path: PathBuf,
        /// What is wrong.
        #[source]
        source: leaf::Error,
    },
}

/// What is needed of it while the control plane runs.
#[derive(Debug)]
pub(super) struct Material {
    cluster: Authority,
    kind: KeyKind,
}

impl Material {
    pub(super) fn prepare(layout: &Layout, kind: KeyKind, now: Timestamp) -> Result<Self, Error> {
        let folder = Folder {
            path: layout.pki(),
            kind,
            now,
        };
        let cluster = folder.authority("ca", "kubernetes-ca")?;
        let etcd = folder.authority("etcd/ca", "etcd-ca")?;
        let front_proxy = folder.authority("front-proxy-ca", "front-proxy-ca")?;
        folder.leaf(
            "apiserver",
            &cluster,
            &Request::server(Subject::user("kube-apiserver"), server_names()),
        )?;
        let client = |user: &str| Request::client(Subject::user(user));
        folder.leaf("apiserver-etcd-client", &etcd, &client("kube-apiserver-etcd-client"))?;
        folder.leaf("front-proxy-client", &front_proxy, &client("front-proxy-client"))?;
        for name in ["server", "peer"] {
            // etcd uses either certificate on both sides of a connection.
            let request = Request {
                usages: vec![Usage::Server, Usage::Client],
                ..Request::server(Subject::user("stratum-dev"), local_names())
            };
            folder.leaf(&format!("etcd/{name}"), &etcd, &request)?;
        }
        for identity in super::IDENTITIES {
            folder.leaf(identity.name(), &cluster, &Request::client(subject(identity)))?;
        }
        let service_accounts = folder.key("sa")?;
        atomic_file::write_if_changed(
            &folder.file("sa.pub"),
            service_accounts.public_key_pem().as_bytes(),
            Access::Public,
        )?;
        Ok(Self { cluster, kind })
    }

    pub(super) fn authority(&self) -> String {
        self.cluster.certificate().to_pem()
    }

    /// A client of `system:masters`, in memory only.
    pub(super) fn bootstrap(&self, lifetime: SignedDuration, now: Timestamp) -> Result<Credential, Error> {
        let path = || PathBuf::from("the bootstrap certificate");
        let unusable = |source| Error::Key { path: path(), source };
        let key = Key::generate(self.kind).map_err(unusable)?;
        let serial = Serial::random().map_err(unusable)?;
        let subject = Subject::user("stratum:bootstrap").in_group("system:masters");
        let request = Request {
            lifetime,
            ..Request::client(subject)
        };
        let certificate = issue(&self.cluster, &request, &key, serial, now);
        let certificate = certificate
            .map_err(|source| Error::Issue { path: path(), source })?
            .to_pem();
        Ok(Credential {
            certificate,
            key: key.to_pem(),
        })
    }
}

/// As the API server sees them. None is in `system:masters`: what they may do, bindings say.
fn subject(identity: Identity) -> Subject {
    match identity {
        Identity::Admin => Subject::user("stratum:admin").in_group("stratum:cluster-admins"),
        Identity::Operator => Subject::user("stratum:operator"),
        Identity::Deployer => Subject::user("stratum:deployer"),
        Identity::ControllerManager => Subject::user("system:kube-controller-manager"),
        Identity::Scheduler => Subject::user("system:kube-scheduler"),
        Identity::Kubelet => Subject::user("system:node:dev").in_group("system:nodes"),
    }
}

fn local_names() -> Vec<AlternativeName> {
    vec![
        AlternativeName::dns("localhost"),
        AlternativeName::ip(Ipv4Addr::LOCALHOST),
    ]
}

fn server_names() -> Vec<AlternativeName> {
    let mut names = local_names();
    let services = [
        "kubernetes",
        "kubernetes.default",
        "kubernetes.default.svc",
        "kubernetes.default.svc.cluster.local",
    ];
    names.extend(services.map(AlternativeName::dns));
    // The first address of the service range.
    names.push(AlternativeName::ip(Ipv4Addr::new(10, 96, 0, 1)));
    names
}

/// The PKI folder, the kind of new keys, and the time.
struct Folder {
    path: PathBuf,
    kind: KeyKind,
    now: Timestamp,
}

impl Folder {
    fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    fn pair(&self, name: &str) -> [PathBuf; 2] {
        [self.file(&format!("{name}.crt")), self.file(&format!("{name}.key"))]
    }

    fn authority(&self, name: &str, common_name: &str) -> Result<Authority, Error> {
        let [certificate_file, key_file] = self.pair(name);
        let unusable = |source| Error::Authority {
            path: certificate_file.clone(),
            source,
        };
        match (read(&certificate_file)?, read(&key_file)?) {
            (Some(certificate), Some(key)) => Authority::load(&certificate, &key).map_err(unusable),
            (Some(_), None) => Err(Error::HalfAuthority { path: key_file }),
            (None, Some(_)) => Err(Error::HalfAuthority { path: certificate_file }),
            (None, None) => {
                let made = Authority::make(
                    common_name,
                    self.new_key(&key_file)?,
                    self.serial(&certificate_file)?,
                    self.now,
                );
                let authority = made.map_err(unusable)?;
                self.write_pair(name, authority.certificate(), authority.key())?;
                Ok(authority)
            }
        }
    }

    fn leaf(&self, name: &str, signer: &Authority, request: &Request) -> Result<(), Error> {
        let [certificate_file, key_file] = self.pair(name);
        // A key that cannot be read is of no use to anybody else either.
        let found = read(&key_file)?.and_then(|pem| Key::from_pem(&pem).ok());
        if let (Some(key), Some(pem)) = (&found, read(&certificate_file)?)
            && let Ok(certificate) = Certificate::from_pem(&pem)
            && is_good(&certificate, signer, request, key, self.now)
        {
            return Ok(());
        }
        let key = match found {
            Some(key) => key,
            None => self.new_key(&key_file)?,
        };
        let serial = self.serial(&certificate_file)?;
        let issued = issue(signer, request, &key, serial, self.now);
        let certificate = issued.map_err(|source| Error::Issue {
            path: certificate_file,
            source,
        })?;
        self.write_pair(name, &certificate, &key)
    }

    fn key(&self, name: &str) -> Result<Key, Error> {
        let path = self.file(&format!("{name}.key"));
        match read(&path)? {
            Some(pem) => Key::from_pem(&pem).map_err(|source| Error::Key { path, source }),
            None => {
                let key = self.new_key(&path)?;
                atomic_file::write(&path, key.to_pem().expose().as_bytes(), Access::Secret)?;
                Ok(key)
            }
        }
    }

    /// The key first: a certificate without its key is worse than a key without its certificate.
    fn write_pair(&self, name: &str, certificate: &Certificate, key: &Key) -> Result<(), Error> {
        let [certificate_file, key_file] = self.pair(name);
        atomic_file::write_if_changed(&key_file, key.to_pem().expose().as_bytes(), Access::Secret)?;
        atomic_file::write(&certificate_file, certificate.to_pem().as_bytes(), Access::Public)?;
        Ok(())
    }

    fn new_key(&self, path: &Path) -> Result<Key, Error> {
        Key::generate(self.kind).map_err(|source| Error::Key {
            path: path.to_owned(),
            source,
        })
    }

    fn serial(&self, path: &Path) -> Result<Serial, Error> {
        Serial::random().map_err(|source| Error::Key {
            path: path.to_owned(),
            source,
        })
    }
}

/// Whether a leaf that was found can go on as what was asked for.
fn is_good(certificate: &Certificate, signer: &Authority, request: &Request, key: &Key, now: Timestamp) -> bool {
    let details = certificate.details();
    // A renewal that would not end later is none.
    let is_last = details.not_after == signer.certificate().details().not_after;
    certificate.check_issued_by(signer.certificate()).is_ok()
        && certificate.is_in_date(now)
        && (!certificate.is_due(now) || is_last)
        && certificate.public_key_der() == key.public_key_der()
        && details.common_name.as_ref() == Some(&request.subject.common_name)
        && details.organizations == request.subject.organizations
        && details.alternative_names == request.alternative_names
        && request.usages.iter().all(|usage| match usage {
            Usage::Server => details.server_auth,
            Usage::Client => details.client_auth,
        })
}

fn read(path: &Path) -> Result<Option<Vec<u8>>, Error> {
    match std::fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(Error::Read {
            path: path.to_owned(),
            source,
        }),
    }
}
