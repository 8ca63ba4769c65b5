//! A timer with microsecond precision: tokio's counts in milliseconds, which would be the send lag.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Instant;

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use tokio::net::unix::pipe::Receiver;

/// A kernel timer that this thread's runtime watches.
///
/// To the runtime it is the reading end of a pipe: a descriptor that becomes readable and is then read.
#[derive(Debug)]
pub(super) struct Timer {
    fd: OwnedFd,
    fired: Receiver,
}

impl Timer {
    pub(super) fn new() -> io::Result<Self> {
        let fd = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)?;
        Ok(Self { fired: Receiver::from_owned_fd_unchecked(fd.try_clone()?)?, fd })
    }

    /// Waits until `at`; returns at once if that is past.
    pub(super) async fn until(&self, at: Instant) -> io::Result<()> {
        loop {
            let left = at.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
            let once = Timespec::try_from(left).unwrap_or(Timespec { tv_sec: i64::MAX, tv_nsec: 0 });
            timerfd_settime(&self.fd, TimerfdTimerFlags::empty(), &Itimerspec { it_interval: zero, it_value: once })?;
            self.fired.readable().await?;
            // The number of expirations does not matter; the read makes the descriptor quiet again.
            let _ = self.fired.try_read(&mut [0_u8; 8]);
        }
    }
}
