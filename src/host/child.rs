//! Child processes: started with an argument vector (never a shell), in a process group of their own, and gone when we
//! are gone, however we end.
//!
//! The kernel's parent-death signal does the last part. A program cannot be made to ask for it, so our own executable is
//! started in its place (`stratum child-of PID -- PROGRAM ARGS...`, [`become_child_of`]), asks, and turns into the
//! program. The signal fires when the *thread* that started the child ends, so one thread that never ends starts all.
#![expect(clippy::disallowed_methods, reason = "this leaf file owns the start of processes")]

use std::ffi::{OsStr, OsString};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child as Process, Command, Stdio};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions};
use tokio::sync::{oneshot, watch};

mod exit;
mod log;
#[cfg(test)]
mod tests;

pub use exit::{Exit, Finished};
pub use log::{log_lines, log_tail};

/// The hidden subcommand of our executable that [`become_child_of`] serves.
pub const SUBCOMMAND: &str = "child-of";

/// A child that could not be started, watched or ended.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The program is not there, not executable, or the system has no room for it.
    #[error("cannot start {}", program.display())]
    Start {
        /// The program.
        program: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The file for its output cannot be opened.
    #[error("cannot open the log file {}", path.display())]
    Log {
        /// The log file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The thread that starts or watches children is gone; only a panic in it does that.
    #[error("the thread that looks after {} has ended", program.display())]
    Unattended {
        /// The program.
        program: PathBuf,
    },
}

/// Where a child's standard output and standard error go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Both are appended to this file (made with mode 0600).
    Log(PathBuf),
    /// To our own.
    Inherit,
    /// Nowhere.
    Discard,
}

/// What to start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// The executable, by path; `PATH` is searched only for a bare name.
    pub path: PathBuf,
    /// Its arguments, without the program's own name.
    pub arguments: Vec<OsString>,
    /// Variables added to our own environment.
    pub environment: Vec<(OsString, OsString)>,
    /// Its working directory; ours by default.
    pub folder: Option<PathBuf>,
    /// Our own executable, which makes the child die with us. Without it a child outlives our sudden death.
    pub trampoline: Option<PathBuf>,
}

