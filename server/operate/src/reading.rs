//! The numbers of one page `/metrics`.

use std::{collections::BTreeMap, sync::Arc};

use crate::figures::{Level, Times};

/// A method's calls since the server's start.
#[derive(Clone, Debug, Default)]
pub(crate) struct MethodCounts {
    pub(crate) failed: u64,
    pub(crate) times: Histogram,
}

/// Everything on the page that figures are made of.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reading {
    pub(crate) started_seconds: f64,
    pub(crate) refused: BTreeMap<Arc<str>, u64>,
    pub(crate) outcomes: BTreeMap<Arc<str>, u64>,
    /// Calls that did not end with `Ok`, by status.
    pub(crate) failed: BTreeMap<Arc<str>, u64>,
    pub(crate) methods: BTreeMap<Arc<str>, MethodCounts>,
    pub(crate) acknowledged: u64,
    pub(crate) entries_committed: u64,
    pub(crate) commits: Histogram,
    pub(crate) calls_in_flight: u64,
    pub(crate) memory: Option<Level>,
    pub(crate) disk: Option<Level>,
    pub(crate) connections: Option<Level>,
    pub(crate) descriptors: Option<Level>,
    pub(crate) queue: Option<Level>,
    pub(crate) certificate_expires_seconds: Option<i64>,
    pub(crate) backup_age_seconds: Option<f64>,
}

impl Reading {
    /// Reads a page; lines of other metrics are skipped. `names` keeps one copy of each label across pages.
    pub(crate) fn of(page: &str, names: &mut Names) -> Self {
        let mut reading = Self::default();
        let mut levels = BTreeMap::new();
        for line in page.lines().filter(|line| !line.starts_with('#')) {
            let Some((series, value)) = line.rsplit_once(' ') else { continue };
            let Ok(value) = value.parse::<f64>() else { continue };
            let (name, labels) = series.split_once('{').unwrap_or((series, ""));
            if labels.is_empty() {
                reading.take_single(name, value);
                levels.insert(name, value);
            } else {
                reading.take_labelled(name, labels.trim_end_matches('}'), value, names);
            }
        }
        let of = |used: &str, limit: &str| {
            Some(Level { used: whole(*levels.get(used)?), limit: whole(*levels.get(limit)?) })
        };
        reading.memory = of("quire_memory_bytes", "quire_memory_bytes_max");
        reading.connections = of("quire_connections", "quire_connections_max");
        reading.descriptors = of("process_open_fds", "process_max_fds");
        reading.queue = of("quire_purchases_queued", "quire_purchases_queued_max");
        reading.disk = of("quire_disk_used_bytes", "quire_disk_bytes");
        reading
    }

    fn take_single(&mut self, name: &str, value: f64) {
        match name {
            "process_start_time_seconds" => self.started_seconds = value,
            "quire_purchases_acknowledged_total" => self.acknowledged = whole(value),
            "quire_ledger_batch_entries_sum" => self.entries_committed = whole(value),
            "quire_ledger_commit_seconds_sum" => self.commits.sum = value,
            "quire_calls_in_flight" => self.calls_in_flight = whole(value),
            "quire_tls_certificate_expires_seconds" => self.certificate_expires_seconds = Some(signed(value)),
            "quire_backup_age_seconds" => self.backup_age_seconds = Some(value),
            _ => {}
        }
    }

