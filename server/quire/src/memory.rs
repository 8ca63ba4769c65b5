//! The memory of this process and of the machine, from the operating system.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use quire_rpc::server::Memory;
use rustix::process::{Resource, getrlimit};
use tokio::sync::watch;

/// Assumed if the system gives no figure.
const UNKNOWN_BYTES: usize = 4 << 30;

/// Mount point of control groups.
const GROUPS: &str = "/sys/fs/cgroup";

/// Interval of measurements. Connection buffers are counted at once.
const INTERVAL: Duration = Duration::from_millis(250);

/// Measurements in a row that find the account full until the server is unhealthy: connections release their memory
/// sooner.
const FULL_MEASUREMENTS: u32 = 4;

/// Default limit: three quarters of the memory of the machine or of the process's control group; half of the address
/// space (`ulimit -v`) if that is less, because threads reserve parts of it that they never use.
pub(crate) fn usual() -> usize {
    let machine = kilobytes("/proc/meminfo", "MemTotal:");
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let group = group_bytes(&groups, |path| fs::read_to_string(path).ok());
    let bytes = machine.into_iter().chain(group).min().unwrap_or(UNKNOWN_BYTES) / 4 * 3;
    let space = getrlimit(Resource::As).current.and_then(|bytes| usize::try_from(bytes).ok());
    space.map_or(bytes, |space| bytes.min(space / 2))
}

/// Least limit of the groups in a `/proc/self/cgroup` and of their ancestors. A container may see its own group as the
/// root, or the whole path from a root that it does not have: missing groups count as unlimited.
fn group_bytes(groups: &str, read: impl Fn(&Path) -> Option<String>) -> Option<usize> {
    let limits = |line: &str| {
        let mut fields = line.splitn(3, ':');
        let (_, controllers, group) = (fields.next()?, fields.next()?, fields.next()?);
        let (root, file) = match controllers {
            "" => (PathBuf::from(GROUPS), "memory.max"),
            _ if controllers.split(',').any(|one| one == "memory") => {
                (Path::new(GROUPS).join("memory"), "memory.limit_in_bytes")
            }
            _ => return None,
        };
        let group = Path::new(group.trim_start_matches('/'));
        let limit = |group: &Path| read(&root.join(group).join(file))?.trim().parse().ok();
        group.ancestors().filter_map(limit).min()
    };
    groups.lines().filter_map(limits).min()
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

/// Updates the account at each interval with the process's memory; `is_short` is true while the account stays full.
pub(crate) async fn watch(account: Memory, is_short: watch::Sender<bool>) {
    let mut ticks = tokio::time::interval(INTERVAL);
    let mut full = 0;
    loop {
        ticks.tick().await;
        if let Some(resident) = resident() {
            account.set_measured(resident);
        }
        full = if account.is_exhausted() { FULL_MEASUREMENTS.min(full + 1) } else { 0 };
        let was_short = is_short.send_replace(full == FULL_MEASUREMENTS);
        let (bytes, limit) = (account.total(), account.bytes_max());
        match (was_short, full) {
            (false, FULL_MEASUREMENTS) => tracing::warn!(bytes, limit, "{SHORT}"),
            (true, 0) => tracing::info!(bytes, limit, "memory is below limits.memory_bytes again: work is taken"),
            _ => {}
        }
    }
}

/// Text for health and the log.
pub(crate) const SHORT: &str = "the process has reached limits.memory_bytes: new work is refused, except what frees \
                                memory; delete keys, or restart with a higher limit";

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(groups: &str, files: &[(&str, &str)], bytes: Option<usize>) {
        let read =
            |path: &Path| files.iter().find(|(name, _)| path == Path::new(name)).map(|(_, text)| (*text).to_owned());
        assert_eq!(group_bytes(groups, read), bytes, "{groups} {files:?}");
    }

    #[test]
    fn the_least_limit_of_the_groups_and_of_those_above_holds() {
        let slice = ("/sys/fs/cgroup/system.slice/memory.max", "4000\n");
        let unit = "/sys/fs/cgroup/system.slice/quire.service/memory.max";
        let groups = "0::/system.slice/quire.service\n";
        check(groups, &[slice, (unit, "1000\n")], Some(1000));
        check(groups, &[slice, (unit, "9000\n")], Some(4000));
        check(groups, &[slice, (unit, "max\n")], Some(4000));
        check(groups, &[("/sys/fs/cgroup/memory.max", "3000\n")], Some(3000));
        let first = "4:cpu,cpuacct:/a\n3:memory:/docker/5f\n0::/\n";
        check(first, &[("/sys/fs/cgroup/memory/docker/5f/memory.limit_in_bytes", "2000\n")], Some(2000));
        check(first, &[("/sys/fs/cgroup/memory/memory.limit_in_bytes", "5000\n")], Some(5000));
        check("", &[slice], None);
    }
}
