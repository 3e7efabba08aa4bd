//! Stops `stratum up` and what it looks after, and sees to it that it stays stopped.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::super::atomic_file::{self, Access};
use super::super::clock;
use super::super::control_socket::{self, Answer, Question};
use super::super::layout::Layout;
use super::super::lock::{Attempt, Lock};
use super::places;
use super::processes::{self, Kind};
use super::report::{Error, Report};
use super::tools::{self, Tools};

/// How long `stratum up` may take to end its services.
const PATIENCE: Duration = Duration::from_secs(100);
const PACE: Duration = Duration::from_millis(200);
/// How long a service may take that has lost its supervisor.
const GRACE: Duration = Duration::from_secs(20);

/// The services are stopped, and no `stratum up` can start while this is there.
#[derive(Debug)]
pub struct Stopped {
    _lock: Lock,
}

/// Our unit, on a machine that systemd runs.
pub(super) fn unit(layout: &Layout) -> Option<PathBuf> {
    let init = std::fs::read_to_string(layout.root().join("proc/1/comm")).unwrap_or_default();
    let places = [
        places::unit(layout),
        layout.root().join("usr/lib/systemd/system").join(places::UNIT),
    ];
    (init.trim_end() == "systemd")
        .then(|| places.into_iter().find(|place| is_ours(place)))
        .flatten()
}

/// Whether a file is a unit that runs `stratum up`.
pub(super) fn is_ours(unit: &Path) -> bool {
    let text = std::fs::read_to_string(unit).unwrap_or_default();
    let mut starts = text.lines().filter_map(|line| line.trim().strip_prefix("ExecStart="));
    starts.any(|command| command.contains("stratum up"))
}

/// Who runs the node now, in words.
pub(super) fn running(layout: &Layout) -> Result<Option<String>, Error> {
    if !layout.up_lock().exists() {
        return Ok(None);
    }
    match Lock::attempt(&layout.up_lock(), "stratum uninstall, looking").map_err(Error::Lock)? {
        Attempt::Taken(_) => Ok(None),
        Attempt::Held(holder) => Ok(Some(holder.to_string())),
    }
}

/// Stops the services, by their unit where there is one.
pub(super) async fn stop(layout: &Layout, tools: &Tools, report: &mut Report) -> Result<Stopped, Error> {
    if let (Some(_), Some(systemctl)) = (unit(layout), &tools.systemctl) {
        tools::run("systemctl", systemctl, &["disable", "--now", places::UNIT]).await?;
        report.removed(format!("unit {}, stopped and disabled", places::UNIT));
    }
    // Best effort: without the folder the lock says so.
    let _ = atomic_file::create_folder(&layout.run(), Access::Secret);
    let began = clock::monotonic();
    let mut asked = false;
    let lock = loop {
        let holder = match Lock::attempt(&layout.up_lock(), "stratum uninstall").map_err(Error::Lock)? {
            Attempt::Taken(lock) => break lock,
            Attempt::Held(holder) => holder,
        };
        if !asked {
            asked = ask(layout).await?;
        }
        if began.elapsed() > PATIENCE {
            return Err(Error::StillRuns {
                holder: holder.to_string(),
                seconds: PATIENCE.as_secs(),
            });
        }
        clock::sleep(PACE).await;
    };
    if asked {
        report.removed("services of stratum up, stopped");
    }
    // They end with their supervisor, which may have been killed a moment ago.
    processes::end("services", GRACE, || processes::find(layout, Kind::Service), report).await?;
    Ok(Stopped { _lock: lock })
}

/// Whether it was asked; one that starts or ends does not listen.
async fn ask(layout: &Layout) -> Result<bool, Error> {
    match control_socket::ask(&layout.control_socket(), &Question::Stop).await {
        Ok(Answer::Refused(reason)) => Err(Error::Refused { reason }),
        Ok(Answer::Status(_) | Answer::Restarted(_) | Answer::Stopping) => Ok(true),
        Err(control_socket::Error::NotRunning { .. }) => Ok(false),
        Err(error) => Err(Error::Ask(error)),
    }
}

