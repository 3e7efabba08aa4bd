//! Clients of somebody in particular: with a certificate that the cluster's CA signed for them, never an impersonation.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use kube::config::{KubeConfigOptions, Kubeconfig as Loaded};
use kube::{Client, Config};
use stratum::host::atomic_file::{self, Access};
use stratum::host::clock;
use stratum::host::kubeconfig::Kubeconfig;
use stratum::pki::authority::Authority;
use stratum::pki::certificate::Certificate;
use stratum::pki::key::{Key, KeyKind, Serial};
use stratum::pki::leaf::{Request, issue};
use stratum::pki::name::Subject;

use super::Cluster;

impl Cluster {
    /// A client with a certificate for `user` in `groups`.
    pub(crate) async fn client_of(&self, user: &str, groups: &[&str]) -> Client {
        let loaded = Loaded::read_from(self.kubeconfig_of(user, groups)).unwrap();
        let config = Config::from_custom_kubeconfig(loaded, &KubeConfigOptions::default()).await;
        Client::try_from(config.unwrap()).unwrap()
    }

    /// A client of the kubelet on `node`.
    pub(crate) async fn kubelet(&self, node: &str) -> Client {
        self.client_of(&format!("system:node:{node}"), &["system:nodes"]).await
    }

    /// A client certificate of the kubelet on `node`, as the cluster's signer makes it.
    pub(crate) fn kubelet_certificate(&self, node: &str) -> Certificate {
        self.issue(&format!("system:node:{node}"), &["system:nodes"]).1
    }

    fn issue(&self, user: &str, groups: &[&str]) -> (Key, Certificate) {
        let read = |name: &str| fs::read(self.plane.layout().pki().join(name)).unwrap();
        let authority = Authority::load(&read("ca.crt"), &read("ca.key")).unwrap();
        let subject = groups
            .iter()
            .fold(Subject::user(user), |subject, group| subject.in_group(*group));
        let key = Key::generate(KeyKind::default()).unwrap();
        let serial = Serial::random().unwrap();
        let certificate = issue(&authority, &Request::client(subject), &key, serial, clock::now()).unwrap();
        (key, certificate)
    }

    /// A kubeconfig with a certificate for `user` in `groups`.
    pub(crate) fn kubeconfig_of(&self, user: &str, groups: &[&str]) -> PathBuf {
        static COUNTER: AtomicU32 = AtomicU32::new(0);
        let layout = self.plane.layout();
        let (key, certificate) = self.issue(user, groups);
        let folder = layout.state().join("people");
        atomic_file::create_folder(&folder, Access::Secret).unwrap();
        let number = COUNTER.fetch_add(1, Ordering::Relaxed);
        let file = |ending: &str| folder.join(format!("{number}.{ending}"));
        let kubeconfig = Kubeconfig {
            server: self.plane.server(),
            user: user.to_owned(),
            certificate_authority: layout.pki().join("ca.crt"),
            client_certificate: file("crt"),
            client_key: file("key"),
        };
        atomic_file::write(&file("crt"), certificate.to_pem().as_bytes(), Access::Public).unwrap();
        atomic_file::write(&file("key"), key.to_pem().expose().as_bytes(), Access::Secret).unwrap();
        kubeconfig.write(&file("conf")).unwrap();
        file("conf")
    }
}