impl Program {
    /// A program without arguments.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            arguments: Vec::new(),
            environment: Vec::new(),
            folder: None,
            trampoline: None,
        }
    }

    /// Appends arguments.
    #[must_use]
    pub fn arguments<A: Into<OsString>>(mut self, arguments: impl IntoIterator<Item = A>) -> Self {
        self.arguments.extend(arguments.into_iter().map(Into::into));
        self
    }

    /// Adds a variable to the environment.
    #[must_use]
    pub fn variable(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.environment.push((name.into(), value.into()));
        self
    }

    /// Sets the working directory.
    #[must_use]
    pub fn folder(mut self, folder: impl Into<PathBuf>) -> Self {
        self.folder = Some(folder.into());
        self
    }

    /// Makes the child die with this process; `executable` is a `stratum` binary.
    #[must_use]
    pub fn dies_with_us(mut self, executable: impl Into<PathBuf>) -> Self {
        self.trampoline = Some(executable.into());
        self
    }

    /// Starts it and returns at once.
    ///
    /// # Errors
    /// Names the program or the log file. With a trampoline, a program that cannot be executed is seen as an exit with
    /// status 127 and a line in its output.
    pub fn start(&self, output: &Output) -> Result<Child, Error> {
        let mut command = self.command();
        match output {
            Output::Log(path) => {
                let log = open_log(path)?;
                let second = log.try_clone().map_err(|source| Error::Log {
                    path: path.clone(),
                    source,
                })?;
                command.stdout(log).stderr(second);
            }
            Output::Inherit => {}
            Output::Discard => {
                command.stdout(Stdio::null()).stderr(Stdio::null());
            }
        }
        let process = self.spawn(command.stdin(Stdio::null()))?;
        self.watch(process)
    }

    /// Runs it to its end, feeding it `input`, and collects what it prints. The child is killed when the future is
    /// dropped, so a timeout around it holds.
    ///
    /// # Errors
    /// Names the program. An exit status other than 0 is no error here.
    pub async fn run(&self, input: Vec<u8>) -> Result<Finished, Error> {
        let mut command = self.command();
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut process = self.spawn(&mut command)?;
        if let Some(mut pipe) = process.stdin.take() {
            // A child that does not read its input to the end closes the pipe; its exit status tells the story.
            thread::spawn(move || pipe.write_all(&input));
        }
        let stdout = collect(process.stdout.take());
        let stderr = collect(process.stderr.take());
        let mut child = self.watch(process)?;
        let exit = child.wait().await?;
        let unattended = |_| Error::Unattended {
            program: self.path.clone(),
        };
        Ok(Finished {
            exit,
            stdout: stdout.await.map_err(unattended)?,
            stderr: stderr.await.map_err(unattended)?,
        })
    }

    fn command(&self) -> Command {
        let mut command = match &self.trampoline {
            Some(executable) => {
                let mut command = Command::new(executable);
                command
                    .arg(SUBCOMMAND)
                    .arg(std::process::id().to_string())
                    .arg("--")
                    .arg(&self.path);
                command
            }
            None => Command::new(&self.path),
        };
        command
            .args(&self.arguments)
            .envs(self.environment.iter().cloned())
            .process_group(0);
        if let Some(folder) = &self.folder {
            command.current_dir(folder);
        }
        command
    }

    fn spawn(&self, command: &mut Command) -> Result<Process, Error> {
        let command = std::mem::replace(command, Command::new(&self.path));
        let (answer, answered) = mpsc::channel();
        let unattended = || Error::Unattended {
            program: self.path.clone(),
        };
        starter().send((command, answer)).map_err(|_| unattended())?;
        let started = answered.recv().map_err(|_| unattended())?;
        started.map_err(|source| Error::Start {
            program: self.path.clone(),
            source,
        })
    }

    /// A thread of its own waits for each child: it outlives any async runtime, of which a test process has many.
    fn watch(&self, process: Process) -> Result<Child, Error> {
        let id = process.id();
        let alive = Arc::new(Mutex::new(true));
        let (exited, exit) = watch::channel(None);
        let shared = Arc::clone(&alive);
        let watcher = thread::Builder::new().name(format!("child-{id}"));
        watcher
            .spawn(move || {
                let _ = exited.send(Some(attend(process, &shared)));
            })
            .map_err(|source| Error::Start {
                program: self.path.clone(),
                source,
            })?;
        Ok(Child {
            program: self.path.clone(),
            id,
            alive,
            exit,
        })
    }
}

/// A child that was started. Dropping it kills the child and what it started in its process group.
#[derive(Debug)]
pub struct Child {
    program: PathBuf,
    id: u32,
    /// Held while a signal is sent and while the child is reaped: a reaped id may already be somebody else's.
    alive: Arc<Mutex<bool>>,
    exit: watch::Receiver<Option<Exit>>,
}

impl Child {
    /// Its process id, which is also its process group's.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.id
    }

    /// How it ended, if it has.
    #[must_use]
    pub fn exit(&self) -> Option<Exit> {
        *self.exit.borrow()
    }

    /// Waits for its end. May be called again, and dropped half-way.
    ///
    /// # Errors
    /// Only if the watching thread died.
    pub async fn wait(&mut self) -> Result<Exit, Error> {
        let unattended = || Error::Unattended {
            program: self.program.clone(),
        };
        let seen = self.exit.wait_for(Option::is_some).await.map_err(|_| unattended())?;
        seen.ok_or_else(unattended)
    }

    /// Asks it to end (SIGTERM to its group), and kills it when it has not within `limit`.
    ///
    /// # Errors
    /// As [`Child::wait`].
    pub async fn terminate(&mut self, limit: Duration) -> Result<Exit, Error> {
        self.signal(Signal::TERM);
        if let Ok(exit) = tokio::time::timeout(limit, self.wait()).await {
            return exit;
        }
        tracing::warn!(program = %self.program.display(), pid = self.id, ?limit, "did not end when asked: killing it");
        self.signal(Signal::KILL);
        self.wait().await
    }

    fn signal(&self, signal: Signal) {
        signal_group(self.id, signal, &self.alive);
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
    }
}

