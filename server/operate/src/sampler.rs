//! Samples from successive readings of `/metrics`. Has no clock and no tasks.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use crate::{
    figures::{Calls, Commits, Figures, Levels, MethodFigures, MethodPoint, Point, Purchases, Reason, ServiceHealth},
    reading::{Histogram, MethodCounts, Names, Reading},
};

/// Period of the figures of "the last minute".
const WINDOW: Duration = Duration::from_mins(1);
/// Readings that are kept for it, one a second and one before them.
const READINGS_MAX: usize = 61;
/// The outcome of a purchase that was bought; it is counted after its commit.
const BOUGHT: &str = "bought";
/// Methods in a sample.
const METHODS_MAX: usize = 32;
/// Methods in a point.
const POINT_METHODS_MAX: usize = 8;

/// Makes samples of readings.
#[derive(Debug, Default)]
pub(crate) struct Sampler {
    names: Names,
    /// Readings of the last minute and their times since the first, oldest first.
    readings: VecDeque<(Duration, Reading)>,
}

/// Time and contents of one reading of the page.
#[derive(Debug)]
pub(crate) struct Moment {
    /// Time since the sampler was started.
    pub(crate) since_start: Duration,
    /// Milliseconds since 1970.
    pub(crate) time_ms: u64,
    pub(crate) services: Vec<ServiceHealth>,
}

impl Sampler {
    /// Adds a page. The first one gives no point, because rates need two.
    pub(crate) fn add(&mut self, page: &str, moment: Moment) -> (Figures, Option<Point>) {
        let reading = Reading::of(page, &mut self.names);
        let now = moment.since_start;
        while self.readings.len() >= READINGS_MAX
            || self.readings.get(1).is_some_and(|(at, _)| now.saturating_sub(*at) >= WINDOW)
        {
            self.readings.pop_front();
        }
        let point = self.readings.back().map(|(at, before)| {
            let seconds = now.saturating_sub(*at).as_secs_f64().max(f64::MIN_POSITIVE);
            point(&reading, before, seconds, moment.time_ms)
        });
        let figures = self.figures(&reading, point.as_ref(), moment);
        self.readings.push_back((now, reading));
        (figures, point)
    }

    fn figures(&self, reading: &Reading, point: Option<&Point>, moment: Moment) -> Figures {
        let oldest = self.readings.front();
        let before = oldest.map_or(reading, |(_, reading)| reading);
        let seconds = oldest.map_or(1.0, |(at, _)| moment.since_start.saturating_sub(*at).as_secs_f64());
        let (methods, total) = methods(reading, before);
        let rate = |pick: fn(&Point) -> f64| point.map_or(0.0, pick);
        #[expect(clippy::cast_precision_loss, reason = "seconds since 1970 and before the year 285,000,000")]
        let uptime = moment.time_ms as f64 / 1000.0 - reading.started_seconds;
        Figures {
            time_ms: moment.time_ms,
            uptime: Duration::try_from_secs_f64(uptime).unwrap_or_default(),
            purchases: Purchases {
                acknowledged: reading.acknowledged,
                durable: reading.outcomes.get(BOUGHT).copied().unwrap_or(0),
                per_second: rate(|point| point.purchases_per_second),
                outcomes: reasons(&reading.outcomes, &BTreeMap::new()),
            },
            calls: Calls {
                total,
                per_second: rate(|point| point.calls_per_second),
                in_flight: reading.calls_in_flight,
            },
            refusals: reasons(&reading.refused, &before.refused),
            errors: reasons(&reading.failed, &before.failed),
            methods,
            commits: commits(reading, before, seconds),
            levels: Levels {
                memory_bytes: reading.memory,
                disk_bytes: reading.disk,
                connections: reading.connections,
                descriptors: reading.descriptors,
                queue: reading.queue,
            },
            certificate_expires_seconds: reading.certificate_expires_seconds,
            backup_age: reading.backup_age_seconds.and_then(|age| Duration::try_from_secs_f64(age).ok()),
            is_healthy: moment.services.iter().all(|service| service.trouble.is_none()),
            services: moment.services,
        }
    }
}