    fn take_labelled(&mut self, name: &str, labels: &str, value: f64, names: &mut Names) {
        let label = |wanted: &str| {
            labels.split(',').find_map(|label| label.strip_prefix(wanted)?.strip_prefix("=\"")?.strip_suffix('"'))
        };
        match name {
            "quire_refused_total" => add(&mut self.refused, label("limit"), value, names),
            "quire_purchases_total" => add(&mut self.outcomes, label("outcome"), value, names),
            "quire_grpc_calls_total" => {
                let code = label("code").filter(|code| *code != "Ok");
                if let Some((method, _)) = label("method").zip(code) {
                    self.methods.entry(names.shared(method)).or_default().failed += whole(value);
                }
                add(&mut self.failed, code, value, names);
            }
            "quire_grpc_call_duration_seconds_bucket" => {
                if let Some((method, bound)) = label("method").zip(label("le")) {
                    self.methods.entry(names.shared(method)).or_default().times.push(bound, value);
                }
            }
            "quire_ledger_commit_seconds_bucket" => {
                if let Some(bound) = label("le") {
                    self.commits.push(bound, value);
                }
            }
            _ => {}
        }
    }
}

fn add(counts: &mut BTreeMap<Arc<str>, u64>, label: Option<&str>, value: f64, names: &mut Names) {
    if let Some(label) = label {
        *counts.entry(names.shared(label)).or_default() += whole(value);
    }
}

/// Names of methods and reasons, each once. They are the server's own, so there are few.
#[derive(Debug, Default)]
pub(crate) struct Names(BTreeMap<Box<str>, Arc<str>>);

impl Names {
    fn shared(&mut self, name: &str) -> Arc<str> {
        if let Some(known) = self.0.get(name) {
            return Arc::clone(known);
        }
        let shared: Arc<str> = name.into();
        self.0.insert(name.into(), Arc::clone(&shared));
        shared
    }
}

/// A cumulative histogram with its upper bounds in seconds.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Histogram {
    buckets: Vec<(f64, u64)>,
    pub(crate) sum: f64,
}

impl Histogram {
    fn push(&mut self, bound: &str, count: f64) {
        let bound = if bound == "+Inf" { f64::INFINITY } else { bound.parse().unwrap_or(f64::INFINITY) };
        self.buckets.push((bound, whole(count)));
    }

    /// Number of values.
    pub(crate) fn count(&self) -> u64 {
        self.buckets.last().map_or(0, |(_, count)| *count)
    }

    /// The values that came after `earlier`.
    pub(crate) fn since(&self, earlier: Option<&Self>) -> Self {
        let Some(earlier) = earlier.filter(|earlier| earlier.buckets.len() == self.buckets.len()) else {
            return self.clone();
        };
        let pairs = self.buckets.iter().zip(&earlier.buckets);
        let buckets = pairs.map(|((bound, now), (_, before))| (*bound, now.saturating_sub(*before))).collect();
        Self { buckets, sum: self.sum - earlier.sum }
    }

    /// Adds the values of another histogram with the same bounds.
    pub(crate) fn add(&mut self, other: &Self) {
        if self.buckets.is_empty() {
            self.clone_from(other);
            return;
        }
        for ((_, count), (_, more)) in self.buckets.iter_mut().zip(&other.buckets) {
            *count += more;
        }
        self.sum += other.sum;
    }

    /// Percentiles; `None` without values.
    pub(crate) fn times(&self) -> Option<Times> {
        let [p50, p99, p999] = [0.5, 0.99, 0.999].map(|part| self.quantile(part));
        let bound = self.buckets.iter().rev().map(|(bound, _)| *bound).find(|bound| bound.is_finite());
        Some(Times { p50: p50?, p99: p99?, p999: p999?, bound: bound.unwrap_or_default() })
    }

