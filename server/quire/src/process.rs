//! The resources of this process: its metrics, named as in Prometheus' client libraries, its memory, and its file
//! descriptors. The process raises their limit to the maximum, and connections leave enough for files.

use std::{
    fs,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use hosting::{Connections, Wanted};
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::{counter::ConstCounter, gauge::ConstGauge},
    registry::Unit,
};
use quire_rpc::server::Memory;
use rustix::{
    fs::statvfs,
    process::{Resource, Rlimit, getrlimit, setrlimit},
    time::{ClockId, clock_gettime},
};
use tokio::sync::watch;

/// This process. Values that the system does not provide are left out.
#[derive(Debug)]
pub(crate) struct Process {
    start_seconds: f64,
}

impl Process {
    /// Records now as the start time.
    pub(crate) fn started_now() -> Self {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        Self { start_seconds: since.map_or(0.0, |since| since.as_secs_f64()) }
    }
}

/// User and system time of all threads, including ended ones.
#[expect(clippy::cast_precision_loss, reason = "2^53 s are 285 million years of CPU time")]
fn cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Bytes of a disk. Those that it keeps for its administrator are neither used nor free.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Disk {
    pub(crate) all: u64,
    pub(crate) used: u64,
    /// Bytes that this process may still use.
    pub(crate) free: u64,
}

/// The disk that a folder is on.
pub(crate) fn disk(folder: &Path) -> Option<Disk> {
    let disk = statvfs(folder).ok()?;
    let bytes = |blocks: u64| blocks.checked_mul(disk.f_frsize);
    let used = disk.f_blocks.checked_sub(disk.f_bfree)?;
    Some(Disk { all: bytes(disk.f_blocks)?, used: bytes(used)?, free: bytes(disk.f_bavail)? })
}

fn open_files() -> Option<i64> {
    // Newer kernels give the number as the folder's size; counting takes milliseconds when there are thousands.
    let size = fs::metadata("/proc/self/fd").ok()?.len();
    if size > 0 {
        return i64::try_from(size).ok();
    }
    // The folder itself is open while it is read.
    i64::try_from(fs::read_dir("/proc/self/fd").ok()?.count().saturating_sub(1)).ok()
}

impl Collector for Process {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let mut show = |name: &str, help: &str, unit: Option<&Unit>, metric: &dyn EncodeMetric| {
            metric.encode(encoder.encode_descriptor(name, help, unit, metric.metric_type())?)
        };
        let cpu = ConstCounter::new(cpu_seconds());
        show("process_cpu", "User and system CPU time", Some(&Unit::Seconds), &cpu)?;
        let start = ConstGauge::new(self.start_seconds);
        show("process_start_time", "When the process started, since 1970", Some(&Unit::Seconds), &start)?;
        if let Some(bytes) = resident().and_then(|bytes| i64::try_from(bytes).ok()) {
            show("process_resident_memory", "Memory in RAM", Some(&Unit::Bytes), &ConstGauge::new(bytes))?;
        }
        if let Some(limit) = getrlimit(Resource::Nofile).current.and_then(|limit| i64::try_from(limit).ok()) {
            show("process_max_fds", "File descriptors that the process may open", None, &ConstGauge::new(limit))?;
        }
        if let Some(files) = open_files() {
            show("process_open_fds", "Open file descriptors", None, &ConstGauge::new(files))?;
        }
        Ok(())
    }
}

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
pub(crate) fn usual_memory() -> usize {
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
fn resident() -> Option<usize> {
    kilobytes("/proc/self/status", "VmRSS:")
}

/// Bytes of a kilobyte line of a kernel file.
fn kilobytes(path: &str, name: &str) -> Option<usize> {
    let text = fs::read_to_string(path).ok()?;
    let value = text.lines().find_map(|line| line.strip_prefix(name))?;
    value.trim().strip_suffix("kB")?.trim().parse::<usize>().ok()?.checked_mul(1024)
}

/// Measures the process's memory at once, then at each interval while the future runs; `is_short` is true while the
/// account stays full.
pub(crate) fn watch_memory(account: Memory, is_short: watch::Sender<bool>) -> impl Future<Output = ()> + Send {
    measure(&account);
    watch(account, is_short)
}

async fn watch(account: Memory, is_short: watch::Sender<bool>) {
    let mut ticks = tokio::time::interval(INTERVAL);
    let mut full = 0;
    loop {
        ticks.tick().await;
        measure(&account);
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

fn measure(account: &Memory) {
    if let Some(resident) = resident() {
        account.set_measured(resident);
    }
}

/// Text for health and the log.
pub(crate) const SHORT: &str = "the process has reached limits.memory_bytes: new work is refused, except what frees \
                                memory; delete keys, or restart with a higher limit";

/// Reserved for databases, journals, threads and excess connections; at most half of all.
const RESERVE: u64 = 512;

/// Excess connections of a port that may be refused at the same time; part of [`RESERVE`].
const REFUSALS: usize = 64;

/// Descriptor limits of this process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Descriptors {
    most: u64,
    /// The soft limit that the process was started with.
    soft: u64,
}

impl Descriptors {
    /// Raises the soft limit to the hard one.
    pub(crate) fn raised() -> Self {
        let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
        let soft = current.unwrap_or(u64::MAX);
        let raised = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).is_ok();
        Self { most: if raised { maximum.unwrap_or(u64::MAX) } else { soft }, soft }
    }

    fn reserve(self) -> u64 {
        RESERVE.min(self.most / 2)
    }

    /// Excess connections of a port that may be refused at the same time.
    pub(crate) fn refusals(self) -> usize {
        REFUSALS.min(usize::try_from(self.most / 32).unwrap_or(REFUSALS)).max(1)
    }

    /// Distributes the descriptors to the connection limits.
    pub(crate) fn share(self, wanted: Wanted) -> Connections {
        Connections::share(wanted, usize::try_from(self.most - self.reserve()).unwrap_or(usize::MAX))
    }

    /// Logs the limits.
    pub(crate) fn log(self) {
        tracing::info!(limit = self.most, soft_limit_at_start = self.soft, reserve = self.reserve(), "open files");
    }

    /// Logs a warning for each setting in `set` that is granted fewer connections than its value.
    pub(crate) fn warn(self, set: &Wanted, connections: &Connections) {
        for (setting, wanted) in set {
            let granted = connections.granted(setting, *wanted);
            if granted < *wanted {
                tracing::warn!(
                    "{setting} is {wanted}, but the hard limit of open files (RLIMIT_NOFILE) is {}: {granted} \
                     connections are accepted; raise that limit (LimitNOFILE, `ulimit -Hn`) or lower the setting",
                    self.most
                );
            }
        }
    }
}

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

    #[test]
    fn memory_is_measured_before_the_first_interval() {
        let account = Memory::new(1 << 30, 1 << 40);
        let (is_short, _) = watch::channel(false);
        let never_polled = watch_memory(account.clone(), is_short);
        assert!(account.total() > 1 << 20);
        drop(never_polled);
    }
}
