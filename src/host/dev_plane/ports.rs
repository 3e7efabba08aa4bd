//! Ports on loopback that are free now, the same as last time if possible: a kubeconfig somebody copied stays right.

use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::super::atomic_file::{self, Access};

/// No ports.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The system has no free port on 127.0.0.1.
    #[error("no free port on 127.0.0.1")]
    NoneFree(#[source] io::Error),
    /// The file that remembers them cannot be written.
    #[error("cannot remember the ports")]
    Remember(#[source] atomic_file::Error),
    /// The file that remembers them holds something else.
    #[error("{} does not hold ports: remove it to choose new ones", path.display())]
    Nonsense {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        source: serde_json::Error,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Ports {
    pub(super) api_server: u16,
    pub(super) etcd: u16,
    pub(super) etcd_peer: u16,
}

impl Ports {
    /// The remembered ports if all are free and `fresh` is not asked for, else new ones, which are then remembered.
    pub(super) fn choose(state: &Path, fresh: bool) -> Result<Self, Error> {
        let path = state.join("dev-ports.json");
        if let (false, Ok(bytes)) = (fresh, std::fs::read(&path)) {
            let ports: Self = serde_json::from_slice(&bytes).map_err(|source| Error::Nonsense {
                path: path.clone(),
                source,
            })?;
            if [ports.api_server, ports.etcd, ports.etcd_peer]
                .into_iter()
                .all(|port| bind(port).is_ok())
            {
                return Ok(ports);
            }
        }
        let ports = Self::free().map_err(Error::NoneFree)?;
        let text = format!("{}\n", serde_json::json!(ports));
        atomic_file::write(&path, text.as_bytes(), Access::Public).map_err(Error::Remember)?;
        Ok(ports)
    }

    /// All three are held at once, so that they differ.
    fn free() -> io::Result<Self> {
        let listeners = [bind(0)?, bind(0)?, bind(0)?];
        let [api_server, etcd, etcd_peer] = listeners.each_ref().map(|listener| listener.local_addr());
        Ok(Self {
            api_server: api_server?.port(),
            etcd: etcd?.port(),
            etcd_peer: etcd_peer?.port(),
        })
    }

    pub(super) fn api_server_url(self) -> String {
        url(self.api_server)
    }

    pub(super) fn etcd_url(self) -> String {
        url(self.etcd)
    }

    pub(super) fn etcd_peer_url(self) -> String {
        url(self.etcd_peer)
    }
}

fn bind(port: u16) -> io::Result<TcpListener> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port))
}

fn url(port: u16) -> String {
    format!("https://127.0.0.1:{port}")
}
