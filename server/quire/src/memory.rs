//! The memory of this process and of the machine, from the operating system. Must not know what takes it.

use std::{fs, time::Duration};

use quire_rpc::server::Memory;

/// Where the system has nothing to say.
const UNKNOWN_BYTES: usize = 4 << 30;

/// How often the process is measured. What connections hold is counted at once.
const INTERVAL: Duration = Duration::from_millis(250);

/// Three quarters of what the machine has, or the process's control group may have.
pub(crate) fn usual() -> usize {
    let number = |path: &str| fs::read_to_string(path).ok()?.trim().parse::<usize>().ok();
    let machine = kilobytes("/proc/meminfo", "MemTotal:");
    let group = number("/sys/fs/cgroup/memory.max").or_else(|| number("/sys/fs/cgroup/memory/memory.limit_in_bytes"));
    let bytes = machine.into_iter().chain(group).min().unwrap_or(UNKNOWN_BYTES);
    bytes / 4 * 3
}

/// Memory of the process that is in RAM, in bytes.
pub(crate) fn resident() -> Option<usize> {
    kilobytes("/proc/self/status", "VmRSS:")
}

/// What a line of a file of the kernel says in kilobytes, in bytes.
fn kilobytes(path: &str, name: &str) -> Option<usize> {
    let text = fs::read_to_string(path).ok()?;
    let value = text.lines().find_map(|line| line.strip_prefix(name))?;
    value.trim().strip_suffix("kB")?.trim().parse::<usize>().ok()?.checked_mul(1024)
}

/// Tells the account what the process takes, again and again.
pub(crate) async fn watch(account: Memory) {
    let mut ticks = tokio::time::interval(INTERVAL);
    loop {
        ticks.tick().await;
        if let Some(resident) = resident() {
            account.set_measured(resident);
        }
    }
}
