//! A folder of authorities, leaves, keys and trust bundles, in files and under names like kubeadm's.
//!
//! What is there and good stays. A leaf is made anew, with its key kept, when its signer, subject or names changed or it is
//! out of date; one that is merely due is left to whoever also restarts those who use it. An authority is never replaced: when one file of its pair is missing that is an error, for everything
//! the cluster stands on would silently change. A bundle only grows.
//!
//! A [`Folder`] collects what has to change; [`Folder::commit`] writes it, all of it or nothing.

mod bundle;
mod credential;
mod error;
mod keys;

use std::path::{Path, PathBuf};

use jiff::{SignedDuration, Timestamp};
use zeroize::Zeroizing;

use super::atomic_file::{self, Access, Content, NewFile, Staged};
use crate::pki::authority::Authority;
use crate::pki::certificate::Certificate;
use crate::pki::key::{Key, KeyKind, Serial};
use crate::pki::leaf::{Request, Usage, issue};

pub use credential::{Credential, master};
pub use error::Error;
use keys::generate;
pub use keys::new_keys;

/// The folder as it is, and what of it has to change.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    kind: KeyKind,
    now: Timestamp,
    /// Whether what is due is made anew as well.
    renews: bool,
    leaf_lifetime: Option<SignedDuration>,
    /// Keys that were made ahead.
    spare: Vec<Key>,
    changes: Vec<NewFile>,
}

impl Folder {
    /// Looks at the folder at `path`, which does not have to exist yet. New keys are of `kind`.
    pub fn new(path: impl Into<PathBuf>, kind: KeyKind, now: Timestamp) -> Self {
        Self {
            path: path.into(),
            kind,
            now,
            renews: false,
            leaf_lifetime: None,
            spare: Vec::new(),
            changes: Vec::new(),
        }
    }

    /// The same, with leaves that are due made anew as well: where everybody who uses one starts after this.
    #[must_use]
    pub fn renewing(self) -> Self {
        Self { renews: true, ..self }
    }

    /// The same, with leaves that live for so long, whatever their requests say; none: as those say.
    #[must_use]
    pub fn with_leaf_lifetime(self, leaf_lifetime: Option<SignedDuration>) -> Self {
        Self { leaf_lifetime, ..self }
    }

    /// The path of a file in it.
    #[must_use]
    pub fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// The certificate and the key called `name`.
    #[must_use]
    pub fn pair(&self, name: &str) -> [PathBuf; 2] {
        [self.file(&format!("{name}.crt")), self.file(&format!("{name}.key"))]
    }

