//! What a grant hands over: the files a controller needs before it can make its own certificates, by name.
//!
//! As bytes it is, for each file: the length of its name (2 bytes), the name, the length of its content (4 bytes), the
//! content; lengths are big-endian. A text form would need copies that nobody clears.

use std::collections::BTreeMap;
use std::fmt;

use zeroize::Zeroizing;

/// Files that cannot be handed over, or that are not what was handed over.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A name that could lead out of the folder, or that no file of a PKI has.
    #[error("{0:?} is no name of a file below the PKI folder, such as ca.crt or etcd/ca.key")]
    Name(String),
    /// A joiner cannot tell an empty file from one that could not be read.
    #[error("{0} is empty")]
    Empty(String),
    /// Two files under one name.
    #[error("{0} is there twice")]
    Twice(String),
    /// More than the form has room for.
    #[error("{0} has 4 GiB or more")]
    TooLong(String),
    /// No file at all.
    #[error("there is no file in it")]
    Nothing,
    /// The bytes end within a file.
    #[error("it ends within the file that follows {0}")]
    CutOff(String),
}

/// Files by name, with `/` below the PKI folder. Cleared from memory when dropped; shows only names and sizes.
#[derive(Default, PartialEq, Eq)]
pub struct Material(BTreeMap<String, Zeroizing<Vec<u8>>>);

impl Material {
    /// No file yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a file.
    ///
    /// # Errors
    /// When the name leads out of the folder or is taken, or the file is empty or too long.
    pub fn insert(&mut self, name: &str, content: Zeroizing<Vec<u8>>) -> Result<(), Error> {
        if !is_below_folder(name) {
            return Err(Error::Name(name.to_owned()));
        }
        if content.is_empty() {
            return Err(Error::Empty(name.to_owned()));
        }
        if u32::try_from(content.len()).is_err() {
            return Err(Error::TooLong(name.to_owned()));
        }
        if self.0.contains_key(name) {
            return Err(Error::Twice(name.to_owned()));
        }
        self.0.insert(name.to_owned(), content);
        Ok(())
    }

    /// The content of a file.
    #[must_use]
    pub fn file(&self, name: &str) -> Option<&[u8]> {
        self.0.get(name).map(|content| content.as_slice())
    }

    /// All files, by name.
    pub fn files(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.0.iter().map(|(name, content)| (name.as_str(), content.as_slice()))
    }

    /// All files in one piece.
    ///
    /// # Errors
    /// When there is no file.
    pub(super) fn to_bytes(&self) -> Result<Zeroizing<Vec<u8>>, Error> {
        if self.0.is_empty() {
            return Err(Error::Nothing);
        }
        let length = self.files().map(|(name, content)| 6 + name.len() + content.len()).sum();
        // Never moved by growing, which would leave a copy behind.
        let mut bytes = Zeroizing::new(Vec::with_capacity(length));
        for (name, content) in self.files() {
            let name_length = u16::try_from(name.len()).map_err(|_| Error::Name(name.to_owned()))?;
            let length = u32::try_from(content.len()).map_err(|_| Error::TooLong(name.to_owned()))?;
            bytes.extend(name_length.to_be_bytes());
            bytes.extend(name.bytes());
            bytes.extend(length.to_be_bytes());
            bytes.extend_from_slice(content);
        }
        Ok(bytes)
    }

    /// All files, or none when anything is wrong with one of them.
    ///
    /// # Errors
    /// With the file, as far as its name is known.
    pub(super) fn from_bytes(bytes: &[u8]) -> Result<Self, Error> {
        let mut material = Self::new();
        let mut rest = bytes;
        let mut last = "none".to_owned();
        while !rest.is_empty() {
            let (name, content, after) = first_file(rest).ok_or_else(|| Error::CutOff(last.clone()))?;
            let name =
                std::str::from_utf8(name).map_err(|_| Error::Name(String::from_utf8_lossy(name).into_owned()))?;
            material.insert(name, Zeroizing::new(content.to_vec()))?;
            name.clone_into(&mut last);
            rest = after;
        }
        if material.0.is_empty() {
            return Err(Error::Nothing);
        }
        Ok(material)
    }
}

impl fmt::Debug for Material {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sizes = self.files().map(|(name, content)| (name, content.len()));
        formatter.debug_map().entries(sizes).finish()
    }
}

/// Name, content and what follows.
fn first_file(bytes: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<2>()?;
    let (name, rest) = rest.split_at_checked(u16::from_be_bytes(*length).into())?;
    let (length, rest) = rest.split_first_chunk::<4>()?;
    let (content, rest) = rest.split_at_checked(usize::try_from(u32::from_be_bytes(*length)).ok()?)?;
    Some((name, content, rest))
}

/// Plain parts that are not hidden: nothing that leads up, nothing absolute.
fn is_below_folder(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    name.len() <= 255
        && name
            .split('/')
            .all(|part| !part.is_empty() && !part.starts_with('.') && part.bytes().all(plain))
}
