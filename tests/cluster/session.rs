//! The README's terminal session, run as it stands there: what the page shows is what happened, the folder and the port
//! aside. `STRATUM_UPDATE_README=1 cargo test --test cluster session` writes the page anew.

use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::time::Duration;

use stratum::host::atomic_file::{self, Access};
use stratum::host::child::{Output, Program};

use crate::support::{kubectl, stratum, wait_for};

/// The heading whose console blocks are run.
const HEADING: &str = "## A session\n";
/// The folder in which the page's reader is; the test has one of its own.
const FOLDER: &str = "/tmp";
/// Marks the end of a command's output in that of the shell.
const MARK: char = '\u{1}';
/// The last line `stratum dev` prints before it waits.
const READY: &str = "Ctrl-C ends everything";

#[tokio::test]
async fn the_session_in_the_readme_is_what_happens() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md");
    let page = fs::read_to_string(&path).unwrap();
    let session = session(&page);
    let blocks: Vec<&str> = session.split("```console\n").skip(1).map(block).collect();
    let [once, first, second] = blocks[..] else {
        panic!("the session has three blocks: --once, and two terminals")
    };
    let terminal = Terminal::new().await;
    let mut run = session.replace(once, &terminal.run(once).await);
    let (shown, mut dev) = terminal.start(first).await;
    run = run.replace(first, &shown);
    run = run.replace(second, &terminal.run(second).await);
    let ended = dev.terminate(Duration::from_secs(60)).await.unwrap();
    assert!(ended.is_success(), "stratum dev ended with {ended}");
    if std::env::var_os("STRATUM_UPDATE_README").is_some() {
        atomic_file::write(&path, page.replace(session, &run).as_bytes(), Access::Public).unwrap();
        return;
    }
    assert_eq!(session, run, "the README's session (left) is not what happens (right)");
}

/// The part of the page below the heading.
fn session(page: &str) -> &str {
    let (_, rest) = page.split_once(HEADING).expect("the heading of the session");
    rest.split_once("\n## ").map_or(rest, |(session, _)| session)
}

/// A console block without its fence.
fn block(text: &str) -> &str {
    text.split_once("```").expect("the end of a block").0
}

/// Where the session runs: a folder, and the programs it names.
struct Terminal {
    folder: tempfile::TempDir,
    search: OsString,
}

impl Terminal {
    async fn new() -> Self {
        let programs = [stratum().to_owned(), kubectl().await];
        let system = std::env::var_os("PATH").unwrap_or_default();
        let folders = programs
            .iter()
            .filter_map(|program| program.parent().map(Path::to_owned));
        let search = std::env::join_paths(folders.chain(std::env::split_paths(&system))).unwrap();
        Self {
            folder: tempfile::tempdir().unwrap(),
            search,
        }
    }

    /// A shell, because the page's reader has one.
    fn shell(&self) -> Program {
        Program::new("/bin/sh")
            .folder(self.folder.path())
            .variable("PATH", &self.search)
            .variable("USER", "you")
            .dies_with_us(stratum())
    }

    /// Runs the commands of a block one after the other and shows the block with what they print now.
    async fn run(&self, block: &str) -> String {
        let commands: Vec<&str> = block.lines().filter_map(|line| line.strip_prefix("$ ")).collect();
        let mut script = "exec 2>&1\n".to_owned();
        for command in &commands {
            script.push_str(&format!("{command}\nprintf '{MARK}'\n"));
        }
        let finished = self.shell().run(script.into_bytes()).await.unwrap();
        let output = String::from_utf8(finished.stdout).unwrap();
        let outputs = output.split(MARK);
        let shown = commands
            .iter()
            .zip(outputs)
            .map(|(command, output)| format!("$ {command}\n{output}"));
        self.normal(&shown.collect::<String>())
    }

    /// Starts the one command of a block and shows it with what it says until it waits.
    async fn start(&self, block: &str) -> (String, stratum::host::child::Child) {
        let command = block
            .lines()
            .find_map(|line| line.strip_prefix("$ "))
            .expect("a command");
        let [out, log] = ["out", "log"].map(|name| self.folder.path().join(name));
        let script = format!("exec {command} 2> {}", log.display());
        let dev = self
            .shell()
            .arguments(["-c", &script])
            .start(&Output::Log(out.clone()))
            .unwrap();
        let said = || async {
            assert!(dev.exit().is_none(), "{}", fs::read_to_string(&log).unwrap_or_default());
            let said = fs::read_to_string(&out).unwrap_or_default();
            said.contains(READY).then_some(said)
        };
        let said = wait_for("stratum dev to be ready", Duration::from_secs(60), said).await;
        (self.normal(&format!("$ {command}\n{said}")), dev)
    }

    /// The text as it reads in [`FOLDER`], with the port that differs each time replaced by the operator's own.
    fn normal(&self, text: &str) -> String {
        let folder = self.folder.path().canonicalize().unwrap();
        let text = text.replace(folder.to_str().unwrap(), FOLDER);
        let lines = text.lines().map(|line| match line.split_once("http://127.0.0.1:") {
            Some((before, rest)) => {
                let path = rest.find('/').map_or("", |at| &rest[at..]);
                format!("{before}http://127.0.0.1:9440{path}\n")
            }
            None => format!("{line}\n"),
        });
        lines.collect()
    }
}
