//! How one consumer is restarted, and what is waited for before and after.

use std::collections::BTreeSet;
use std::io::Write;
use std::time::Duration;

use http::Method;
use tokio::net::TcpStream;

use super::{Moved, Mover, PACE, Patience, component, here, told};
use crate::controllers::certificates::rotate::error::Error;
use crate::controllers::certificates::rotate::fencing;
use crate::controllers::cluster;
use crate::controllers::concern::chain;
use crate::controllers::progress::tell;
use crate::host::certificates::{KUBELET_CLIENT, Origin};
use crate::host::clock;
use crate::host::control_socket::{self, Answer, Question};
use crate::host::static_pods::{self, Component, Mark};
use crate::host::supervisor::ServiceName;
use crate::reconcilers::certificates::moves::{Consumer, Move, Proof, Reason};

/// What became of a restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Restarted {
    /// It was.
    Yes,
    /// It was started after the write by somebody else.
    Younger,
    /// Nobody is there who could hold an old certificate.
    NotRunning,
}

impl Mover<'_> {
    pub(super) async fn restart(&mut self, consumer: Consumer, reason: Reason) -> Result<Restarted, Error> {
        match consumer {
            Consumer::Kubelet => self.service(consumer, ServiceName::Kubelet).await,
            Consumer::Operator => {
                self.gate().await?;
                self.service(consumer, ServiceName::Operator).await
            }
            _ => match component(consumer) {
                Some(component) => self.pod(consumer, component, reason).await,
                None => Ok(Restarted::NotRunning),
            },
        }
    }

    /// A static pod: its processes are ended, and what the kubelet starts then is waited for.
    async fn pod(&mut self, consumer: Consumer, component: Component, reason: Reason) -> Result<Restarted, Error> {
        let failed = |source| Error::Move { consumer, source };
        let pids = self.pods.pids(component).map_err(failed)?;
        if pids.is_empty() && !(self.kubelet_runs && self.pods.has_manifest(component)) {
            return Ok(Restarted::NotRunning);
        }
        if !self.kubelet_runs {
            return Err(Error::NoKubelet { consumer });
        }
        let is_up = self.pods.active(component).await || component.listener().is_none();
        let older = self.pods.older(component, self.mark).map_err(failed)?;
        let is_younger = !pids.is_empty() && older.is_empty();
        if reason == Reason::AtStart && is_up && is_younger {
            return Ok(Restarted::Younger);
        }
        if component > Component::KubeApiserver {
            self.gate().await?;
        }
        let Patience { stop, answer, .. } = self.patience;
        // What was started after the write and does not answer yet is on its way.
        if reason != Reason::Down || !is_younger {
            // Not rendered anew: that would put the images of another binary in with a certificate.
            let restarted = if self.pods.has_manifest(component) {
                self.pods.restart_as_is(component, stop).await
            } else {
                self.pods.restart(component, stop).await
            };
            restarted.map_err(failed)?;
        }
        self.pods
            .wait_replaced(component, self.mark, stop)
            .await
            .map_err(failed)?;
        if component.has_listener() {
            self.pods.wait_active(component, answer).await.map_err(failed)?;
        } else {
            self.appeared(component, answer).await.map_err(failed)?;
        }
        if component == Component::KubeApiserver {
            self.ready(answer).await?;
        }
        Ok(Restarted::Yes)
    }

    /// Until a component that listens nowhere has a process.
    async fn appeared(&self, component: Component, limit: Duration) -> Result<(), static_pods::Error> {
        let deadline = clock::monotonic() + limit;
        while !self.pods.running(component)? && clock::monotonic() < deadline {
            clock::sleep(PACE).await;
        }
        Ok(())
    }

    /// A service of `stratum up`.
    async fn service(&mut self, consumer: Consumer, service: ServiceName) -> Result<Restarted, Error> {
        if let Origin::Kubeadm = self.machine.origin {
            self.by_hand.push("systemctl restart kubelet".to_owned());
            return Ok(Restarted::NotRunning);
        }
        let socket = self.machine.layout.control_socket();
        let failed = |source| Error::Service { consumer, source };
        match control_socket::ask(&socket, &Question::Status).await {
            Ok(Answer::Status(services)) => {
                // `stratum up` starts the operator once the cluster is ready for it.
                let Some(status) = services.get(&service) else {
                    return Ok(Restarted::NotRunning);
                };
                let started = match status.process {
                    Some(process) => self.pods.start_ticks(process),
                    None => Ok(None),
                };
                let started = started.map_err(|source| Error::Move { consumer, source })?;
                if started.is_some_and(|ticks| Mark::at(ticks) > self.mark) {
                    return Ok(Restarted::Younger);
                }
            }
            Ok(_) => {}
            Err(control_socket::Error::NotRunning { .. }) => return Ok(Restarted::NotRunning),
            Err(error) => return Err(failed(error)),
        }
        match control_socket::ask(&socket, &Question::Restart(service)).await {
            Ok(Answer::Restarted(_)) => Ok(Restarted::Yes),
            Ok(Answer::Refused(reason)) => Err(Error::Refused { consumer, reason }),
            Ok(_) => Ok(Restarted::NotRunning),
            Err(control_socket::Error::NotRunning { .. }) => Ok(Restarted::NotRunning),
            Err(error) => Err(failed(error)),
        }
    }

    /// The kubelet first: nobody else starts a pod.
    pub(super) async fn kubelet(&mut self, progress: &mut (dyn Write + Send)) -> Result<Option<Moved>, Error> {
        let is_new = self.marker.leaves.contains(KUBELET_CLIENT);
        self.kubelet_runs = self.kubelet_answers().await;
        if self.kubelet_runs && !is_new {
            return Ok(None);
        }
        let reason = if is_new { Reason::AtStart } else { Reason::Down };
        let restarted = self.restart(Consumer::Kubelet, reason).await?;
        if restarted == Restarted::Yes || (is_new && !self.by_hand.is_empty()) {
            self.until_the_kubelet_answers(progress).await?;
        }
        self.kubelet_runs = self.kubelet_answers().await;
        if !is_new && restarted != Restarted::Yes {
            self.by_hand.clear();
            return Ok(None);
        }
        let proof = match restarted {
            Restarted::Yes | Restarted::Younger => Proof::StartedAfter,
            Restarted::NotRunning => Proof::NotRunning,
        };
        let moved = Move {
            consumer: Consumer::Kubelet,
            restart: (restarted == Restarted::Yes).then_some(reason),
            proofs: is_new.then(|| (KUBELET_CLIENT.to_owned(), proof)).into_iter().collect(),
        };
        tell(progress, told(&moved));
        Ok(Some(moved))
    }

    /// Waits, as long as its patience goes: whether it answers then is asked again.
    pub(in super::super) async fn until_the_kubelet_answers(
        &self,
        progress: &mut (dyn Write + Send),
    ) -> Result<(), Error> {
        let limit = self.patience.kubelet;
        let deadline = clock::monotonic() + limit;
        let mut is_told = false;
        while !self.kubelet_answers().await && clock::monotonic() < deadline {
            if !is_told {
                tell(
                    progress,
                    format_args!("kubelet: waiting until it answers, at most {} s", limit.as_secs()),
                );
                is_told = true;
            }
            let pause = self.stop.run_until_cancelled(clock::sleep(PACE));
            if pause.await.is_none() {
                return Err(Error::Stopped);
            }
        }
        Ok(())
    }

    /// Whether there is anybody who could hold an old certificate.
    pub(super) fn runs(&self, consumer: Consumer) -> Result<bool, Error> {
        let Some(component) = component(consumer) else {
            return Ok(consumer != Consumer::Kubelet || self.kubelet_runs);
        };
        let running = self.pods.running(component);
        let running = running.map_err(|source| Error::Move { consumer, source })?;
        Ok(running || (self.kubelet_runs && self.pods.has_manifest(component)))
    }

    pub(super) async fn down(&self) -> Result<BTreeSet<Consumer>, Error> {
        let mut down = BTreeSet::new();
        for consumer in here(self.machine, &self.pods) {
            let Some(component) = component(consumer) else {
                continue;
            };
            let answers = match component.listener() {
                Some(_) => self.pods.active(component).await,
                None => self
                    .pods
                    .running(component)
                    .map_err(|source| Error::Move { consumer, source })?,
            };
            if !answers && self.runs(consumer)? {
                down.insert(consumer);
            }
        }
        Ok(down)
    }

    /// Nothing more is restarted while the API server of this node is not well.
    async fn gate(&self) -> Result<(), Error> {
        if !self.runs(Consumer::KubeApiserver)? {
            return Ok(());
        }
        self.ready(self.patience.answer).await
    }

    async fn ready(&self, limit: Duration) -> Result<(), Error> {
        let deadline = clock::monotonic() + limit;
        loop {
            // Another client each time: the credentials have just changed.
            let reason = match fencing::client(self.machine).await {
                Err(reason) => reason,
                Ok(client) => {
                    let request = cluster::request(Method::GET, "/readyz", "text/plain", None);
                    match cluster::call(&client, request).await {
                        Ok(_) => return Ok(()),
                        Err(error) => chain(&error),
                    }
                }
            };
            if clock::monotonic() >= deadline {
                return Err(Error::NotReady { reason });
            }
            clock::sleep(PACE).await;
        }
    }

    async fn kubelet_answers(&self) -> bool {
        let connection = tokio::time::timeout(Duration::from_secs(1), TcpStream::connect(self.kubelet_health));
        matches!(connection.await, Ok(Ok(_)))
    }
}
