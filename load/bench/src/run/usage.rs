//! Kernel statistics of a thread and of the machine: time on a core, waiting for one, and stolen.

use std::time::Duration;

/// Times of a thread so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Usage {
    pub(super) running: Duration,
    /// Ready to run, while others had the core.
    pub(super) waiting: Duration,
}

impl Usage {
    /// Of the calling thread; zero if the kernel does not count them.
    pub(super) fn of_this_thread() -> Self {
        // Time on a core, time waiting, number of turns; in nanoseconds (the kernel's scheduler statistics).
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

/// Times of the machine and of some of its cores so far, in kernel ticks, and of this process.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct MachineTimes {
    machine: Times,
    /// Of the cores that the workers may use.
    own_cores: Times,
    process: Duration,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Times {
    all: u64,
    /// In processes, in user and kernel mode; without interrupts.
    processes: u64,
    stolen: u64,
}

/// Shares of the machine's time between two readings.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Shares {
    /// Taken by other virtual machines, of all cores.
    pub(super) stolen: f64,
    /// Taken by other processes, of the cores that the workers may use.
    pub(super) others: f64,
}

impl MachineTimes {
    /// Of the machine, and of these cores; of all cores if none are named.
    pub(super) fn now(cores: Option<&[usize]>) -> Self {
        let text = std::fs::read_to_string("/proc/stat").unwrap_or_default();
        let cpu = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
        let process = Duration::new(cpu.tv_sec.unsigned_abs(), u32::try_from(cpu.tv_nsec).unwrap_or(0));
        Self::of(&text, cores, process)
    }

    fn of(text: &str, cores: Option<&[usize]>, process: Duration) -> Self {
        let line = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
            Times::parse(line.unwrap_or_default())
        };
        let machine = line("cpu");
        let own_cores = cores.map_or(machine, |cores| {
            cores
                .iter()
                .map(|core| line(&format!("cpu{core}")))
                .fold(Times::default(), |sum, one| sum.with(one, u64::saturating_add))
        });
        Self { machine, own_cores, process }
    }

    /// Shares of the time since `earlier`.
    #[expect(clippy::cast_precision_loss, reason = "ticks of a run are far below 2^53")]
    pub(super) fn since(self, earlier: Self) -> Shares {
        let share = |part: f64, all: u64| if all == 0 { 0.0 } else { (part / all as f64).clamp(0.0, 1.0) };
        let [machine, cores] = [(self.machine, earlier.machine), (self.own_cores, earlier.own_cores)]
            .map(|(now, earlier)| now.with(earlier, u64::saturating_sub));
        let own_seconds = self.process.saturating_sub(earlier.process).as_secs_f64();
        let own_ticks = own_seconds * rustix::param::clock_ticks_per_second() as f64;
        Shares {
            stolen: share(machine.stolen as f64, machine.all),
            others: share(cores.processes as f64 - own_ticks, cores.all),
        }
    }
}

impl Times {
    fn parse(line: &str) -> Self {
        // user nice system idle iowait irq softirq steal …; user includes guest times.
        let times: Vec<u64> = line.split_whitespace().take(8).filter_map(|time| time.parse().ok()).collect();
        let stolen = times.get(7).copied().unwrap_or(0);
        Self { all: times.iter().sum(), processes: times.iter().take(3).sum(), stolen }
    }

    fn with(self, other: Self, join: fn(u64, u64) -> u64) -> Self {
        Self {
            all: join(self.all, other.all),
            processes: join(self.processes, other.processes),
            stolen: join(self.stolen, other.stolen),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stolen_time_is_of_the_machine_and_others_time_of_the_workers_cores() {
        let earlier = "cpu  0 0 0 0 0 0 0 0 0 0\ncpu0 0 0 0 0 0 0 0 0\ncpu1 0 0 0 0 0 0 0 0\nintr 1\n";
        let later = "cpu  110 0 60 20 0 2 4 4 0 0\ncpu0 90 0 5 5 0 0 0 0\ncpu1 20 0 55 15 0 2 4 4\nintr 9\n";
        let shares = |cores: Option<&[usize]>, own_ms| {
            let own = Duration::from_millis(own_ms);
            MachineTimes::of(later, cores, own).since(MachineTimes::of(earlier, cores, Duration::ZERO))
        };
        let tick_ms = 1000 / rustix::param::clock_ticks_per_second();
        assert_eq!(shares(Some(&[1]), 25 * tick_ms), Shares { stolen: 0.02, others: 0.5 });
        assert_eq!(shares(None, 70 * tick_ms), Shares { stolen: 0.02, others: 0.5 });
        assert_eq!(shares(Some(&[1]), 1_000 * tick_ms), Shares { stolen: 0.02, others: 0.0 });
        assert_eq!(shares(Some(&[7]), 0), Shares { stolen: 0.02, others: 0.0 });
    }
}
