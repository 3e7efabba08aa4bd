//! A folder in which helm does one task.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, chown};
use std::path::{Path, PathBuf};

use secrecy::{ExposeSecret, SecretString};

use super::super::atomic_file::{self, Access};
use super::super::entropy;
use super::{Error, credentials};
use crate::pki::hexadecimal;

/// The kubeconfig's name in it.
pub(super) const KUBECONFIG: &str = "kubeconfig";

/// A private folder, removed when the value is dropped.
#[derive(Debug)]
pub struct Workspace {
    path: PathBuf,
    user: Option<(u32, u32)>,
}

impl Workspace {
    /// Makes one below `folder`, whose name tells who made it.
    pub(super) fn new(folder: &Path, user: Option<(u32, u32)>) -> Result<Self, Error> {
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| Error::Owner { path, source }
        };
        atomic_file::create_folder(folder, Access::Secret).map_err(Error::Workspace)?;
        let number: [u8; 8] = entropy::bytes();
        let path = folder.join(format!("{}-{}", std::process::id(), hexadecimal(&number)));
        let workspace = Self { path, user };
        for name in ["", "home", "fetched"] {
            let path = workspace.path.join(name);
            fs::DirBuilder::new().mode(0o700).create(&path).map_err(failed(&path))?;
            workspace.give(&path)?;
        }
        Ok(workspace)
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Puts a file there that helm's user alone may read.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn put(&self, name: &str, content: &[u8]) -> Result<(), Error> {
        let path = self.path.join(name);
        atomic_file::write(&path, content, Access::Secret).map_err(Error::Workspace)?;
        self.give(&path)
    }

    /// Puts a text there, as [`Workspace::put`].
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn put_secret(&self, name: &str, content: &SecretString) -> Result<(), Error> {
        self.put(name, content.expose_secret().as_bytes())
    }

    /// Gives helm the credential of a kubeconfig, with everything in one file: what it names lies where helm's user has no
    /// way.
    ///
    /// # Errors
    /// When the kubeconfig cannot be read, or a file it names.
    pub fn kubeconfig(&self, kubeconfig: &Path) -> Result<(), Error> {
        let embedded = credentials::embed(kubeconfig).map_err(|reason| Error::Kubeconfig {
            path: kubeconfig.to_owned(),
            reason,
        })?;
        self.put_secret(KUBECONFIG, &embedded)
    }

    /// The name, in the workspace, of the one chart that helm fetched.
    #[must_use]
    pub fn fetched(&self) -> Option<String> {
        let mut entries = fs::read_dir(self.path.join("fetched")).ok()?.flatten();
        let name = entries.find_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            Path::new(&name)
                .extension()
                .is_some_and(|extension| extension == "tgz")
                .then_some(name)
        })?;
        Some(format!("fetched/{name}"))
    }

    fn give(&self, path: &Path) -> Result<(), Error> {
        let Some((user, group)) = self.user else {
            return Ok(());
        };
        chown(path, Some(user), Some(group)).map_err(|source| Error::Owner {
            path: path.to_owned(),
            source,
        })
    }
}

impl Drop for Workspace {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.path)
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(folder = %self.path.display(), %error, "a folder of helm's stays");
        }
    }
}

/// Removes the folders of processes that are gone.
pub(super) fn sweep(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let process = name
            .to_str()
            .and_then(|name| name.split_once('-')?.0.parse::<u32>().ok());
        let is_left = process.is_some_and(|process| !Path::new("/proc").join(process.to_string()).exists());
        if is_left {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_workspace_is_private_and_goes() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("helm");
        let workspace = Workspace::new(&folder, None).unwrap();
        workspace.put("values-0.yaml", b"password: hunter2").unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&folder), 0o700);
        assert_eq!(mode(workspace.path()), 0o700);
        assert_eq!(mode(&workspace.path().join("values-0.yaml")), 0o600);
        assert_eq!(workspace.fetched(), None);
        workspace.put("fetched/web-1.2.3.tgz", b"").unwrap();
        assert_eq!(workspace.fetched().as_deref(), Some("fetched/web-1.2.3.tgz"));
        let path = workspace.path().to_owned();
        sweep(&folder);
        assert!(path.exists(), "its process lives");
        drop(workspace);
        assert!(!path.exists());
        // No process has this id.
        fs::create_dir_all(folder.join("4194999-00/home")).unwrap();
        fs::create_dir(folder.join("of-somebody")).unwrap();
        sweep(&folder);
        assert!(!folder.join("4194999-00").exists() && folder.join("of-somebody").exists());
    }
}
