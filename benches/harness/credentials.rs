//! Credentials of the run's own authority, for as many users as a run wants to tell apart.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use anyhow::Result;
use stratum::host::atomic_file::{self, Access};
use stratum::host::clock;
use stratum::host::kubeconfig::Kubeconfig;
use stratum::host::layout::Layout;
use stratum::pki::authority::Authority;
use stratum::pki::key::{Key, KeyKind, Serial};
use stratum::pki::leaf::{Request, issue};
use stratum::pki::name::{AlternativeName, Subject};

/// The group that may do everything.
const MASTERS: &str = "system:masters";

/// The authority that clients are verified with.
pub(crate) struct Credentials {
    authority: Authority,
    authority_file: PathBuf,
    folder: PathBuf,
}

/// A certificate and its key, as PEM text.
pub(crate) struct Pair {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

impl Credentials {
    /// Loads the authority of a control plane; what is made with it goes into `folder`.
    pub(crate) fn load(layout: &Layout, folder: &Path) -> Result<Self> {
        let authority_file = layout.pki().join("ca.crt");
        let certificate = std::fs::read(&authority_file)?;
        let key = std::fs::read(layout.pki().join("ca.key"))?;
        atomic_file::create_folder(folder, Access::Secret)?;
        Ok(Self {
            authority: Authority::load(&certificate, &key)?,
            authority_file,
            folder: folder.to_owned(),
        })
    }

    /// The authority's certificate.
    pub(crate) fn authority(&self) -> &Path {
        &self.authority_file
    }

    /// A client certificate for a user who may do everything.
    pub(crate) fn client(&self, user: &str) -> Result<Pair> {
        self.pair(&Request::client(Subject::user(user).in_group(MASTERS)))
    }

    /// A certificate for a server on loopback.
    pub(crate) fn server(&self, name: &str) -> Result<Pair> {
        let address = AlternativeName::ip(Ipv4Addr::LOCALHOST);
        self.pair(&Request::server(Subject::user(name), vec![address]))
    }

    fn pair(&self, request: &Request) -> Result<Pair> {
        let key = Key::generate(KeyKind::EcdsaP256)?;
        let certificate = issue(&self.authority, request, &key, Serial::random()?, clock::now())?;
        Ok(Pair {
            certificate: certificate.to_pem(),
            key: key.to_pem().expose().to_owned(),
        })
    }

    /// A kubeconfig for such a user, and the files it names.
    pub(crate) fn kubeconfig(&self, server: &str, user: &str) -> Result<PathBuf> {
        let pair = self.client(user)?;
        let file = |suffix: &str| self.folder.join(format!("{user}.{suffix}"));
        atomic_file::write(&file("crt"), pair.certificate.as_bytes(), Access::Secret)?;
        atomic_file::write(&file("key"), pair.key.as_bytes(), Access::Secret)?;
        let kubeconfig = Kubeconfig {
            server: server.to_owned(),
            user: user.to_owned(),
            certificate_authority: self.authority_file.clone(),
            client_certificate: file("crt"),
            client_key: file("key"),
        };
        kubeconfig.write(&file("conf"))?;
        Ok(file("conf"))
    }
}
