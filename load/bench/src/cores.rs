//! The cores available to this process, and threads pinned to them.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Pins the calling thread to a core.
pub fn pin_to(core: usize) -> std::io::Result<()> {
    let mut set = CpuSet::new();
    set.set(core);
    Ok(sched_setaffinity(None, &set)?)
}

/// Runs `start` on one core; its child processes stay there. Without a core it runs anywhere.
pub fn on_core<R>(core: Option<usize>, start: impl FnOnce() -> R) -> R {
    // A process inherits the cores of the thread that starts it. If pinning is not permitted, nothing is pinned.
    let before = core.and_then(|core| {
        let before = sched_getaffinity(None).ok()?;
        pin_to(core).ok()?;
        Some(before)
    });
    let started = start();
    if let Some(before) = before {
        let _ = sched_setaffinity(None, &before);
    }
    started
}

/// Cores available to this process.
pub fn cores() -> Vec<usize> {
    match sched_getaffinity(None) {
        Ok(set) => (0..CpuSet::MAX_CPU).filter(|core| set.is_set(*core)).collect(),
        Err(_) => (0..std::thread::available_parallelism().map_or(1, usize::from)).collect(),
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn what_is_started_on_a_core_stays_there_and_the_caller_does_not() {
        let before = cores();
        let run = || Command::new("grep").args(["Cpus_allowed_list", "/proc/self/status"]).output();
        let shown = on_core(Some(before[0]), run).expect("it runs").stdout;
        assert_eq!(String::from_utf8_lossy(&shown).split_whitespace().last(), Some(&*before[0].to_string()));
        assert_eq!(cores(), before);
    }
}