/// The methods that had calls since `before`, and the calls of all methods since the start.
fn methods(reading: &Reading, before: &Reading) -> (Vec<MethodFigures>, u64) {
    let total = reading.methods.values().map(|counts| counts.times.count()).sum();
    let found = changed(reading, before).map(|(path, counts, failed)| MethodFigures {
        path: Arc::clone(path),
        calls: counts.count(),
        failed,
        times: counts.times().unwrap_or_default(),
    });
    let mut found: Vec<_> = found.collect();
    found.sort_by_key(|method| Reverse(method.calls));
    found.truncate(METHODS_MAX);
    (found, total)
}

/// Of each method with calls since `before`: their times, and how many failed.
fn changed<'a>(reading: &'a Reading, before: &'a Reading) -> impl Iterator<Item = (&'a Arc<str>, Histogram, u64)> + 'a {
    reading.methods.iter().filter_map(|(path, MethodCounts { failed, times })| {
        let earlier = before.methods.get(path);
        let since = times.since(earlier.map(|counts| &counts.times));
        let failed = failed.saturating_sub(earlier.map_or(0, |counts| counts.failed));
        (since.count() > 0).then_some((path, since, failed))
    })
}

/// The counts that grew since `before`, most first.
fn reasons(now: &BTreeMap<Arc<str>, u64>, before: &BTreeMap<Arc<str>, u64>) -> Vec<Reason> {
    let grown = now.iter().map(|(name, count)| {
        let earlier = before.get(name).copied().unwrap_or(0);
        Reason { name: Arc::clone(name), count: count.saturating_sub(earlier) }
    });
    let mut grown: Vec<_> = grown.filter(|reason| reason.count > 0).collect();
    grown.sort_by_key(|reason| Reverse(reason.count));
    grown
}

fn grown(now: &BTreeMap<Arc<str>, u64>, before: &BTreeMap<Arc<str>, u64>) -> f64 {
    let sum = |counts: &BTreeMap<Arc<str>, u64>| counts.values().sum::<u64>();
    real(sum(now).saturating_sub(sum(before)))
}

fn commits(reading: &Reading, before: &Reading, seconds: f64) -> Commits {
    let since = reading.commits.since(Some(&before.commits));
    if since.count() == 0 {
        return Commits::default();
    }
    let (count, entries) = (real(since.count()), reading.entries_committed.saturating_sub(before.entries_committed));
    Commits {
        per_second: count / seconds.max(1.0),
        entries: real(entries) / count,
        times: since.times().unwrap_or_default(),
    }
}

/// The point of the time between two readings.
fn point(reading: &Reading, before: &Reading, seconds: f64, time_ms: u64) -> Point {
    let (mut all, mut methods) = (Histogram::default(), Vec::new());
    for (path, times, _) in changed(reading, before) {
        all.add(&times);
        let calls_per_second = real(times.count()) / seconds;
        methods.push(MethodPoint {
            path: Arc::clone(path),
            calls_per_second,
            times: times.times().unwrap_or_default(),
        });
    }
    methods.sort_by(|one, other| other.calls_per_second.total_cmp(&one.calls_per_second));
    methods.truncate(POINT_METHODS_MAX);
    let commits = reading.commits.since(Some(&before.commits));
    let a_commit = |sum: f64| (commits.count() > 0).then(|| sum / real(commits.count()));
    Point {
        time_ms,
        purchases_per_second: grown(&reading.outcomes, &before.outcomes) / seconds,
        calls_per_second: real(all.count()) / seconds,
        refused_per_second: grown(&reading.refused, &before.refused) / seconds,
        failed_per_second: grown(&reading.failed, &before.failed) / seconds,
        times: all.times(),
        commits_per_second: real(commits.count()) / seconds,
        commit_entries: a_commit(real(reading.entries_committed.saturating_sub(before.entries_committed))),
        commit_seconds: a_commit(commits.sum),
        memory_bytes: reading.memory.map_or(0, |level| level.used),
        connections: reading.connections.map_or(0, |level| level.used),
        methods,
    }
}

