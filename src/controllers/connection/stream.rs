//! The byte stream under every connection: TCP that fails once it may no longer be used.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use hyper::rt::ReadBufCursor;
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use super::fence::Fence;

/// A stream that fails once its fence has ended or its credentials were replaced.
///
/// Stands below TLS, so that not even an already encrypted record leaves after the end.
pub(super) struct Guarded<S> {
    inner: S,
    fence: Option<Fence>,
    closed: Pin<Box<WaitForCancellationFutureOwned>>,
    ended: Option<Pin<Box<WaitForCancellationFutureOwned>>>,
}

impl<S> Guarded<S> {
    /// Guards `inner` by `fence`, if there is one, and by `closed`, which is cancelled some time after the credentials
    /// the connection was made with were replaced.
    pub(super) fn new(inner: S, fence: Option<Fence>, closed: CancellationToken) -> Self {
        Self {
            inner,
            ended: fence.as_ref().map(|fence| Box::pin(fence.ended().cancelled_owned())),
            fence,
            closed: Box::pin(closed.cancelled_owned()),
        }
    }

    /// Whether the stream may be used; registers the task to be woken when that ends.
    fn check(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        if let Some(ended) = &mut self.ended
            && ended.as_mut().poll(context).is_ready()
        {
            return Err(fenced());
        }
        if self.closed.as_mut().poll(context).is_ready() {
            return Err(io::Error::new(
                io::ErrorKind::ConnectionAborted,
                "the credentials of this connection were replaced",
            ));
        }
        Ok(())
    }

    /// [`Guarded::check`], and the clock: a task woken by its deadline may run long after it.
    fn check_write(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        match &self.fence {
            Some(fence) if fence.has_ended() => Err(fenced()),
            Some(_) | None => self.check(context),
        }
    }
}

fn fenced() -> io::Error {
    io::Error::new(
        io::ErrorKind::PermissionDenied,
        "the leader term of this connection has ended",
    )
}

impl<S: AsyncRead + Unpin> AsyncRead for Guarded<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.check(context)?;
        Pin::new(&mut self.inner).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Guarded<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.check_write(context)?;
        Pin::new(&mut self.inner).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.check_write(context)?;
        Pin::new(&mut self.inner).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.check_write(context)?;
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Sends no data of ours, and is the polite end: allowed at any time.
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}

/// What a connection reads from and writes to, with or without TLS.
pub(super) trait Bytes: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Bytes for S {}

/// A finished connection, as the HTTP client wants it.
pub(super) struct Link {
    io: TokioIo<Box<dyn Bytes>>,
    http2: bool,
}

impl Link {
    /// A connection over `stream` that speaks HTTP/2 when `http2` was negotiated.
    pub(super) fn new(stream: Box<dyn Bytes>, http2: bool) -> Self {
        Self {
            io: TokioIo::new(stream),
            http2,
        }
    }
}

impl Connection for Link {
    fn connected(&self) -> Connected {
        let connected = Connected::new();
        if self.http2 {
            connected.negotiated_h2()
        } else {
            connected
        }
    }
}

impl hyper::rt::Read for Link {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(context, buffer)
    }
}

impl hyper::rt::Write for Link {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(context)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(context, slices)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;
    use crate::host::clock;

    #[tokio::test]
    async fn a_process_that_was_stopped_past_its_deadline_writes_nothing() {
        let (near, mut far) = tokio::io::duplex(64);
        let fence = Fence::until(clock::since_boot() + Duration::from_millis(30));
        let mut guarded = Guarded::new(near, Some(fence), CancellationToken::new());
        guarded.write_all(b"in time").await.unwrap();
        // Blocks the whole runtime, as a stopped process: nothing can learn of the deadline before the write below.
        std::thread::sleep(Duration::from_millis(60));
        assert!(guarded.write_all(b"too late").await.is_err());
        drop(guarded);
        let mut received = String::new();
        far.read_to_string(&mut received).await.unwrap();
        assert_eq!(received, "in time");
    }
}
