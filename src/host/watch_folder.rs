//! A hint that a folder changed. Hints may be late, early or one too many; what the folder holds is
//! [`super::folder`]'s to say, and a caller still reads it now and then without any hint.

use std::path::{Path, PathBuf};
use std::time::Duration;

use futures::Stream;
use futures::stream;
use notify::{EventKind, RecursiveMode, Watcher};
use tokio::sync::mpsc;

use super::clock;
use super::folder::FolderIdentity;

/// After a change, this long without another one, so that a writer's burst is one hint.
const QUIET: Duration = Duration::from_millis(20);
/// Bursts that never end are cut into pieces of this many quiet periods.
const LONGEST_BURST: u32 = 25;
/// How often to look whether the folder itself was replaced, and how often to hint while nothing can be watched.
const TICK: Duration = Duration::from_secs(1);

/// Watches a folder and everything in it. The first item comes when the watch stands (or has failed), so that a
/// caller who reads on every item misses nothing in between; then one item for each burst of changes.
///
/// The folder may be missing, be replaced or unmounted: the watch follows the path. While it cannot stand, an item
/// comes every second, after one warning. Files that symbolic links lead to outside of the folder are not watched.
pub fn watch(path: PathBuf) -> impl Stream<Item = ()> + Send + 'static {
    let start = State {
        path,
        armed: None,
        warned: false,
    };
    stream::unfold(start, |mut state| async move {
        state.next().await;
        Some(((), state))
    })
}

struct State {
    path: PathBuf,
    armed: Option<Armed>,
    warned: bool,
}

struct Armed {
    identity: FolderIdentity,
    changes: mpsc::Receiver<()>,
    /// Stops watching when dropped.
    _watcher: notify::RecommendedWatcher,
}

impl State {
    /// Returns when there is something to hint at.
    async fn next(&mut self) {
        let Some(armed) = &mut self.armed else {
            return self.arm().await;
        };
        loop {
            let changed = tokio::select! {
                change = armed.changes.recv() => change.is_some(),
                () = clock::sleep(TICK) => false,
            };
            let same = FolderIdentity::of(&self.path).is_ok_and(|identity| identity == armed.identity);
            if changed && same {
                return quiet(&mut armed.changes).await;
            }
            if !same || armed.changes.is_closed() {
                self.armed = None;
                return self.arm().await;
            }
        }
    }

    async fn arm(&mut self) {
        match arm(&self.path) {
            Ok(armed) => {
                if self.warned {
                    tracing::info!(folder = %self.path.display(), "the folder is watched again");
                }
                self.warned = false;
                self.armed = Some(armed);
            }
            Err(reason) => {
                if !self.warned {
                    let folder = self.path.display();
                    tracing::warn!(%folder, %reason, "the folder cannot be watched; it is looked at every second");
                    self.warned = true;
                } else {
                    clock::sleep(TICK).await;
                }
            }
        }
    }
}

async fn quiet(changes: &mut mpsc::Receiver<()>) {
    for _ in 0..LONGEST_BURST {
        clock::sleep(QUIET).await;
        if changes.try_recv().is_err() {
            return;
        }
    }
}

fn arm(path: &Path) -> Result<Armed, String> {
    let identity = FolderIdentity::of(path).map_err(|error| error.to_string())?;
    // One waiting hint is as good as many.
    let (hint, changes) = mpsc::channel(1);
    let mut watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
        if is_hint(&event) {
            // Full means that a hint waits already; closed that nobody does.
            let _ = hint.try_send(());
        }
    })
    .map_err(|error| error.to_string())?;
    watcher
        .watch(path, RecursiveMode::Recursive)
        .map_err(|error| error.to_string())?;
    Ok(Armed {
        identity,
        changes,
        _watcher: watcher,
    })
}

