//! Metrics of this process from the operating system, named as in Prometheus' client libraries.

use std::{fs, time::SystemTime};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::{counter::ConstCounter, gauge::ConstGauge},
    registry::Unit,
};
use rustix::{
    process::{Resource, getrlimit},
    time::{ClockId, clock_gettime},
};

use crate::memory;

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

fn open_files() -> Option<i64> {
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
        if let Some(bytes) = memory::resident().and_then(|bytes| i64::try_from(bytes).ok()) {
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
