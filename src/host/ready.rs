//! Whether an API server is ready, asked of that very server: one HTTPS request for `/readyz`. This layer knows no more of
//! the Kubernetes API than that path.

use std::net::SocketAddr;
use std::time::Duration;

use http::Method;

use super::https::{self, Client};

/// Why the API server is not known to be ready.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No answer.
    #[error("the API server does not answer")]
    Ask(#[source] https::Error),
    /// An answer, but another one than 200.
    #[error("/readyz answered {status}: {body}")]
    Answer {
        /// The status.
        status: u16,
        /// The checks that failed.
        body: String,
    },
}

/// No single question may take longer: a server that accepts and says nothing must be asked again.
const PATIENCE: Duration = Duration::from_secs(5);

/// Succeeds when `/readyz` answers 200, within `limit`.
///
/// # Errors
/// Says which checks failed.
pub async fn readyz(client: &Client, server: SocketAddr, limit: Duration) -> Result<(), Error> {
    let answer = client
        .ask(server, Method::GET, "/readyz?verbose", "", limit.min(PATIENCE))
        .await;
    let answer = answer.map_err(Error::Ask)?;
    if answer.status == 200 {
        return Ok(());
    }
    let body = String::from_utf8_lossy(&answer.body);
    let unready: Vec<&str> = body.lines().filter(|line| !line.starts_with("[+]")).collect();
    Err(Error::Answer {
        status: answer.status,
        body: unready.join("; "),
    })
}