    /// Makes the keys that the pairs called `names` lack, and `more`, on every processor at once. One RSA key takes a
    /// tenth of a second to a second, and nothing can go on without it; keys on curves are made when they are needed.
    ///
    /// # Errors
    /// When a key file cannot be read, or without a source of randomness.
    pub fn make_keys<'a>(&mut self, names: impl IntoIterator<Item = &'a str>, more: usize) -> Result<(), Error> {
        if !self.kind.is_rsa() {
            return Ok(());
        }
        let mut count = more;
        for name in names {
            let [_, key_file] = self.pair(name);
            let usable = read(&key_file)?.is_some_and(|pem| Key::from_pem(&pem).is_ok());
            count += usize::from(!usable);
        }
        let made = generate(self.kind, count);
        self.spare.extend(made.map_err(|source| Error::Key {
            path: self.path.clone(),
            source,
        })?);
        Ok(())
    }

    /// The authority called `name`; made, with a name that starts with `common_name`, when there is none.
    ///
    /// # Errors
    /// When one of its files is missing, or what they hold is no authority.
    pub fn authority(&mut self, name: &str, common_name: &str) -> Result<Authority, Error> {
        if let Some(found) = self.found_authority(name)? {
            return Ok(found);
        }
        let [certificate_file, key_file] = self.pair(name);
        let key = self.new_key(&key_file)?;
        let made = Authority::make(common_name, key, serial(&certificate_file)?, self.now);
        let authority = made.map_err(|source| Error::Authority {
            path: certificate_file,
            source,
        })?;
        self.put_pair(name, authority.certificate(), Some(authority.key()));
        Ok(authority)
    }

    /// The authority called `name`, if there is one.
    ///
    /// # Errors
    /// When one of its files is missing, or what they hold is no authority.
    pub fn found_authority(&self, name: &str) -> Result<Option<Authority>, Error> {
        let [certificate_file, key_file] = self.pair(name);
        match (read(&certificate_file)?, read(&key_file)?) {
            (Some(certificate), Some(key)) => {
                let loaded = Authority::load(&certificate, &key).map_err(|source| Error::Authority {
                    path: certificate_file,
                    source,
                });
                loaded.map(Some)
            }
            (Some(_), None) => Err(Error::HalfAuthority { path: key_file }),
            (None, Some(_)) => Err(Error::HalfAuthority { path: certificate_file }),
            (None, None) => Ok(None),
        }
    }

    /// Sees to it that the leaf called `name` is what `request` asks for, signed by `signer` and in date.
    ///
    /// # Errors
    /// When its files cannot be read, or the signer cannot sign.
    pub fn leaf(&mut self, name: &str, signer: &Authority, request: &Request) -> Result<Repair, Error> {
        let [certificate_file, key_file] = self.pair(name);
        // A key that makes no sense is of no use to anybody else either.
        let found = read(&key_file)?.and_then(|pem| Key::from_pem(&pem).ok());
        let present = read(&certificate_file)?.and_then(|pem| Certificate::from_pem(&pem).ok());
        if let (Some(key), Some(certificate)) = (&found, &present)
            && is_good(certificate, signer, request, key, self.now)
            && !self.renews(certificate, signer)
        {
            return Ok(Repair::None);
        }
        let (key, made) = match found {
            Some(key) => (key, false),
            None => (self.new_key(&key_file)?, true),
        };
        let lifetime = self.leaf_lifetime.unwrap_or(request.lifetime);
        let request = Request {
            lifetime,
            ..request.clone()
        };
        let certificate = self.issue(&certificate_file, signer, &request, &key)?;
        // A key that is kept keeps its file: nobody who reads it now may find it gone.
        self.put_pair(name, &certificate, made.then_some(&key));
        let expired = present.is_some_and(|certificate| certificate.details().not_after < self.now);
        Ok(if expired { Repair::Expired } else { Repair::Made })
    }

    /// A renewal that would not end later is none.
    fn renews(&self, certificate: &Certificate, signer: &Authority) -> bool {
        let is_last = certificate.details().not_after == signer.certificate().details().not_after;
        self.renews && certificate.is_due(self.now) && !is_last
    }

    /// A certificate for `key`, which is not written. `path` is what an error names.
    ///
    /// # Errors
    /// When the signer cannot sign it.
    pub fn issue(&self, path: &Path, signer: &Authority, request: &Request, key: &Key) -> Result<Certificate, Error> {
        let issued = issue(signer, request, key, serial(path)?, self.now);
        issued.map_err(|source| Error::Issue {
            path: path.to_owned(),
            source,
        })
    }

    /// The key pair called `name`: `NAME.key` and its public half `NAME.pub`, made when there is none.
    ///
    /// # Errors
    /// When the private half alone is missing, or holds no key.
    pub fn key(&mut self, name: &str) -> Result<Key, Error> {
        let (path, public) = (self.file(&format!("{name}.key")), self.file(&format!("{name}.pub")));
        let key = match read(&path)? {
            Some(pem) => Key::from_pem(&pem).map_err(|source| Error::Key { path, source })?,
            // What the lost key has signed would be refused from now on.
            None if public.exists() => return Err(Error::HalfKey { path, public }),
            None => {
                let key = self.new_key(&path)?;
                self.put(path, key.to_pem().expose().as_bytes(), Access::Secret);
                key
            }
        };
        if !read(&public)?.is_some_and(|pem| is_public_half(&pem, &key)) {
            self.put(public, key.public_key_pem().as_bytes(), Access::Public);
        }
        Ok(key)
    }

    /// One more file to write.
    pub fn put(&mut self, path: PathBuf, bytes: &[u8], access: Access) {
        let content = Content::Bytes(Zeroizing::new(bytes.to_vec()), access);
        self.changes.push(NewFile { path, content });
    }

    /// One more link to make.
    pub fn put_link(&mut self, path: PathBuf, target: PathBuf) {
        let content = Content::Link(target);
        self.changes.push(NewFile { path, content });
    }

    /// A certificate and, if it is new, its key. The key first: a certificate without its key is worse than a key without
    /// its certificate.
    pub fn put_pair(&mut self, name: &str, certificate: &Certificate, key: Option<&Key>) {
        let [certificate_file, _] = self.pair(name);
        if let Some(key) = key {
            self.put_key(name, key);
        }
        self.put(certificate_file, certificate.to_pem().as_bytes(), Access::Public);
    }

    /// A private key.
    pub fn put_key(&mut self, name: &str, key: &Key) {
        let [_, path] = self.pair(name);
        self.put(path, key.to_pem().expose().as_bytes(), Access::Secret);
    }

    /// A new key for the file at `path`, which only an error names.
    ///
    /// # Errors
    /// Only without a source of randomness.
    pub fn new_key(&mut self, path: &Path) -> Result<Key, Error> {
        if let Some(key) = self.spare.pop() {
            return Ok(key);
        }
        Key::generate(self.kind).map_err(|source| Error::Key {
            path: path.to_owned(),
            source,
        })
    }

    /// Writes what has changed and returns the paths, in the order they were written.
    ///
    /// # Errors
    /// Names the file. Unless a rename failed, nothing has changed then.
    pub fn commit(self) -> Result<Vec<PathBuf>, Error> {
        let (staged, paths) = self.stage()?;
        staged.put_in_place()?;
        Ok(paths)
    }

    /// Brings what has changed onto the disk, each file beside its place, for a caller that has something to do before the
    /// first of them changes; and their paths, in the order in which they will.
    ///
    /// # Errors
    /// Names the file. Nothing has changed.
    pub fn stage(self) -> Result<(Staged, Vec<PathBuf>), Error> {
        for folder in self.changes.iter().filter_map(|file| file.path.parent()) {
            atomic_file::create_folder(folder, Access::Secret)?;
        }
        let staged = atomic_file::stage_all(&self.changes)?;
        Ok((staged, self.changes.into_iter().map(|file| file.path).collect()))
    }
}

