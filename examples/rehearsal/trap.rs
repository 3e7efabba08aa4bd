//! A trap in the API server's own path: an admission webhook that sees every write of an operator before it is stored, and
//! kills the operator at the one it waits for. Nothing else hits the gap between two writes.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result};
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rustix::process::{Pid, Signal};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use crate::harness::api::{APPLY, Call};
use crate::harness::control_plane::ControlPlane;
use crate::rehearsal::NAMESPACE;

/// Writes of one pass so far; the one that is asked about is counted already.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) applies: usize,
    pub(crate) deletes: usize,
    /// Writes of the inventory before the first delete, and after it.
    pub(crate) inventory_before: usize,
    pub(crate) inventory_after: usize,
}

/// The moment to strike, told from the writes so far.
type Moment = Box<dyn Fn(Seen) -> bool + Send>;

#[derive(Default)]
struct State {
    seen: Seen,
    armed: Option<(Pid, Moment)>,
    struck: bool,
}

/// The trap. Set for good; armed for one process at a time.
#[derive(Clone, Default)]
pub(crate) struct Trap(Arc<Mutex<State>>);

impl Trap {
    /// Registers it with the API server.
    pub(crate) async fn set(plane: &ControlPlane) -> Result<Self> {
        let trap = Self::default();
        let pair = plane.server_pair("trap")?;
        let mut tls =
            rustls::ServerConfig::builder_with_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()))
                .with_safe_default_protocol_versions()?
                .with_no_client_auth()
                .with_single_cert(
                    vec![CertificateDer::from_pem_slice(pair.certificate.as_bytes())?],
                    PrivateKeyDer::from_pem_slice(pair.key.as_bytes())?,
                )?;
        tls.alpn_protocols = vec![b"http/1.1".to_vec()];
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        tokio::spawn(trap.clone().serve(listener, TlsAcceptor::from(Arc::new(tls))));
        register(plane, address).await?;
        Ok(trap)
    }

    /// Counts from nothing, and kills `pid` at the first write of which `moment` is true.
    pub(crate) fn arm(&self, pid: Pid, moment: impl Fn(Seen) -> bool + Send + 'static) {
        *self.state() = State {
            armed: Some((pid, Box::new(moment))),
            ..State::default()
        };
    }

    /// Whether it struck, and what it had seen.
    pub(crate) fn seen(&self) -> (bool, Seen) {
        let state = self.state();
        (state.struck, state.seen)
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn serve(self, listener: TcpListener, tls: TlsAcceptor) {
        while let Ok((tcp, _)) = listener.accept().await {
            let (trap, tls) = (self.clone(), tls.clone());
            tokio::spawn(async move {
                let Ok(stream) = tls.accept(tcp).await else { return };
                let service = service_fn(move |request| {
                    let trap = trap.clone();
                    async move { Ok::<_, Infallible>(trap.answer(request).await) }
                });
                // A connection that breaks is the API server's to make again.
                let _ = http1::Builder::new()
                    .serve_connection(TokioIo::new(stream), service)
                    .await;
            });
        }
    }

    async fn answer(&self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        let review = match request.into_body().collect().await {
            Ok(body) => serde_json::from_slice(&body.to_bytes()).unwrap_or(Value::Null),
            Err(_) => Value::Null,
        };
        self.note(&review);
        let answer = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
            "response": {"uid": review.pointer("/request/uid"), "allowed": true}});
        Response::new(Full::new(answer.to_string().into()))
    }

    fn note(&self, review: &Value) {
        let text = |pointer: &str| review.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let mut state = self.state();
        let seen = &mut state.seen;
        match (
            text("/request/namespace"),
            text("/request/operation"),
            text("/request/name"),
        ) {
            (NAMESPACE, "DELETE", _) => seen.deletes += 1,
            (NAMESPACE, _, _) => seen.applies += 1,
            (_, _, "stratum-addon-inventory") if seen.deletes == 0 => seen.inventory_before += 1,
            (_, _, "stratum-addon-inventory") => seen.inventory_after += 1,
            (_, _, _) => return,
        }
        let seen = *seen;
        if let Some((pid, moment)) = &state.armed
            && moment(seen)
        {
            let _ = rustix::process::kill_process(*pid, Signal::KILL);
            state.struck = true;
            state.armed = None;
        }
    }
}

async fn register(plane: &ControlPlane, address: SocketAddr) -> Result<()> {
    let authority = std::fs::read(plane.authority()).context("the authority's certificate")?;
    let body = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
    "metadata": {"name": "trap"},
    "webhooks": [{
        "name": "trap.stratum.ciq.com",
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "failurePolicy": "Fail",
        "timeoutSeconds": 10,
        "clientConfig": {"url": format!("https://{address}/"), "caBundle": k8s_openapi::ByteString(authority)},
        "rules": [{"apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"], "scope": "Namespaced",
            "operations": ["CREATE", "UPDATE", "DELETE"]}],
        "matchConditions": [{"name": "operators",
            "expression": "request.userInfo.username.matches('^(deployer|operator)-')"}],
    }]});
    let path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/trap?fieldManager=bench";
    plane
        .api
        .call(Call::new(Method::PATCH, path).body(APPLY, body.to_string()))
        .await?;
    Ok(())
}
