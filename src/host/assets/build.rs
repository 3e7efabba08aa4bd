//! Builds a program into the cache, once, whoever asks first.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::super::atomic_file::{self, Access};
use super::super::child::{self, Finished, Output, Program};
use super::super::clock;
use super::super::lock::Lock;
use super::Error;
use super::module::Module;
use super::progress::Progress;
use super::tool::Tool;

/// How often the progress of a build is looked at.
const TICK: Duration = Duration::from_millis(200);

/// The program's path in the cache at `cache`, built if it is not there.
pub(super) async fn cached(cache: &Path, trampoline: Option<&Path>, tool: Tool) -> Result<PathBuf, Error> {
    let module = tool.recipe().module;
    let folder = cache.join(format!("{}-{}", module.name(), module.digest()));
    let path = folder.join(tool.name());
    if path.is_file() {
        return Ok(path);
    }
    let sources = folder.join("module");
    prepare(&sources, tool).map_err(|source| Error::Cache { tool, source })?;
    let _lock = lock(folder.join("build.lock"), tool).await?;
    if !path.is_file() {
        Build {
            tool,
            module,
            sources: &sources,
            trampoline,
        }
        .run(&path)
        .await?;
    }
    Ok(path)
}

/// The module's files; equal ones are left alone, so a build that is going on is not disturbed.
fn prepare(sources: &Path, tool: Tool) -> Result<(), atomic_file::Error> {
    let module = tool.recipe().module;
    atomic_file::create_folder(sources, Access::Public)?;
    for (name, text) in module.sources() {
        atomic_file::write_if_changed(&sources.join(name), text.as_bytes(), Access::Public)?;
    }
    Ok(())
}

async fn lock(path: PathBuf, tool: Tool) -> Result<Lock, Error> {
    let operation = format!("building {tool}");
    let acquire = move || {
        Lock::acquire(&path, &operation, |holder| {
            Progress::say(&format!("{tool}: waiting for {holder}"))
        })
    };
    let failed = |source| Error::Lock { tool, source };
    match tokio::task::spawn_blocking(acquire).await {
        Ok(lock) => lock.map_err(failed),
        Err(stopped) => {
            let path = PathBuf::from("build.lock");
            Err(failed(super::super::lock::Error::Lock {
                path,
                source: std::io::Error::other(stopped),
            }))
        }
    }
}

struct Build<'a> {
    tool: Tool,
    module: Module,
    sources: &'a Path,
    trampoline: Option<&'a Path>,
}

impl Build<'_> {
    async fn run(&self, path: &Path) -> Result<(), Error> {
        let tool = self.tool;
        self.check_go().await?;
        Progress::say(&format!("{tool} is not in the cache yet: fetching its sources"));
        let progress = Progress::start(tool, self.packages_to_compile().await?);
        let unfinished = path.with_extension("building");
        let log = path.with_extension("log");
        atomic_file::remove(&log).map_err(|source| Error::Cache { tool, source })?;
        let exit = self.compile(&unfinished, &log, &progress).await?;
        if !exit.is_success() {
            let last = child::log_tail(&log, 5).replace('\n', " | ");
            return Err(Error::Build { tool, exit, log, last });
        }
        std::fs::rename(&unfinished, path).map_err(|source| Error::Place {
            tool,
            path: path.to_owned(),
            source,
        })?;
        progress.finish();
        Ok(())
    }

    async fn check_go(&self) -> Result<(), Error> {
        let (tool, needed) = (self.tool, self.module.go_version().to_owned());
        let finished = self.go(&["version"]).run(Vec::new()).await;
        let finished = match finished {
            Ok(finished) => finished,
            Err(source) => return Err(Error::NoGo { tool, needed, source }),
        };
        let found = String::from_utf8_lossy(&[finished.stdout, finished.stderr].concat())
            .trim()
            .to_owned();
        if is_recent_enough(&found, &needed) {
            Ok(())
        } else {
            Err(Error::OldGo { tool, needed, found })
        }
    }

    /// How many packages a build will compile, which `go list` knows from the build cache. Only for the progress bar.
    async fn packages_to_compile(&self) -> Result<u64, Error> {
        let template = "{{if .Stale}}{{.ImportPath}}{{end}}";
        let list = self
            .build_command("list", &["-deps", "-f", template])
            .run(Vec::new())
            .await;
        let Finished { stdout, .. } = list.map_err(|source| Error::Run {
            tool: self.tool,
            source,
        })?;
        let stale = String::from_utf8_lossy(&stdout)
            .lines()
            .filter(|line| !line.is_empty())
            .count();
        Ok(u64::try_from(stale).unwrap_or(u64::MAX))
    }

    /// Runs the build, whose log has a line for each package that it compiles.
    async fn compile(&self, output: &Path, log: &Path, progress: &Progress) -> Result<child::Exit, Error> {
        let run = |source| Error::Run {
            tool: self.tool,
            source,
        };
        let output = output.display().to_string();
        let build = self.build_command("build", &["-v", "-o", &output]);
        let mut child = build.start(&Output::Log(log.to_owned())).map_err(run)?;
        loop {
            tokio::select! {
                exit = child.wait() => return exit.map_err(run),
                () = clock::sleep(TICK) => progress.compiled(child::log_lines(log)),
            }
        }
    }

    /// `go VERB` with the flags that decide what is compiled, then `more` and the package.
    fn build_command(&self, verb: &str, more: &[&str]) -> Program {
        let linker_flags = self.module.linker_flags();
        let mut arguments = vec![
            verb,
            "-mod=readonly",
            "-buildvcs=false",
            "-trimpath",
            "-ldflags",
            &linker_flags,
        ];
        if !self.module.tags().is_empty() {
            arguments.extend(["-tags", self.module.tags()]);
        }
        arguments.extend(more);
        arguments.push(self.tool.recipe().package);
        self.go(&arguments)
    }

    fn go(&self, arguments: &[&str]) -> Program {
        let program = Program::new("go")
            .arguments(arguments.iter().copied())
            .folder(self.sources);
        let c_compiler = if self.module.needs_c() { "1" } else { "0" };
        let program = program.variable("CGO_ENABLED", c_compiler).variable("GOWORK", "off");
        match (self.trampoline, arguments) {
            // `go version` runs bare: a missing `go` has to be told from a failing one.
            (Some(trampoline), [verb, ..]) if *verb != "version" => program.dies_with_us(trampoline),
            (Some(_) | None, _) => program,
        }
    }
}

/// Compares what `go version` prints ("go version go1.26.8 linux/amd64") with a version like "1.26.0".
pub(super) fn is_recent_enough(printed: &str, needed: &str) -> bool {
    let found = printed
        .split_whitespace()
        .find_map(|word| word.strip_prefix("go").filter(|rest| rest.contains('.')));
    found.is_some_and(|found| numbers(found) >= numbers(needed))
}

/// "1.27rc1" is 1.27: its release candidates build what 1.26 builds.
fn numbers(version: &str) -> Vec<u32> {
    let number = |part: &str| {
        let digits: String = part.chars().take_while(char::is_ascii_digit).collect();
        digits.parse().unwrap_or(0)
    };
    version.split('.').map(number).collect()
}
