//! How far a rotation of this node's authorities is, from its files alone: what is staged, what is kept to go back to, what
//! is trusted and what signs.
//!
//! | file | what |
//! |---|---|
//! | `pki/rotation/RUN/` | the new pairs, under the names they will have, and `forced` in a rotation that cannot go back |
//! | `NAME.crt.pre-carotate`, `NAME.key.pre-carotate` | what signed before |
//!
//! Certificates are told apart by their DER and keys by their public halves, never by a name or a time: a new authority may
//! bear the old one's name, and a backup that was restored has a new time. A certificate in a bundle that is neither the old
//! nor the new one is somebody's own, and no rotation.

use std::path::{Path, PathBuf};

use super::layout::{Form, Layout};
use super::node_pki::{FRONT_PROXY_BUNDLE, ROOT_BUNDLE, SERVICE_ACCOUNT, SERVICE_ACCOUNT_BUNDLE};
use super::pki_folder;
use crate::pki::certificate::Certificate;
use crate::pki::key::Key;

/// The ending of what is kept to go back to.
pub const BACKUP: &str = "pre-carotate";
/// In a run's folder: it began without an old key.
const FORCED: &str = "forced";

/// How far it is (design, section 4), as `certs check` prints it.
#[derive(Clone, Debug, PartialEq, Eq, strum::Display, strum::IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum RotationPhase {
    /// None is open.
    Idle,
    /// New pairs are here, and nobody trusts them yet.
    Staged,
    /// Old and new are trusted, and the old ones sign.
    TrustNew,
    /// Old and new are trusted, and the new ones sign.
    SignNew,
    /// The old ones are trusted no more, and are not purged.
    Finalize,
    /// Files of a rotation are there and cannot be read, or its material cannot be told apart: it counts as open.
    Unknown,
}

impl RotationPhase {
    /// Whether leaves may be issued by what signs here now.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        *self == Self::Idle
    }
}

/// This node's phase: the one of the authority that is furthest. On a node of kubeadm's there is nothing to rotate them with.
#[must_use]
pub fn rotation_phase(layout: &Layout) -> RotationPhase {
    if layout.form() == Form::Kubeadm {
        return RotationPhase::Idle;
    }
    let Ok(run) = run(layout) else {
        return RotationPhase::Unknown;
    };
    let mut furthest = RotationPhase::Idle;
    for what in ROTATED {
        let phase = what.phase(layout, run.as_deref()).unwrap_or(RotationPhase::Unknown);
        if rank(&phase) > rank(&furthest) {
            furthest = phase;
        }
    }
    match (furthest, run) {
        // A folder of a run without a pair: it was cut off while it staged.
        (RotationPhase::Idle, Some(_)) => RotationPhase::Staged,
        (furthest, _) => furthest,
    }
}

/// What an administrator who was halted wants to know, a line each: whether it was forced, for each authority what signs and
/// whether its old half is still there, and whether this node can go back. Nothing when no rotation is open.
#[must_use]
pub fn rotation_detail(layout: &Layout) -> Vec<String> {
    if rotation_phase(layout).is_idle() {
        return Vec::new();
    }
    let run = match run(layout) {
        Ok(run) => run,
        Err(error) => return vec![error],
    };
    let mut lines = Vec::new();
    let forced = run.as_ref().is_some_and(|run| run.join(FORCED).exists());
    if let Some(name) = run.as_ref().and_then(|run| run.file_name()) {
        lines.push(format!("run {}", name.to_string_lossy()));
    }
    if forced {
        lines.push("forced: it cannot be rolled back".to_owned());
    }
    let mut can_return = !forced;
    for what in ROTATED {
        match what.phase(layout, run.as_deref()) {
            Ok(RotationPhase::Idle) => continue,
            Ok(phase) => {
                let old = what.old(layout, &phase);
                can_return &= old.is_ok();
                let old = old.err().map_or_else(
                    || "its old pair is here".to_owned(),
                    |reason| match &run {
                        Some(run) if what.pair(run).is_ok() => format!("a staged pair signs in its place: {reason}"),
                        Some(_) | None => reason,
                    },
                );
                lines.push(format!("{}: {phase}; {old}", what.words));
            }
            Err(reason) => {
                can_return = false;
                lines.push(format!("{}: {reason}", what.words));
            }
        }
    }
    lines.push(if can_return {
        "this node can roll back".to_owned()
    } else {
        "this node cannot roll back".to_owned()
    });
    lines
}

/// What a rotation replaces.
struct Rotated {
    words: &'static str,
    /// Its files' name.
    name: &'static str,
    bundle: &'static str,
    /// Whether its public half is a certificate.
    certificate: bool,
}

const ROTATED: [Rotated; 3] = [
    Rotated {
        words: "root CA",
        name: "ca",
        bundle: ROOT_BUNDLE,
        certificate: true,
    },
    Rotated {
        words: "front-proxy CA",
        name: "front-proxy-ca",
        bundle: FRONT_PROXY_BUNDLE,
        certificate: true,
    },
    Rotated {
        words: "service-account key",
        name: SERVICE_ACCOUNT,
        bundle: SERVICE_ACCOUNT_BUNDLE,
        certificate: false,
    },
];

