//! Metrics that are read when the page is asked for, and the counter of refusals that all services share. Must not
//! know any service.

use std::{fmt, time::Duration};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::{MetricType, counter::ConstCounter, counter::Counter, family::Family, gauge::ConstGauge},
    registry::Registry,
};

/// Requests that were refused because a limit was reached, by limit; clones count together.
#[derive(Clone, Debug, Default)]
pub struct Refusals(Family<[(&'static str, &'static str); 1], Counter>);

impl Refusals {
    /// Shows the counts in `registry`.
    pub fn register(registry: &mut Registry) -> Self {
        let refusals = Self::default();
        registry.register("refused", "Requests refused because a limit was reached", refusals.0.clone());
        refusals
    }

    /// Shows these limits with a count of 0.
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

/// The page of metrics while it is written.
pub struct Page<'a>(DescriptorEncoder<'a>);

impl Page<'_> {
    /// A number that goes up and down. A number above `i64::MAX` is shown as that.
    pub fn gauge(&mut self, name: &str, help: &str, level: impl TryInto<i64>) -> fmt::Result {
        let gauge = ConstGauge::new(level.try_into().unwrap_or(i64::MAX));
        gauge.encode(self.0.encode_descriptor(name, help, None, gauge.metric_type())?)
    }

    /// A time that rises and falls.
    pub fn seconds(&mut self, name: &str, help: &str, time: Duration) -> fmt::Result {
        let gauge = ConstGauge::new(time.as_secs_f64());
        gauge.encode(self.0.encode_descriptor(name, help, None, gauge.metric_type())?)
    }

    /// A number that only grows.
    pub fn counter(&mut self, name: &str, help: &str, count: u64) -> fmt::Result {
        let counter = ConstCounter::new(count);
        counter.encode(self.0.encode_descriptor(name, help, None, counter.metric_type())?)
    }

    /// Numbers that only grow, one for each value of a label.
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

/// Asks `write` for metrics whenever the page is asked for.
pub fn collect(registry: &mut Registry, write: impl Fn(&mut Page<'_>) -> fmt::Result + Send + Sync + 'static) {
    registry.register_collector(Box::new(Collect(write)));
}