/// Everything but mere reading: reading the folder opens it, and taking that for a change would never end. Lost events
/// and errors may stand for any change.
fn is_hint(event: &notify::Result<notify::Event>) -> bool {
    use notify::event::{AccessKind, AccessMode};
    match event {
        Ok(event) => match event.kind {
            EventKind::Access(access) => event.need_rescan() || access == AccessKind::Close(AccessMode::Write),
            EventKind::Any | EventKind::Create(_) | EventKind::Modify(_) | EventKind::Remove(_) | EventKind::Other => {
                true
            }
        },
        Err(_) => true,
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::io::Write;
    use std::pin::Pin;

    use futures::StreamExt;

    use super::*;

    type Hints = Pin<Box<dyn Stream<Item = ()> + Send>>;

    async fn hinted(hints: &mut Hints) {
        tokio::time::timeout(Duration::from_secs(10), hints.next())
            .await
            .expect("no hint")
            .unwrap();
    }

    /// No hint for a while: the one thing that cannot be waited for.
    async fn silent(hints: &mut Hints) {
        let hint = tokio::time::timeout(Duration::from_millis(1500), hints.next()).await;
        assert!(hint.is_err(), "a hint without a change");
    }

    async fn settled(hints: &mut Hints) {
        while tokio::time::timeout(Duration::from_millis(300), hints.next())
            .await
            .is_ok()
        {}
    }

    fn write(path: PathBuf) {
        File::create(path).unwrap().write_all(b"x").unwrap();
    }

    #[tokio::test]
    async fn changes_are_hinted_and_reading_is_not() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("s")).unwrap();
        let mut hints: Hints = Box::pin(watch(folder.path().to_owned()));
        hinted(&mut hints).await;
        write(folder.path().join("s/a.yaml"));
        hinted(&mut hints).await;
        settled(&mut hints).await;
        fs::read(folder.path().join("s/a.yaml")).unwrap();
        fs::read_dir(folder.path().join("s")).unwrap().for_each(drop);
        silent(&mut hints).await;
        // What was written through a mapping shows when the file is closed.
        drop(
            File::options()
                .append(true)
                .open(folder.path().join("s/a.yaml"))
                .unwrap(),
        );
        hinted(&mut hints).await;
        settled(&mut hints).await;
        fs::create_dir(folder.path().join("t")).unwrap();
        hinted(&mut hints).await;
        settled(&mut hints).await;
        write(folder.path().join("t/b.yaml"));
        hinted(&mut hints).await;
        settled(&mut hints).await;
        fs::remove_file(folder.path().join("t/b.yaml")).unwrap();
        hinted(&mut hints).await;
    }

    #[tokio::test]
    async fn a_replaced_folder_is_watched() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("m");
        let mut hints: Hints = Box::pin(watch(path.clone()));
        hinted(&mut hints).await;
        hinted(&mut hints).await;
        let before = clock::monotonic();
        hinted(&mut hints).await;
        assert!(before.elapsed() >= TICK.mul_f64(0.9), "a busy loop");
        for _ in 0..2 {
            fs::create_dir(&path).unwrap();
            // Ticks end once the watch stands.
            tokio::time::timeout(Duration::from_secs(20), async {
                while tokio::time::timeout(Duration::from_millis(2500), hints.next())
                    .await
                    .is_ok()
                {}
            })
            .await
            .expect("still ticking");
            write(path.join("a.yaml"));
            hinted(&mut hints).await;
            fs::rename(&path, root.path().join("old")).unwrap();
            hinted(&mut hints).await;
            fs::remove_dir_all(root.path().join("old")).unwrap();
        }
    }

    #[test]
    fn lost_events_and_errors_are_hints() {
        use notify::Event;
        use notify::event::{AccessKind, AccessMode, Flag};
        let open = Event::new(EventKind::Access(AccessKind::Open(AccessMode::Any)));
        assert!(is_hint(&Ok(open.clone().set_flag(Flag::Rescan))));
        assert!(!is_hint(&Ok(open)));
        assert!(is_hint(&Ok(Event::new(EventKind::Other).set_flag(Flag::Rescan))));
        assert!(is_hint(&Err(notify::Error::generic("the queue ran over"))));
    }

    /// Changes that follow each other are one hint, and a writer that never stops does not hold it back for ever.
    #[tokio::test]
    async fn a_burst_is_one_hint() {
        let sends = |times: usize| {
            let (hint, changes) = mpsc::channel(1);
            let sender = async move {
                let mut taken = 0;
                while taken < times && hint.send(()).await.is_ok() {
                    taken += 1;
                }
                std::future::pending::<()>().await;
            };
            (changes, tokio::spawn(sender))
        };
        let (mut changes, sender) = sends(5);
        quiet(&mut changes).await;
        assert!(changes.try_recv().is_err(), "all five belong to the burst");
        sender.abort();
        let (mut changes, sender) = sends(usize::MAX);
        let before = clock::monotonic();
        tokio::time::timeout(Duration::from_secs(10), quiet(&mut changes))
            .await
            .expect("for ever");
        assert!(before.elapsed() >= QUIET * LONGEST_BURST);
        sender.abort();
    }

    /// Nothing happens in the folder or to it: it is another one that the path leads to.
    #[tokio::test]
    async fn a_folder_that_is_swapped_with_its_parent_is_watched() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("p/m");
        for parent in ["p", "new"] {
            fs::create_dir_all(root.path().join(parent).join("m")).unwrap();
        }
        let mut hints: Hints = Box::pin(watch(path.clone()));
        hinted(&mut hints).await;
        fs::rename(root.path().join("p"), root.path().join("old")).unwrap();
        fs::rename(root.path().join("new"), root.path().join("p")).unwrap();
        hinted(&mut hints).await;
        write(path.join("a.yaml"));
        hinted(&mut hints).await;
    }

    /// The path is never missing for long enough to be noticed: only the identity tells.
    #[tokio::test]
    async fn a_swapped_folder_is_watched() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("m");
        fs::create_dir(&path).unwrap();
        fs::create_dir(root.path().join("new")).unwrap();
        let mut hints: Hints = Box::pin(watch(path.clone()));
        hinted(&mut hints).await;
        fs::rename(&path, root.path().join("old")).unwrap();
        fs::rename(root.path().join("new"), &path).unwrap();
        hinted(&mut hints).await;
        settled(&mut hints).await;
        write(path.join("a.yaml"));
        hinted(&mut hints).await;
    }
}
