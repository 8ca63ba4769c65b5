//! The memory of this process and of the machine, from the operating system.

use std::{fs, time::Duration};

use quire_rpc::server::Memory;

/// Assumed if the system gives no figure.
const UNKNOWN_BYTES: usize = 4 << 30;

/// Interval of measurements. Connection buffers are counted at once.
const INTERVAL: Duration = Duration::from_millis(250);

/// Three quarters of the memory of the machine, or of the process's control group.
pub(crate) fn usual() -> usize {
    let number = |path: &str| fs::read_to_string(path).ok()?.trim().parse::<usize>().ok();
    let machine = kilobytes("/proc/meminfo", "MemTotal:");
    let group = number("/sys/fs/cgroup/memory.max").or_else(|| number("/sys/fs/cgroup/memory/memory.limit_in_bytes"));
    let bytes = machine.into_iter().chain(group).min().unwrap_or(UNKNOWN_BYTES);
    bytes / 4 * 3
}

/// Resident memory of the process, in bytes.
pub(crate) fn resident() -> Option<usize> {
    kilobytes("/proc/self/status", "VmRSS:")
}

/// Bytes of a kilobyte line of a kernel file.
fn kilobytes(path: &str, name: &str) -> Option<usize> {
    let text = fs::read_to_string(path).ok()?;
    let value = text.lines().find_map(|line| line.strip_prefix(name))?;
    value.trim().strip_suffix("kB")?.trim().parse::<usize>().ok()?.checked_mul(1024)
}

/// Updates the account with the process's memory at each interval.
pub(crate) async fn watch(account: Memory) {
    let mut ticks = tokio::time::interval(INTERVAL);
    loop {
        ticks.tick().await;
        if let Some(resident) = resident() {
            account.set_measured(resident);
        }
    }
}
