//! `/run/stratum/up.sock`: how commands ask the running `stratum up`. One JSON line in, one JSON line out.
//!
//! Only the user `stratum up` runs as is answered: the socket has mode 0600, and the kernel is asked who calls, so that the
//! moment between making the socket and narrowing its mode is no hole.

use std::collections::BTreeMap;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};

use super::supervisor::{ServiceName, Status};

/// The longest line either side takes.
const LONGEST: u64 = 64 * 1024;
/// How long a caller may take to say what it wants.
const PATIENCE: Duration = Duration::from_secs(10);

/// What can be asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Question {
    /// How everything is.
    Status,
    /// End a service and start it again.
    Restart(ServiceName),
    /// End all services, and `stratum up` itself.
    Stop,
}

/// What is answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    /// How each service is.
    Status(BTreeMap<ServiceName, Status>),
    /// The service's new process.
    Restarted(u32),
    /// It is ending.
    Stopping,
    /// Why not.
    Refused(String),
}

/// What went wrong on the way.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Nobody listens.
    #[error("`stratum up` does not run on this machine: {} is not answered", path.display())]
    NotRunning {
        /// The socket.
        path: PathBuf,
    },
    /// The socket cannot be used.
    #[error("cannot use the socket {}", path.display())]
    Socket {
        /// The socket.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// What came back is no answer.
    #[error("the answer on {} is not understood: is the running `stratum up` of another version?", path.display())]
    Answer {
        /// The socket.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        source: serde_json::Error,
    },
}

/// The listening side.
#[derive(Debug)]
pub struct ControlSocket {
    listener: UnixListener,
    path: PathBuf,
}

impl ControlSocket {
    /// Listens on `path`, in a folder that exists. What an earlier process has left there is replaced; whether one still
    /// runs is for the caller to know, by its lock.
    ///
    /// # Errors
    /// When the socket cannot be made.
    pub fn listen(path: &Path) -> Result<Self, Error> {
        let unusable = |source| Error::Socket {
            path: path.to_owned(),
            source,
        };
        match std::fs::remove_file(path) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(source) => return Err(unusable(source)),
        }
        let listener = UnixListener::bind(path).map_err(unusable)?;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).map_err(unusable)?;
        Ok(Self {
            listener,
            path: path.to_owned(),
        })
    }

    /// Answers callers, each in a task of its own, until dropped.
    pub async fn serve<F, A>(&self, answer: F)
    where
        F: Fn(Question) -> A + Send + Sync + 'static,
        A: Future<Output = Answer> + Send,
    {
        let answer = Arc::new(answer);
        loop {
            match self.listener.accept().await {
                Ok((stream, _)) => {
                    let answer = Arc::clone(&answer);
                    tokio::spawn(async move {
                        if let Err(error) = one(stream, &*answer).await {
                            tracing::warn!(%error, "a caller of the control socket got no answer");
                        }
                    });
                }
                Err(error) => {
                    // Out of file descriptors, most likely: others will be closed.
                    tracing::error!(%error, "the control socket cannot take a caller");
                    super::clock::sleep(Duration::from_secs(1)).await;
                }
            }
        }
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        // What stays is refused by nobody and replaced by the next.
        let _ = std::fs::remove_file(&self.path);
    }
}

async fn one<F, A>(stream: UnixStream, answer: &F) -> io::Result<()>
where
    F: Fn(Question) -> A,
    A: Future<Output = Answer>,
{
    let caller = stream.peer_cred()?.uid();
    let (reader, mut writer) = stream.into_split();
    let ours = rustix::process::geteuid().as_raw();
    let reply = if caller == ours {
        let mut line = String::new();
        let mut reader = BufReader::new(reader.take(LONGEST));
        match tokio::time::timeout(PATIENCE, reader.read_line(&mut line)).await {
            Ok(read) => read?,
            Err(_) => return Err(io::ErrorKind::TimedOut.into()),
        };
        match serde_json::from_str(&line) {
            Ok(question) => answer(question).await,
            Err(error) => Answer::Refused(format!("the question is not understood: {error}")),
        }
    } else {
        Answer::Refused(format!("user {caller} may not ask; run it as user {ours}"))
    };
    let mut line = serde_json::to_vec(&reply)?;
    line.push(b'\n');
    writer.write_all(&line).await
}

/// Asks the running `stratum up`, and waits for its answer as long as it takes.
///
/// # Errors
/// When nobody listens, or the answer is none.
pub async fn ask(path: &Path, question: &Question) -> Result<Answer, Error> {
    let unusable = |source| Error::Socket {
        path: path.to_owned(),
        source,
    };
    let stream = UnixStream::connect(path).await.map_err(|source| match source.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => Error::NotRunning { path: path.to_owned() },
        _ => unusable(source),
    })?;
    let (reader, mut writer) = stream.into_split();
    let mut line = serde_json::to_vec(question).map_err(|error| unusable(error.into()))?;
    line.push(b'\n');
    writer.write_all(&line).await.map_err(unusable)?;
    let mut reply = String::new();
    let read = BufReader::new(reader.take(LONGEST)).read_line(&mut reply).await;
    if read.map_err(unusable)? == 0 {
        return Err(Error::NotRunning { path: path.to_owned() });
    }
    serde_json::from_str(&reply).map_err(|source| Error::Answer {
        path: path.to_owned(),
        source,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn echo(question: Question) -> Answer {
        match question {
            Question::Status => Answer::Status(BTreeMap::new()),
            Question::Restart(_) => Answer::Restarted(7),
            Question::Stop => Answer::Stopping,
        }
    }

    #[tokio::test]
    async fn questions_are_answered_one_by_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("up.sock");
        assert!(matches!(
            ask(&path, &Question::Status).await,
            Err(Error::NotRunning { .. })
        ));
        // What a killed process leaves behind is no hindrance, and tells nobody that it runs.
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        assert!(matches!(
            ask(&path, &Question::Status).await,
            Err(Error::NotRunning { .. })
        ));
        let socket = ControlSocket::listen(&path).unwrap();
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let serving = tokio::spawn(async move { socket.serve(echo).await });
        assert_eq!(
            ask(&path, &Question::Status).await.unwrap(),
            Answer::Status(BTreeMap::new())
        );
        let restart = Question::Restart(ServiceName::Kubelet);
        let (one, two) = tokio::join!(ask(&path, &restart), ask(&path, &Question::Stop));
        assert_eq!((one.unwrap(), two.unwrap()), (Answer::Restarted(7), Answer::Stopping));

        let mut stranger = UnixStream::connect(&path).await.unwrap();
        stranger.write_all(b"{\"fly\": 1}\n").await.unwrap();
        let mut reply = String::new();
        stranger.read_to_string(&mut reply).await.unwrap();
        assert!(reply.contains("not understood"), "{reply}");
        serving.abort();
        let _ = serving.await;
        assert!(!path.exists());
    }
}