/// Starts the services again after [`stop`], where a unit does it; whether it does. The locks have to be free.
pub(super) async fn start(layout: &Layout, tools: &Tools) -> Result<bool, Error> {
    let (Some(_), Some(systemctl)) = (unit(layout), &tools.systemctl) else {
        return Ok(false);
    };
    tools::run("systemctl", systemctl, &["enable", places::UNIT]).await?;
    tools::run("systemctl", systemctl, &["--no-block", "start", places::UNIT]).await?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::super::super::control_socket::ControlSocket;
    use super::super::tests::{put, tool};
    use super::*;

    const OURS: &str = "[Service]\nExecStart=/usr/local/bin/stratum up\nKillMode=process\n";

    #[test]
    fn only_our_unit_under_systemd() {
        for (init, place, text, expected) in [
            ("systemd\n", "etc/systemd/system", OURS, true),
            ("systemd\n", "usr/lib/systemd/system", OURS, true),
            ("bash\n", "etc/systemd/system", OURS, false),
            (
                "systemd\n",
                "etc/systemd/system",
                "[Service]\nExecStart=/usr/bin/other\n# stratum up\n",
                false,
            ),
        ] {
            let folder = tempfile::tempdir().unwrap();
            put(&folder.path().join("proc/1/comm"), init.as_bytes());
            let place = folder.path().join(place).join("stratum.service");
            put(&place, text.as_bytes());
            assert_eq!(
                unit(&Layout::under(folder.path())),
                expected.then_some(place),
                "{init} {text}"
            );
        }
    }

    #[tokio::test]
    async fn the_unit_is_disabled_and_enabled_again() {
        let folder = tempfile::tempdir().unwrap();
        let layout = Layout::under(folder.path());
        put(&folder.path().join("proc/1/comm"), b"systemd\n");
        put(&places::unit(&layout), OURS.as_bytes());
        let log = folder.path().join("log");
        let tools = Tools {
            systemctl: Some(tool(
                folder.path(),
                "systemctl",
                &format!("echo $@ >> {}", log.display()),
            )),
            ..Tools::default()
        };
        let mut report = Report::default();
        let stopped = stop(&layout, &tools, &mut report).await.unwrap();
        assert!(running(&layout).unwrap().is_some(), "nobody else can start it now");
        drop(stopped);
        assert!(start(&layout, &tools).await.unwrap());
        let log = std::fs::read_to_string(log).unwrap();
        assert_eq!(
            log,
            "disable --now stratum.service\nenable stratum.service\n--no-block start stratum.service\n"
        );
    }

    #[tokio::test]
    async fn what_runs_is_asked_to_stop_and_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let layout = Layout::under(folder.path());
        atomic_file::create_folder(&layout.run(), Access::Secret).unwrap();
        let Attempt::Taken(up) = Lock::attempt(&layout.up_lock(), "stratum up").unwrap() else {
            panic!("nobody else has it");
        };
        let up = Arc::new(Mutex::new(Some(up)));
        let socket = ControlSocket::listen(&layout.control_socket()).unwrap();
        let ends = Arc::clone(&up);
        let serving = tokio::spawn(async move {
            socket
                .serve(move |question| {
                    assert_eq!(question, Question::Stop);
                    let ends = Arc::clone(&ends);
                    tokio::spawn(async move {
                        clock::sleep(Duration::from_millis(300)).await;
                        ends.lock().unwrap().take();
                    });
                    async { Answer::Stopping }
                })
                .await;
        });
        let who = running(&layout).unwrap().unwrap();
        assert!(who.contains("stratum up"), "{who}");
        let mut report = Report::default();
        let stopped = stop(&layout, &Tools::default(), &mut report).await.unwrap();
        assert!(up.lock().unwrap().is_none(), "it was waited for");
        assert_eq!(report.removed, ["services of stratum up, stopped"]);
        assert!(!start(&layout, &Tools::default()).await.unwrap());
        drop(stopped);
        serving.abort();
        assert_eq!(running(&layout).unwrap(), None);
    }

    #[tokio::test]
    async fn one_that_refuses_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let layout = Layout::under(folder.path());
        atomic_file::create_folder(&layout.run(), Access::Secret).unwrap();
        let _up = Lock::attempt(&layout.up_lock(), "stratum up").unwrap();
        let socket = ControlSocket::listen(&layout.control_socket()).unwrap();
        let serving = tokio::spawn(async move { socket.serve(|_| async { Answer::Refused("not now".into()) }).await });
        let stopped = stop(&layout, &Tools::default(), &mut Report::default()).await;
        assert!(matches!(stopped, Err(Error::Refused { .. })), "{stopped:?}");
        serving.abort();
    }
}
