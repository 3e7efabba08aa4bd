//! A program that is not trusted to end, or to be brief.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::process::Stdio;
use std::thread;
use std::time::Duration;

use tokio::sync::oneshot;

use super::{Error, Exit, Program};

/// How long the pipes of a program that has ended may stay open: what it started and left behind may hold them.
const PIPES: Duration = Duration::from_secs(5);

/// How a program that was run within bounds ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bounded {
    /// How it ended.
    pub exit: Exit,
    /// What is kept of its standard output.
    pub stdout: Kept,
    /// What is kept of its standard error.
    pub stderr: Kept,
    /// Whether it was ended before it did by itself.
    pub was_ended: bool,
}

/// The beginning and the end of an output.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    /// Its bytes; where some are left out, a line says how many.
    pub bytes: Vec<u8>,
    /// Whether some are.
    pub was_cut: bool,
}

impl Kept {
    /// As text.
    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes).into_owned()
    }
}

impl Program {
    /// Runs it to its end, or until `end` resolves: then it is asked to end, and killed `grace` later, with all of its process
    /// group. Of each of its outputs at most `most` bytes are kept, the first and the last; the rest is read all the same, so
    /// that it is never held up. It is killed when the future is dropped.
    ///
    /// # Errors
    /// Names the program. An exit status other than 0 is no error here.
    pub async fn run_until(
        &self,
        input: Vec<u8>,
        most: usize,
        end: impl Future<Output = ()>,
        grace: Duration,
    ) -> Result<Bounded, Error> {
        let mut command = self.command();
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut process = self.spawn(&mut command)?;
        if let Some(mut pipe) = process.stdin.take() {
            thread::spawn(move || pipe.write_all(&input));
        }
        let stdout = keep(process.stdout.take(), most);
        let stderr = keep(process.stderr.take(), most);
        let mut child = self.watch(process)?;
        let ended = tokio::select! {
            biased;
            exit = child.wait() => Some(exit?),
            () = end => None,
        };
        let (exit, was_ended) = match ended {
            Some(exit) => (exit, false),
            None => (child.terminate(grace).await?, true),
        };
        let kept = async |pipe: oneshot::Receiver<Kept>| {
            let kept = tokio::time::timeout(PIPES, pipe).await;
            kept.ok().and_then(Result::ok).unwrap_or_default()
        };
        let (stdout, stderr) = tokio::join!(kept(stdout), kept(stderr));
        Ok(Bounded {
            exit,
            stdout,
            stderr,
            was_ended,
        })
    }
}

/// Reads a pipe to its end, and keeps the beginning and the end of it.
fn keep(pipe: Option<impl Read + Send + 'static>, most: usize) -> oneshot::Receiver<Kept> {
    let (done, kept) = oneshot::channel();
    thread::spawn(move || {
        let half = most / 2;
        let (mut head, mut tail, mut left_out) = (Vec::new(), VecDeque::<u8>::new(), 0_usize);
        let mut buffer = vec![0; 64 * 1024];
        if let Some(mut pipe) = pipe {
            // What came before a read error is still worth showing.
            while let Ok(read @ 1..) = pipe.read(&mut buffer) {
                let bytes = buffer.get(..read).unwrap_or_default();
                let (first, rest) = bytes.split_at(bytes.len().min(half.saturating_sub(head.len())));
                head.extend_from_slice(first);
                tail.extend(rest);
                let over = tail.len().saturating_sub(half);
                tail.drain(..over);
                left_out += over;
            }
        }
        let was_cut = left_out > 0;
        if was_cut {
            head.extend(format!("\n[{left_out} bytes left out]\n").into_bytes());
        }
        head.extend(tail);
        let _ = done.send(Kept { bytes: head, was_cut });
    });
    kept
}
