//! What the kernel says of a thread and of the machine: time on a core, time in wait for one, time stolen.

use std::time::Duration;

/// A thread's times so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Usage {
    /// On a core.
    pub(super) running: Duration,
    /// Ready to run, while others had the core.
    pub(super) waiting: Duration,
}

impl Usage {
    /// Of the calling thread; zero where the kernel does not tell.
    pub(super) fn of_this_thread() -> Self {
        // Time on a core, time in wait, number of turns; in nanoseconds (the kernel's scheduler statistics).
        let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
        let mut numbers =
            text.split_whitespace().map(|number| number.parse().map_or(Duration::ZERO, Duration::from_nanos));
        Self { running: numbers.next().unwrap_or_default(), waiting: numbers.next().unwrap_or_default() }
    }

    pub(super) fn since(self, earlier: Self) -> Self {
        Self {
            running: self.running.saturating_sub(earlier.running),
            waiting: self.waiting.saturating_sub(earlier.waiting),
        }
    }
}

/// The machine's times so far, in the kernel's ticks.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct MachineTimes {
    all: u64,
    stolen: u64,
}

impl MachineTimes {
    pub(super) fn now() -> Self {
        // user nice system idle iowait irq softirq steal …; guest times are in user's already.
        let text = std::fs::read_to_string("/proc/stat").unwrap_or_default();
        let first = text.lines().next().unwrap_or_default();
        let times: Vec<u64> = first.split_whitespace().skip(1).take(8).filter_map(|time| time.parse().ok()).collect();
        Self { all: times.iter().sum(), stolen: times.get(7).copied().unwrap_or(0) }
    }

    /// The share of the time since that another virtual machine had the core.
    #[expect(clippy::cast_precision_loss, reason = "ticks of a run are far below 2^53")]
    pub(super) fn stolen_since(self, earlier: Self) -> f64 {
        let all = self.all.saturating_sub(earlier.all);
        let stolen = self.stolen.saturating_sub(earlier.stolen);
        if all == 0 { 0.0 } else { stolen as f64 / all as f64 }
    }
}

/// Pins the calling thread to a core.
pub fn pin_to(core: usize) -> std::io::Result<()> {
    let mut set = rustix::thread::CpuSet::new();
    set.set(core);
    Ok(rustix::thread::sched_setaffinity(None, &set)?)
}

/// The cores that this process may use.
pub fn cores() -> Vec<usize> {
    match rustix::thread::sched_getaffinity(None) {
        Ok(set) => (0..rustix::thread::CpuSet::MAX_CPU).filter(|core| set.is_set(*core)).collect(),
        Err(_) => (0..std::thread::available_parallelism().map_or(1, usize::from)).collect(),
    }
}
