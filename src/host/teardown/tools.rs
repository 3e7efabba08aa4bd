//! Programs of the machine that an uninstall uses when they are there.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::time::Duration;

use super::super::child::Program;
use super::report::Error;

/// How long one may take.
const LIMIT: Duration = Duration::from_secs(120);

/// Where they are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tools {
    /// Links.
    pub ip: Option<PathBuf>,
    /// Tables of nftables.
    pub nft: Option<PathBuf>,
    /// Units.
    pub systemctl: Option<PathBuf>,
}

impl Tools {
    /// Looks for them in the folders of a `PATH`.
    #[must_use]
    pub fn find(path: Option<&OsStr>) -> Self {
        let find = |name: &str| {
            let folders = path
                .map(|path| std::env::split_paths(path).collect::<Vec<_>>())
                .unwrap_or_default();
            let places = folders
                .iter()
                .filter(|folder| folder.is_absolute())
                .map(|folder| folder.join(name));
            places.into_iter().find(|place| place.is_file())
        };
        Self {
            ip: find("ip"),
            nft: find("nft"),
            systemctl: find("systemctl"),
        }
    }
}

/// Runs one to its end; what it printed.
pub(super) async fn run(name: &'static str, program: &PathBuf, arguments: &[&str]) -> Result<String, Error> {
    let command = || format!("{name} {}", arguments.join(" "));
    let program = Program::new(program).arguments(arguments).variable("LC_ALL", "C");
    let finished = match tokio::time::timeout(LIMIT, program.run(Vec::new())).await {
        Ok(finished) => finished.map_err(|source| Error::Run { program: name, source })?,
        Err(_) => {
            return Err(Error::Failed {
                command: command(),
                said: format!("it did not end within {} s", LIMIT.as_secs()),
            });
        }
    };
    if finished.exit.is_success() {
        return Ok(String::from_utf8_lossy(&finished.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&finished.stderr);
    let said = said.lines().rev().find(|line| !line.trim().is_empty());
    Err(Error::Failed {
        command: command(),
        said: said.map_or_else(|| finished.exit.to_string(), str::to_owned),
    })
}
