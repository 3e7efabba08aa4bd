//! The end of the process: the first signal asks for it, and a second one, or too long a wait, forces it.

use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::host::clock;

/// How supervised work ended.
#[derive(Debug)]
pub enum Ended<T> {
    /// By itself, before or after a signal.
    Finished(T),
    /// By a second signal, in the middle of whatever it did.
    Aborted,
    /// By the drain limit, in the middle of whatever it did.
    Overdue,
}

/// Signals that end the process. From its creation on they no longer do so by themselves.
#[derive(Debug)]
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// Takes over SIGTERM and SIGINT.
    ///
    /// # Errors
    /// When the system does not let us.
    pub fn take_over() -> std::io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    /// Waits for the next one; its name.
    pub async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }

    /// Runs `work` to its end. The first signal cancels `stop`, the root of every token of the process; from then on the
    /// work has `drain` to end. Work that is not finished is dropped, and the caller ends the process.
    pub async fn supervise<T>(
        mut self,
        work: impl Future<Output = T>,
        stop: &CancellationToken,
        drain: Duration,
    ) -> Ended<T> {
        tokio::pin!(work);
        tokio::select! {
            result = &mut work => return Ended::Finished(result),
            name = self.next() => {
                tracing::info!("{name}: stopping within {} s; a second signal stops at once", drain.as_secs());
            }
        }
        stop.cancel();
        tokio::select! {
            result = &mut work => Ended::Finished(result),
            name = self.next() => {
                tracing::error!("{name} again: stopped at once");
                Ended::Aborted
            }
            () = clock::sleep(drain) => {
                tracing::error!("not stopped within {} s: stopped at once", drain.as_secs());
                Ended::Overdue
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // One test: signals are of the whole process.
    #[tokio::test]
    async fn one_signal_drains_and_a_second_aborts() {
        let raise = || rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::INT).unwrap();

        let stop = CancellationToken::new();
        let work = async {
            raise();
            stop.cancelled().await;
            "drained"
        };
        let ended = Signals::take_over()
            .unwrap()
            .supervise(work, &stop, Duration::from_secs(20))
            .await;
        assert!(matches!(ended, Ended::Finished("drained")), "{ended:?}");

        let stop = CancellationToken::new();
        let work = async {
            raise();
            stop.cancelled().await;
            raise();
            std::future::pending::<()>().await;
        };
        let ended = Signals::take_over()
            .unwrap()
            .supervise(work, &stop, Duration::from_secs(20))
            .await;
        assert!(matches!(ended, Ended::Aborted), "{ended:?}");

        let stop = CancellationToken::new();
        let work = async {
            raise();
            std::future::pending::<()>().await;
        };
        let ended = Signals::take_over()
            .unwrap()
            .supervise(work, &stop, Duration::from_millis(20))
            .await;
        assert!(matches!(ended, Ended::Overdue), "{ended:?}");
    }
}