impl Rotated {
    fn phase(&self, layout: &Layout, run: Option<&Path>) -> Result<RotationPhase, String> {
        let pki = layout.pki();
        let new = match run {
            Some(run) => self.public(&run.join(self.public_name()))?,
            None => None,
        };
        let old = self.public(&backup(&pki.join(self.public_name())))?;
        let keeps_key = backup(&pki.join(format!("{}.key", self.name))).exists();
        if new.is_none() && old.is_none() && !keeps_key {
            return Ok(RotationPhase::Idle);
        }
        let signs = self.public(&pki.join(self.public_name()))?;
        let signs = signs.ok_or_else(|| format!("{} is missing", self.public_name()))?;
        let trusted = self.bundled(&pki.join(self.bundle))?;
        let is_trusted = |public: &Option<Vec<u8>>| public.as_ref().is_some_and(|public| trusted.contains(public));
        let promoted = match (&new, &old) {
            (Some(new), _) => *new == signs,
            (None, Some(old)) => *old != signs,
            // The key alone is kept: which one it is tells its public half.
            (None, None) => return Err(format!("{}.key.{BACKUP} is there without its other half", self.name)),
        };
        Ok(match (promoted, is_trusted(&old)) {
            (true, true) => RotationPhase::SignNew,
            (true, false) => RotationPhase::Finalize,
            (false, _) if new.is_none() || is_trusted(&new) => RotationPhase::TrustNew,
            (false, _) => RotationPhase::Staged,
        })
    }

    /// Whether what signed before the rotation is still here, whole.
    fn old(&self, layout: &Layout, phase: &RotationPhase) -> Result<(), String> {
        let pki = layout.pki();
        match phase {
            RotationPhase::Idle | RotationPhase::Staged | RotationPhase::TrustNew => self.pair(&pki),
            RotationPhase::SignNew | RotationPhase::Finalize => {
                let [public, key] =
                    [self.public_name(), format!("{}.key", self.name)].map(|name| backup(&pki.join(name)));
                self.matches(&public, &key)
            }
            RotationPhase::Unknown => Err("it cannot be told".to_owned()),
        }
    }

    fn pair(&self, folder: &Path) -> Result<(), String> {
        self.matches(
            &folder.join(self.public_name()),
            &folder.join(format!("{}.key", self.name)),
        )
    }

    fn matches(&self, public: &Path, key: &Path) -> Result<(), String> {
        let found = self.public(public)?;
        let found = found.ok_or_else(|| format!("{} is missing", public.display()))?;
        let pem = read(key)?.ok_or_else(|| format!("{} is missing", key.display()))?;
        let key_read = Key::from_pem(&pem).map_err(|error| format!("{}: {error}", key.display()))?;
        let of_public = if self.certificate {
            let certificate = Certificate::from_der(&found).map_err(|error| error.to_string())?;
            certificate.public_key_der().to_vec()
        } else {
            found
        };
        if of_public == key_read.public_key_der() {
            Ok(())
        } else {
            Err(format!("{} is not the key of {}", key.display(), public.display()))
        }
    }

    fn public_name(&self) -> String {
        let ending = if self.certificate { "crt" } else { "pub" };
        format!("{}.{ending}", self.name)
    }

    /// The DER of a certificate or public key; none when the file is not there.
    fn public(&self, path: &Path) -> Result<Option<Vec<u8>>, String> {
        let Some(pem) = read(path)? else {
            return Ok(None);
        };
        let wrong = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
        if self.certificate {
            let certificate = Certificate::from_pem(&pem).map_err(|error| wrong(&error))?;
            return Ok(Some(certificate.der().to_vec()));
        }
        let block = pem::parse(&pem).map_err(|error| wrong(&error))?;
        Ok(Some(block.into_contents()))
    }

    fn bundled(&self, path: &Path) -> Result<Vec<Vec<u8>>, String> {
        let pem = read(path)?.ok_or_else(|| format!("{} is missing", path.display()))?;
        let blocks = pem::parse_many(&pem).map_err(|error| format!("{}: {error}", path.display()))?;
        if blocks.is_empty() {
            return Err(format!("{} holds nothing", path.display()));
        }
        Ok(blocks.into_iter().map(pem::Pem::into_contents).collect())
    }
}

/// The folder of the run that is staged here, if one is.
fn run(layout: &Layout) -> Result<Option<PathBuf>, String> {
    let folder = layout.pki().join("rotation");
    let unreadable = |error: std::io::Error| format!("{}: {error}", folder.display());
    let entries = match std::fs::read_dir(&folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(unreadable(error)),
    };
    let mut runs = Vec::new();
    for entry in entries {
        let path = entry.map_err(unreadable)?.path();
        if path.is_dir() {
            runs.push(path);
        }
    }
    match runs.len() {
        0 | 1 => Ok(runs.pop()),
        count => Err(format!(
            "{} holds {count} runs, and only one can be open",
            folder.display()
        )),
    }
}

fn backup(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(BACKUP);
    name.into()
}

fn read(path: &Path) -> Result<Option<zeroize::Zeroizing<Vec<u8>>>, String> {
    pki_folder::read(path).map_err(|error| match std::error::Error::source(&error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    })
}

const fn rank(phase: &RotationPhase) -> u8 {
    match phase {
        RotationPhase::Idle => 0,
        RotationPhase::Staged => 1,
        RotationPhase::TrustNew => 2,
        RotationPhase::SignNew => 3,
        RotationPhase::Finalize => 4,
        RotationPhase::Unknown => 5,
    }
}

#[cfg(test)]
mod tests;