/// Turns this process into `program`, which the kernel kills when process `parent` ends. Returns only the reason why not.
#[must_use]
pub fn become_child_of(parent: u32, program: &OsStr, arguments: &[OsString]) -> io::Error {
    if let Err(errno) = rustix::process::set_parent_process_death_signal(Some(Signal::KILL)) {
        return errno.into();
    }
    // Asked for too late if the parent had gone before: we belong to somebody else by then.
    let actual = rustix::process::getppid().map_or(0, |pid| pid.as_raw_nonzero().get().unsigned_abs());
    if actual != parent {
        return io::Error::other(format!("process {parent} has ended already"));
    }
    become_program(program, arguments)
}

/// Turns this process into `program`. Returns only the reason why not.
#[must_use]
pub fn become_program(program: &OsStr, arguments: &[OsString]) -> io::Error {
    Command::new(program).args(arguments).exec()
}

type Order = (Command, mpsc::Sender<io::Result<Process>>);

/// The thread that starts every child and never ends.
fn starter() -> mpsc::Sender<Order> {
    static STARTER: OnceLock<mpsc::Sender<Order>> = OnceLock::new();
    let sender = STARTER.get_or_init(|| {
        let (orders, incoming) = mpsc::channel::<Order>();
        thread::spawn(move || {
            for (mut command, answer) in incoming {
                // Nobody to hear the answer: the process is dropped with it, and ends with us at the latest.
                let _ = answer.send(command.spawn());
            }
        });
        orders
    });
    sender.clone()
}

/// Waits for the end, kills what is left of the group while the dead leader still holds its id, and reaps it.
fn attend(mut process: Process, alive: &Mutex<bool>) -> Exit {
    let id = process.id();
    if let Some(pid) = pid(id) {
        let leave_unreaped = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        while let Err(rustix::io::Errno::INTR) = rustix::process::waitid(WaitId::Pid(pid), leave_unreaped) {}
    }
    signal_group(id, Signal::KILL, alive);
    let mut alive = alive.lock().unwrap_or_else(PoisonError::into_inner);
    *alive = false;
    // Fails only when somebody else reaped our child, and then nobody knows how it ended.
    process.wait().map_or(Exit::Signal(0), Exit::from)
}

fn signal_group(id: u32, signal: Signal, alive: &Mutex<bool>) {
    let alive = alive.lock().unwrap_or_else(PoisonError::into_inner);
    if let (true, Some(pid)) = (*alive, pid(id)) {
        // It may have ended by itself a moment ago, which is what was wanted.
        let _ = rustix::process::kill_process_group(pid, signal);
    }
}

fn pid(id: u32) -> Option<Pid> {
    i32::try_from(id).ok().and_then(Pid::from_raw)
}

fn open_log(path: &Path) -> Result<File, Error> {
    let opened = OpenOptions::new().create(true).append(true).mode(0o600).open(path);
    opened.map_err(|source| Error::Log {
        path: path.to_owned(),
        source,
    })
}

fn collect(pipe: Option<impl Read + Send + 'static>) -> oneshot::Receiver<Vec<u8>> {
    let (done, collected) = oneshot::channel();
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut pipe) = pipe {
            // What came before a read error is still worth showing.
            let _ = pipe.read_to_end(&mut bytes);
        }
        let _ = done.send(bytes);
    });
    collected
}
