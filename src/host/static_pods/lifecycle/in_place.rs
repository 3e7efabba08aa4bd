//! A restart of the same pod: its processes are ended, and the kubelet starts its container again.
//!
//! The kubelet waits before it starts a container that has ended a short while ago, twice as long each time, up to five
//! minutes; on this program's controllers it waits for a second at most (`crashLoopBackOff` of its configuration).

use std::collections::BTreeMap;
use std::time::Duration;

use rustix::process::Signal;

use super::super::super::clock;
use super::super::{Component, Error, StaticPods, manifest};
use super::Mark;

impl StaticPods {
    /// Ends the processes that the component has now: asks them to, and kills those that are there after the grace period
    /// of its pod, as the kubelet would. One that the kubelet starts meanwhile is left alone.
    pub(super) async fn end(&self, component: Component, text: &str, timeout: Duration) -> Result<(), Error> {
        let grace = manifest::grace_period(text).map_err(|reason| self.malformed(component, reason))?;
        let mark = Mark::take();
        let began = clock::monotonic();
        let mut sent = BTreeMap::new();
        loop {
            let older = self.older(component, mark)?;
            if older.is_empty() {
                return Ok(());
            }
            let waited = clock::monotonic().duration_since(began);
            if waited >= timeout {
                return Err(Error::NotEnding {
                    component,
                    limit: timeout,
                    pids: older.into_keys().collect(),
                });
            }
            let signal = if waited < grace { Signal::TERM } else { Signal::KILL };
            for (pid, ticks) in older {
                if sent.insert(pid, signal) != Some(signal) {
                    self.kernel.signal(pid, ticks, signal)?;
                }
            }
            clock::sleep(self.pacing.interval).await;
        }
    }

    /// The processes of the component that are not younger than a mark, by id, and when they started, in clock ticks since
    /// boot.
    ///
    /// # Errors
    /// As [`StaticPods::running`].
    pub fn older(&self, component: Component, mark: Mark) -> Result<BTreeMap<u32, u64>, Error> {
        let mut older = BTreeMap::new();
        for pid in self.pids(component)? {
            let started = self.start_ticks(pid)?;
            older.extend(started.filter(|ticks| *ticks <= mark.ticks).map(|ticks| (pid, ticks)));
        }
        Ok(older)
    }
}
