//! An attempt: a rotation that keeps keys, of what ends within the window.

use std::io::{self, Write};

use super::super::super::concern::chain;
use super::super::rotate::{self, Keys, NodeLock, Options};
use super::{Attempted, Failure, Wish};
use crate::controllers::machine::node::Config;

/// Has the leaves made new and everybody brought to them; what it does is logged. `config` is what config.yaml passes
/// through to the parts of a node.
///
/// # Errors
/// As [`rotate::rotate`].
pub async fn attempt(config: &Config, wish: Wish) -> Attempted {
    let options = Options {
        if_expiring: Some(wish.window),
        keys: Keys::Keep,
        rekey_shared: false,
        offline: false,
        kube_vip_required: false,
        lock: NodeLock::Take,
        dry_run: false,
    };
    let rotated = rotate::rotate(&wish.machine, config, &options, &wish.stop, &mut Log::default()).await;
    match rotated {
        Ok(rotated) => {
            if let Some(idle) = rotated.idle {
                tracing::info!("nothing was made new: {idle}");
            }
            for warning in rotated.warnings {
                tracing::warn!("{warning}");
            }
            for command in rotated.by_hand {
                tracing::warn!("now run: {command}");
            }
            match rotated.skipped.is_empty() {
                true => Ok(rotated.reissued),
                false => Err(Failure {
                    words: format!("not everything was made new: {}", rotated.skipped.join("; ")),
                    refused: false,
                }),
            }
        }
        Err(error) => Err(Failure {
            words: chain(&error),
            refused: error.is_refusal(),
        }),
    }
}

/// Each line it is written becomes one of the log.
#[derive(Default)]
struct Log {
    begun: Vec<u8>,
}

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        for byte in bytes {
            if *byte == b'\n' {
                let line = std::mem::take(&mut self.begun);
                tracing::info!("{}", String::from_utf8_lossy(&line));
            } else {
                self.begun.push(*byte);
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
