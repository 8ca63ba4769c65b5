//! Metrics read on request of the page, and the shared counter of refusals.

use std::{fmt, time::Duration};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::{
        MetricType, counter::ConstCounter, counter::Counter, family::Family, gauge::ConstGauge, histogram::Histogram,
    },
    registry::Registry,
};

/// Requests refused by a limit, counted by limit; clones share the counts.
#[derive(Clone, Debug, Default)]
pub struct Refusals(Family<[(&'static str, &'static str); 1], Counter>);

impl Refusals {
    /// Registers the counts.
    pub fn register(registry: &mut Registry) -> Self {
        let refusals = Self::default();
        registry.register("refused", "Requests refused because a limit was reached", refusals.0.clone());
        refusals
    }

    /// Adds these limits with a count of 0.
    pub fn show(&self, limits: impl IntoIterator<Item = &'static str>) {
        for limit in limits {
            drop(self.0.get_or_create(&[("limit", limit)]));
        }
    }

    /// Counts a refusal. `limit` is the setting's name.
    pub fn count(&self, limit: &'static str) {
        self.0.get_or_create(&[("limit", limit)]).inc();
    }
}

/// Histogram of times around commits: from 50 µs, a fast SSD's fsync, to 3.3 s, a failing disk.
pub fn commit_times() -> Histogram {
    Histogram::new((0..=16).map(|power| 50e-6 * f64::from(1 << power)))
}

/// Histogram of batches' sizes: 1 to 1024, which is the default maximum.
pub fn batch_sizes() -> Histogram {
    Histogram::new((0..=10).map(|power| f64::from(1 << power)))
}

/// Writer of the metrics page.
pub struct Page<'a>(DescriptorEncoder<'a>);

impl Page<'_> {
    /// Writes a gauge, capped at `i64::MAX`.
    pub fn gauge(&mut self, name: &str, help: &str, level: impl TryInto<i64>) -> fmt::Result {
        let gauge = ConstGauge::new(level.try_into().unwrap_or(i64::MAX));
        gauge.encode(self.0.encode_descriptor(name, help, None, gauge.metric_type())?)
    }

    /// Writes a gauge of seconds.
    pub fn seconds(&mut self, name: &str, help: &str, time: Duration) -> fmt::Result {
        let gauge = ConstGauge::new(time.as_secs_f64());
        gauge.encode(self.0.encode_descriptor(name, help, None, gauge.metric_type())?)
    }

    /// Writes a counter.
    pub fn counter(&mut self, name: &str, help: &str, count: u64) -> fmt::Result {
        let counter = ConstCounter::new(count);
        counter.encode(self.0.encode_descriptor(name, help, None, counter.metric_type())?)
    }

    /// Writes counters, one for each value of a label.
    pub fn counters(
        &mut self,
        name: &str,
        help: &str,
        label: &str,
        counts: impl IntoIterator<Item = (&'static str, u64)>,
    ) -> fmt::Result {
        let mut family = self.0.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (value, count) in counts {
            ConstCounter::new(count).encode(family.encode_family(&[(label, value)])?)?;
        }
        Ok(())
    }
}

struct Collect<F>(F);

impl<F> fmt::Debug for Collect<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Collect")
    }
}

impl<F: Fn(&mut Page<'_>) -> fmt::Result + Send + Sync + 'static> Collector for Collect<F> {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        self.0(&mut Page(encoder))
    }
}

/// Calls `write` at each request of the page.
pub fn collect(registry: &mut Registry, write: impl Fn(&mut Page<'_>) -> fmt::Result + Send + Sync + 'static) {
    registry.register_collector(Box::new(Collect(write)));
}
