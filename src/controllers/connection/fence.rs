//! The fence: a moment after which a connection sends nothing more.
//!
//! A leader that is stopped and continued, or starved for a minute, does not know that its term has ended. Its pending
//! writes sit in tasks and buffers, and the first thing that runs again may be one of them. So the check stands at the
//! last place where this process decides anything: [`super::stream::Guarded`] asks the fence before each write to the
//! socket. What the kernel took before the deadline is bounded by [`super::FENCED_USER_TIMEOUT`].

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::host::clock;

/// A handle on one term's right to send. Clones share the same deadline. Once it has ended it never opens again: a new
/// term gets a new fence and new connections.
#[derive(Clone)]
pub struct Fence {
    inner: Arc<Inner>,
}

struct Inner {
    /// The deadline in nanoseconds of [`clock::since_boot`]; only ever grows.
    deadline: AtomicU64,
    ended: CancellationToken,
}

impl Fence {
    /// A fence that ends at `deadline`, a reading of [`clock::since_boot`], unless it is extended before.
    ///
    /// Must be called inside a tokio runtime: a task wakes pending reads when the deadline passes, so that callers that
    /// only wait learn of it too.
    #[must_use]
    pub fn until(deadline: Duration) -> Self {
        let fence = Self {
            inner: Arc::new(Inner {
                deadline: AtomicU64::new(nanoseconds(deadline)),
                ended: CancellationToken::new(),
            }),
        };
        tokio::spawn(fence.clone().end_at_deadline());
        fence
    }

    /// Moves the deadline on to `deadline`, never back. False when the fence has ended already: the term is over, even
    /// if the Lease was renewed after all.
    pub fn extend(&self, deadline: Duration) -> bool {
        if self.has_ended() {
            return false;
        }
        self.inner.deadline.fetch_max(nanoseconds(deadline), Ordering::AcqRel);
        true
    }

    /// Ends the fence at once.
    pub fn revoke(&self) {
        self.inner.ended.cancel();
    }

    /// Whether nothing may be sent any more. Reads the clock; cheap enough for each write.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        if self.inner.ended.is_cancelled() {
            return true;
        }
        let passed = nanoseconds(clock::since_boot()) >= self.inner.deadline.load(Ordering::Acquire);
        if passed {
            self.inner.ended.cancel();
        }
        passed
    }

    /// The current deadline, as a reading of [`clock::since_boot`].
    #[must_use]
    pub fn deadline(&self) -> Duration {
        Duration::from_nanos(self.inner.deadline.load(Ordering::Acquire))
    }

    /// A token that is cancelled when the fence ends, by time or by [`Fence::revoke`].
    #[must_use]
    pub fn ended(&self) -> CancellationToken {
        self.inner.ended.clone()
    }

    async fn end_at_deadline(self) {
        while !self.has_ended() {
            let left = self.deadline().saturating_sub(clock::since_boot());
            // Elapsed or ended: either way the loop's condition tells.
            let _ = tokio::time::timeout(left, self.inner.ended.cancelled()).await;
        }
    }
}

impl fmt::Debug for Fence {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Fence")
            .field("deadline", &self.deadline())
            .field("ended", &self.inner.ended.is_cancelled())
            .finish()
    }
}

/// Saturates after 584 years.
fn nanoseconds(moment: Duration) -> u64 {
    u64::try_from(moment.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn ends_by_itself_and_never_opens_again() {
        let fence = Fence::until(clock::since_boot() + Duration::from_millis(30));
        assert!(!fence.has_ended());
        let ended = fence.ended();
        tokio::time::timeout(Duration::from_secs(5), ended.cancelled())
            .await
            .expect("the fence ends at its deadline without being asked");
        assert!(fence.has_ended());
        assert!(!fence.extend(clock::since_boot() + Duration::from_secs(60)));
        assert!(fence.has_ended());
    }

    #[tokio::test]
    async fn an_extension_moves_the_deadline_on_but_never_back() {
        let now = clock::since_boot();
        let fence = Fence::until(now + Duration::from_millis(50));
        assert!(fence.extend(now + Duration::from_secs(60)));
        assert!(fence.extend(now + Duration::from_secs(30)));
        assert_eq!(fence.deadline().as_secs(), (now + Duration::from_secs(60)).as_secs());
        let woken = tokio::time::timeout(Duration::from_millis(150), fence.ended().cancelled_owned()).await;
        assert!(woken.is_err(), "the first deadline no longer counts");
        fence.revoke();
        assert!(fence.has_ended());
    }
}