/// What [`Folder::leaf`] found to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repair {
    /// Nothing.
    None,
    /// It is made anew.
    Made,
    /// It is made anew, for it had expired.
    Expired,
}

/// Whether a leaf that was found can go on as what was asked for.
#[must_use]
pub fn is_good(certificate: &Certificate, signer: &Authority, request: &Request, key: &Key, now: Timestamp) -> bool {
    says(certificate, request, key)
        && certificate.check_issued_by(signer.certificate()).is_ok()
        && certificate.is_in_date(now)
}

/// Whether a certificate says what was asked for, and is of this key. Who signed it and when is not looked at.
#[must_use]
pub fn says(certificate: &Certificate, request: &Request, key: &Key) -> bool {
    let details = certificate.details();
    let sorted = |names: &[crate::pki::name::AlternativeName]| {
        let mut names = names.to_vec();
        names.sort();
        names
    };
    let has = |usage| match usage {
        Usage::Server => details.server_auth,
        Usage::Client => details.client_auth,
    };
    certificate.public_key_der() == key.public_key_der()
        && details.common_name.as_ref() == Some(&request.subject.common_name)
        && details.organizations == request.subject.organizations
        && sorted(&details.alternative_names) == sorted(&request.alternative_names)
        && [Usage::Server, Usage::Client]
            .into_iter()
            .all(|usage| has(usage) == request.usages.contains(&usage))
}

/// Whether the PEM data is the public half of `key`.
#[must_use]
pub fn is_public_half(pem: &[u8], key: &Key) -> bool {
    pem::parse(pem).is_ok_and(|block| block.contents() == key.public_key_der())
}

/// The content of a file, if it is there.
///
/// # Errors
/// When it is there and cannot be read.
pub fn read(path: &Path) -> Result<Option<Zeroizing<Vec<u8>>>, Error> {
    let read = atomic_file::if_there(std::fs::read(path));
    let bytes = read.map_err(|source| Error::Read {
        path: path.to_owned(),
        source,
    })?;
    Ok(bytes.map(Zeroizing::new))
}

fn serial(path: &Path) -> Result<Serial, Error> {
    Serial::random().map_err(|source| Error::Key {
        path: path.to_owned(),
        source,
    })
}
