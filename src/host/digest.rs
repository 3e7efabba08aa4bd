//! SHA-256 of what passes by.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;

use sha2::{Digest, Sha256};

use crate::pki::hexadecimal;

/// Size and SHA-256, in hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Sum {
    pub(super) size: u64,
    pub(super) sha256: String,
}

/// Passes bytes on and sums them up.
pub(super) struct Summing<W> {
    inner: W,
    size: u64,
    hash: Sha256,
}

impl<W: Write> Summing<W> {
    pub(super) fn new(inner: W) -> Self {
        Self {
            inner,
            size: 0,
            hash: Sha256::new(),
        }
    }

    pub(super) fn finish(self) -> Sum {
        Sum {
            size: self.size,
            sha256: hexadecimal(&self.hash.finalize()),
        }
    }
}

impl<W: Write> Write for Summing<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(bytes)?;
        self.hash.update(&bytes[..written]);
        self.size += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

/// The sum of a file; `read` is told how many bytes were read since it was last told.
pub(super) fn of_file(path: &Path, read: impl Fn(u64)) -> io::Result<Sum> {
    let mut file = File::open(path)?;
    let mut sum = Summing::new(io::sink());
    let mut buffer = vec![0; 1 << 20];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(sum.finish()),
            length => {
                sum.write_all(&buffer[..length])?;
                read(length as u64);
            }
        }
    }
}

/// The sum of bytes.
pub(super) fn of_bytes(bytes: &[u8]) -> Sum {
    Sum {
        size: bytes.len() as u64,
        sha256: hexadecimal(&Sha256::digest(bytes)),
    }
}
