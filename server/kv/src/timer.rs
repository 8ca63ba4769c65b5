//! Sleep with a precision of some microseconds. The runtime's own timer rounds up to whole milliseconds, which makes 10
//! ms nearly 11 and would hide the cost of simulated work; a kernel timer watched by the runtime does not.
//!
//! Each thread with a sleeper has one timer, armed for the earliest time.

use std::{
    cell::RefCell,
    collections::BTreeMap,
    io,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
    time::{Duration, Instant},
};

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use tokio::{net::unix::pipe::Receiver, task::AbortHandle};

thread_local! {
    static HERE: RefCell<Option<Driven>> = const { RefCell::new(None) };
}

/// Time by which a thread is woken before its sleeper's time: an idle core of a virtual machine takes that long to
/// wake. The driver polls the clock for the rest, while other tasks of the thread run.
const EARLY: Duration = Duration::from_micros(200);

/// A timer and the task that reads it, which ends with its runtime.
struct Driven {
    timer: Arc<Timer>,
    driver: AbortHandle,
}

#[derive(Default)]
struct Sleepers {
    by_time: BTreeMap<(Instant, u64), Waker>,
    number: u64,
}

struct Timer {
    /// The kernel's timer, read as a pipe, which the runtime can watch without `unsafe` in our code.
    file: Receiver,
    sleepers: Mutex<Sleepers>,
}

impl Timer {
    fn lock(&self) -> MutexGuard<'_, Sleepers> {
        self.sleepers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The timer of this thread's runtime, created on first use.
    fn here() -> io::Result<Arc<Self>> {
        HERE.with_borrow_mut(|here| {
            if let Some(driven) = here.as_ref().filter(|driven| !driven.driver.is_finished()) {
                return Ok(Arc::clone(&driven.timer));
            }
            let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
            let file = Receiver::from_owned_fd_unchecked(timerfd_create(TimerfdClockId::Monotonic, flags)?)?;
            let timer = Arc::new(Self { file, sleepers: Mutex::default() });
            let driver = tokio::spawn(drive(Arc::clone(&timer))).abort_handle();
            *here = Some(Driven { timer: Arc::clone(&timer), driver });
            Ok(timer)
        })
    }

    /// Arms the kernel's timer for the earliest sleeper.
    fn arm(&self, sleepers: &Sleepers) {
        let Some(((earliest, _), _)) = sleepers.by_time.first_key_value() else { return };
        // Zero would disarm it, so a past time is set a nanosecond ahead.
        let left =
            earliest.saturating_duration_since(Instant::now()).saturating_sub(EARLY).max(Duration::from_nanos(1));
        let once = Timespec::try_from(left).unwrap_or(Timespec { tv_sec: i64::MAX, tv_nsec: 0 });
        let spec = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value: once };
        if let Err(error) = timerfd_settime(&self.file, TimerfdTimerFlags::empty(), &spec) {
            // Cannot fail with a valid descriptor and time.
            tracing::error!(%error, "a timer could not be set");
        }
    }

    /// Wakes due sleepers; true if the next is so near that an idle core would miss it.
    fn wake_due(&self) -> bool {
        let mut sleepers = self.lock();
        let now = Instant::now();
        while let Some(first) = sleepers.by_time.first_entry() {
            let until = first.key().0;
            if until > now + EARLY {
                break;
            }
            if until > now {
                return true;
            }
            first.remove().wake();
        }
        self.arm(&sleepers);
        false
    }
}

async fn drive(timer: Arc<Timer>) {
    while timer.file.readable().await.is_ok() {
        // Only to make it unreadable again; the count does not matter.
        let _ = timer.file.try_read(&mut [0; 8]);
        while timer.wake_due() {
            tokio::task::yield_now().await;
        }
    }
}

/// The future of [`sleep`].
struct Sleep {
    until: Instant,
    /// The timer and this sleeper's number in it, while it waits.
    place: Option<(Arc<Timer>, u64)>,
}

impl Future for Sleep {
    type Output = io::Result<()>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if Instant::now() >= self.until {
            return Poll::Ready(Ok(()));
        }
        if let Some((timer, number)) = &self.place {
            let mut sleepers = timer.lock();
            sleepers.by_time.insert((self.until, *number), cx.waker().clone());
            timer.arm(&sleepers);
            return Poll::Pending;
        }
        let timer = Timer::here()?;
        let mut sleepers = timer.lock();
        sleepers.number += 1;
        let number = sleepers.number;
        sleepers.by_time.insert((self.until, number), cx.waker().clone());
        if sleepers.by_time.first_key_value().is_some_and(|((_, first), _)| *first == number) {
            timer.arm(&sleepers);
        }
        drop(sleepers);
        self.place = Some((timer, number));
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some((timer, number)) = &self.place {
            timer.lock().by_time.remove(&(self.until, *number));
        }
    }
}

/// Sleeps for `duration`, never shorter and hardly longer. Requires a runtime with I/O and time enabled.
pub async fn sleep(duration: Duration) {
    if duration.is_zero() {
        return;
    }
    let Some(until) = Instant::now().checked_add(duration) else { return std::future::pending().await };
    // Without a free descriptor, falls back to the runtime's timer.
    if (Sleep { until, place: None }).await.is_err() {
        tokio::time::sleep_until(until.into()).await;
    }
}

#[cfg(test)]
mod tests {
    use futures_util::future::join_all;

    use super::*;

    async fn sleepers_wake_after_their_time(most: u64) {
        let waits = (0..most).map(|number| async move {
            let (start, wanted) = (Instant::now(), Duration::from_micros(200 * (number % 50)));
            sleep(wanted).await;
            assert!(start.elapsed() >= wanted);
        });
        join_all(waits).await;
    }

    #[tokio::test]
    async fn no_sleeper_wakes_early_and_all_wake() {
        sleepers_wake_after_their_time(500).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn sleepers_may_move_between_threads() {
        let tasks = (0..8).map(|_| tokio::spawn(sleepers_wake_after_their_time(200)));
        assert!(join_all(tasks).await.iter().all(Result::is_ok));
    }

    #[test]
    fn thread_may_have_one_runtime_after_another() {
        for _ in 0..3 {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(sleepers_wake_after_their_time(20));
        }
    }

    #[tokio::test]
    async fn a_sleeper_that_gives_up_is_removed() {
        let long = tokio::spawn(sleep(Duration::from_hours(1)));
        let timer = Timer::here().unwrap();
        // A sleep of some microseconds may be over before its task gives way to the other.
        while timer.lock().by_time.is_empty() {
            tokio::task::yield_now().await;
        }
        long.abort();
        assert!(long.await.is_err());
        assert_eq!(timer.lock().by_time.len(), 0);
    }
}