    /// The value below which `part` of all values are, interpolated linearly within its bucket, as Prometheus'
    /// `histogram_quantile` does; the greatest finite bound if it is beyond all of them.
    #[expect(clippy::cast_precision_loss, reason = "as Prometheus, which counts in f64")]
    fn quantile(&self, part: f64) -> Option<f64> {
        let rank = part * self.count() as f64;
        if rank <= 0.0 {
            return None;
        }
        let place = self.buckets.iter().position(|(_, count)| *count as f64 >= rank)?;
        let (above, up_to) = self.buckets[place];
        let (below, under) = place.checked_sub(1).map_or((0.0, 0), |before| self.buckets[before]);
        if above.is_infinite() {
            return Some(below);
        }
        let inside = (up_to - under) as f64;
        Some(below + (above - below) * (rank - under as f64) / inside)
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count, and `as` saturates")]
fn whole(value: f64) -> u64 {
    value as u64
}

#[expect(clippy::cast_possible_truncation, reason = "`as` saturates")]
fn signed(value: f64) -> i64 {
    value as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn histogram(buckets: &[(&str, f64)]) -> Histogram {
        let mut histogram = Histogram::default();
        for (bound, count) in buckets {
            histogram.push(bound, *count);
        }
        histogram
    }

    #[test]
    fn a_percentile_is_interpolated_within_its_bucket() {
        let values = histogram(&[("0.1", 50.0), ("0.2", 90.0), ("0.4", 100.0), ("+Inf", 100.0)]);
        let times = values.times().expect("values");
        assert!((times.p50 - 0.1).abs() < 1e-9, "{times:?}");
        assert!((times.p99 - 0.38).abs() < 1e-9, "{times:?}");
        let beyond = histogram(&[("0.1", 1.0), ("+Inf", 100.0)]);
        assert_eq!(beyond.times(), Some(Times { p50: 0.1, p99: 0.1, p999: 0.1, bound: 0.1 }), "the greatest bound");
        assert!(beyond.times().is_some_and(|times| times.is_bound(times.p99)) && !times.is_bound(times.p99));
        assert_eq!(histogram(&[("0.1", 0.0), ("+Inf", 0.0)]).times(), None);
    }

    #[test]
    fn only_values_since_the_earlier_reading_count() {
        let (before, now) = (histogram(&[("0.1", 50.0), ("+Inf", 50.0)]), histogram(&[("0.1", 50.0), ("+Inf", 60.0)]));
        let since = now.since(Some(&before));
        assert_eq!((since.count(), since.buckets[0].1), (10, 0));
        assert_eq!(now.since(None), now, "a histogram that was not there before");
    }

    #[test]
    fn a_page_is_read_by_name_and_label() {
        let page = "# TYPE quire_connections gauge\n\
            process_start_time_seconds 1700000000.5\n\
            process_open_fds 24\nprocess_max_fds 20000\n\
            quire_refused_total{limit=\"limits.calls_in_flight\"} 3\n\
            quire_purchases_total{outcome=\"bought\"} 7\n\
            quire_purchases_acknowledged_total 6\n\
            quire_grpc_calls_total{method=\"/a.B/C\",code=\"Ok\"} 5\n\
            quire_grpc_calls_total{method=\"/a.B/C\",code=\"Unavailable\"} 2\n\
            quire_grpc_call_duration_seconds_bucket{le=\"0.1\",method=\"/a.B/C\"} 6\n\
            quire_grpc_call_duration_seconds_bucket{le=\"+Inf\",method=\"/a.B/C\"} 7\n\
            quire_disk_bytes 100\nquire_disk_used_bytes 60\nquire_disk_free_bytes 35\n\
            quire_tls_certificate_expires_seconds -5\n# EOF\n";
        let reading = Reading::of(page, &mut Names::default());
        assert_eq!(reading.refused["limits.calls_in_flight"], 3);
        assert_eq!(reading.outcomes["bought"], 7);
        assert_eq!(reading.acknowledged, 6);
        assert_eq!(
            reading.failed.iter().map(|(code, count)| (&**code, *count)).collect::<Vec<_>>(),
            [("Unavailable", 2)]
        );
        let method = &reading.methods["/a.B/C"];
        assert_eq!((method.failed, method.times.count()), (2, 7));
        assert_eq!(reading.descriptors, Some(Level { used: 24, limit: 20_000 }));
        assert_eq!(reading.disk, Some(Level { used: 60, limit: 100 }));
        assert_eq!((reading.memory, reading.certificate_expires_seconds), (None, Some(-5)));
    }
}