#[expect(clippy::cast_precision_loss, reason = "rates and averages are shown, not counted on")]
fn real(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use super::*;

    fn moment(second: u64) -> Moment {
        Moment { since_start: Duration::from_secs(second), time_ms: second * 1000, services: Vec::new() }
    }

    /// A page with `fast` calls below 1 ms and `slow` ones below 1 s, of which `failed` failed.
    fn page(fast: u64, slow: u64, failed: u64) -> String {
        let mut page = String::new();
        for (bound, count) in [("0.001", fast), ("1.0", fast + slow), ("+Inf", fast + slow)] {
            let _ = writeln!(
                page,
                "quire_grpc_call_duration_seconds_bucket{{le=\"{bound}\",method=\"/shop.Shop/Buy\"}} {count}"
            );
        }
        let _ = writeln!(page, "quire_grpc_calls_total{{method=\"/shop.Shop/Buy\",code=\"Unavailable\"}} {failed}");
        let _ = writeln!(page, "quire_refused_total{{limit=\"limits.calls_in_flight\"}} {failed}");
        page
    }

    #[test]
    fn rates_are_of_the_last_second_and_reasons_of_the_last_minute() {
        let mut sampler = Sampler::default();
        let (first, point) = sampler.add(&page(10, 0, 5), moment(0));
        assert_eq!((point, first.calls.total, first.calls.per_second), (None, 10, 0.0));
        assert!(first.errors.is_empty(), "what was before the first sample has no time");
        let (second, point) = sampler.add(&page(30, 0, 7), moment(1));
        let point = point.expect("a point");
        assert_eq!((second.calls.per_second, point.calls_per_second, point.failed_per_second), (20.0, 20.0, 2.0));
        let (third, _) = sampler.add(&page(30, 0, 8), moment(2));
        assert_eq!((third.calls.per_second, third.methods[0].calls, third.methods[0].failed), (0.0, 20, 3));
        assert_eq!((&*third.errors[0].name, third.errors[0].count), ("Unavailable", 3));
        assert_eq!((&*third.refusals[0].name, third.refusals[0].count), ("limits.calls_in_flight", 3));
        for second in 3..=70 {
            sampler.add(&page(30, 0, 8), moment(second));
        }
        let (later, _) = sampler.add(&page(30, 0, 8), moment(71));
        assert!(later.errors.is_empty() && later.methods.is_empty(), "a minute later: {later:?}");
        assert_eq!(later.calls.total, 30);
        assert!(sampler.readings.len() <= READINGS_MAX);
    }

    #[test]
    fn times_are_of_the_calls_in_the_period_alone() {
        let mut sampler = Sampler::default();
        sampler.add(&page(1000, 0, 0), moment(0));
        let (_, point) = sampler.add(&page(1000, 10, 0), moment(1));
        let times = point.and_then(|point| point.times).expect("times");
        assert!(times.p50 > 0.1, "only slow calls came in this second: {times:?}");
        let (_, point) = sampler.add(&page(1000, 10, 0), moment(2));
        assert_eq!(point.expect("a point").times, None);
    }

    #[test]
    fn a_server_is_healthy_if_no_service_has_trouble() {
        let service = |trouble: Option<&str>| ServiceHealth {
            name: "kv",
            is_healthy: trouble.is_none(),
            trouble: trouble.map(str::to_owned),
        };
        let mut sampler = Sampler::default();
        let sample = |sampler: &mut Sampler, services| sampler.add("", Moment { services, ..moment(0) }).0.is_healthy;
        assert!(sample(&mut sampler, vec![service(None)]));
        assert!(!sample(&mut sampler, vec![service(None), service(Some("the disk is full"))]));
    }
}
