//! Figures of a running server, as parts of a page in the operator's form of numbers.

use std::{fmt::Write as _, sync::Arc, time::Duration};

use operate::{Figures, Level, OpenConnection, Point, Times};

use crate::locale::Locale;
use crate::room::parts::{
    CallerRow, CallersPart, Fact, Gauge, HealthyPart, LostPart, MethodRow, MethodsPart, Reason, ServiceChip, Spark,
    SparksPart,
};

/// Time of a point of a line, and points of the hour.
const BUCKET_MS: u64 = 30_000;
const BUCKETS: usize = 120;

/// Height of a line's picture, and the place of 0.
const HEIGHT: f64 = 40.0;
const FLOOR: f64 = 43.0;
/// Width of a bucket there.
const STEP: usize = 3;

/// Connections in the list.
const CALLERS_MAX: usize = 20;
const AGENT_CHARS_MAX: usize = 60;

/// Part of a limit above which a bar warns, and above which it is red.
const LOW: f64 = 0.8;
const OUT: f64 = 0.95;

/// Days to a certificate's end, and hours since a backup, above which nothing is said.
const CERTIFICATE_DAYS_LOW: i64 = 21;
const CERTIFICATE_DAYS_OUT: i64 = 3;
const BACKUP_LOW: Duration = Duration::from_hours(48);

pub(crate) fn lost(figures: &Figures, locale: Locale) -> LostPart {
    let reason = |reason: &operate::Reason, page: &str| Reason {
        name: reason.name.to_string(),
        count: locale.count(reason.count),
        path: format!("{page}#{}", reason.name),
    };
    let purchases = &figures.purchases;
    let missing = purchases.acknowledged.saturating_sub(purchases.durable);
    LostPart {
        lost: if purchases.is_any_lost() { locale.count(missing) } else { String::new() },
        acknowledged: locale.count(purchases.acknowledged),
        durable: locale.count(purchases.durable),
        refusals: figures.refusals.iter().map(|limit| reason(limit, "/admin/settings")).collect(),
        errors: figures.errors.iter().map(|status| reason(status, "/admin/errors")).collect(),
    }
}

pub(crate) fn healthy(figures: &Figures, locale: Locale) -> HealthyPart {
    let mut facts = vec![Fact { name: "Up", text: in_words(figures.uptime), level: "plain" }];
    if let Some(seconds) = figures.certificate_expires_seconds {
        let days = seconds / 86_400;
        let (text, level) = match days {
            _ if seconds < 0 => ("has expired".to_owned(), "out"),
            ..CERTIFICATE_DAYS_OUT => (format!("expires in {days} days"), "out"),
            CERTIFICATE_DAYS_OUT..CERTIFICATE_DAYS_LOW => (format!("expires in {days} days"), "low"),
            _ => (format!("expires in {days} days"), "in"),
        };
        facts.push(Fact { name: "Certificate", text, level });
    }
    facts.push(match figures.backup_age {
        None => Fact { name: "Backup", text: "none yet".to_owned(), level: "low" },
        Some(age) => {
            let level = if age > BACKUP_LOW { "low" } else { "in" };
            Fact { name: "Backup", text: format!("{} old", in_words(age)), level }
        }
    });
    let levels = &figures.levels;
    let bytes = |bytes| locale.bytes(bytes);
    let count = |count: u64| locale.count(count);
    let gauges = [
        ("Memory", levels.memory_bytes, &bytes as &dyn Fn(u64) -> String),
        ("Disk", levels.disk_bytes, &bytes),
        ("Connections", levels.connections, &count),
        ("Open files", levels.descriptors, &count),
        ("Purchases that wait", levels.queue, &count),
    ];
    let services = figures.services.iter().map(|service| ServiceChip {
        name: service.name,
        trouble: service.trouble.clone(),
        is_idle: !service.is_healthy && service.trouble.is_none(),
    });
    HealthyPart {
        is_healthy: figures.is_healthy,
        services: services.collect(),
        facts,
        gauges: gauges.into_iter().filter_map(|(name, level, shown)| Some(gauge(name, level?, shown))).collect(),
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "from 0 to 100")]
fn gauge(name: &'static str, level: Level, shown: &dyn Fn(u64) -> String) -> Gauge {
    let part = level.part();
    Gauge {
        name,
        used: shown(level.used),
        limit: shown(level.limit),
        percent: (part * 100.0).round() as u32,
        level: if part >= OUT {
            "out"
        } else if part >= LOW {
            "low"
        } else {
            "in"
        },
    }
}

pub(crate) fn methods(figures: &Figures, locale: Locale) -> MethodsPart {
    let row = |method: &operate::MethodFigures| {
        let path = method.path.trim_start_matches('/');
        let (service, name) = path.split_once('/').map_or(("", path), |(service, name)| (service, name));
        let Times { p50, p99, p999, .. } = method.times;
        MethodRow {
            service: if service.is_empty() { String::new() } else { format!("{service}/") },
            name: name.to_owned(),
            calls: locale.count(method.calls),
            failed: locale.count(method.failed),
            times: [p50, p99, p999].map(|seconds| percentile(method.times, seconds, locale)),
        }
    };
    MethodsPart { rows: figures.methods.iter().map(row).collect() }
}

/// A percentile; `≥` marks the greatest one that can be told.
fn percentile(times: Times, seconds: f64, locale: Locale) -> String {
    let mark = if times.is_bound(seconds) { "≥ " } else { "" };
    format!("{mark}{}", locale.time(seconds))
}

/// Summary of the points of a bucket.
#[derive(Clone, Copy)]
enum Fold {
    Mean,
    Most,
}

pub(crate) fn sparks(figures: &Figures, points: &[Arc<Point>], locale: Locale) -> SparksPart {
    type Value = fn(&Point) -> Option<f64>;
    let lines: [(&str, &str, Fold, bool, Value); 6] = [
        ("Purchases", "a second", Fold::Mean, false, |point| Some(point.purchases_per_second)),
        ("Calls", "a second", Fold::Mean, false, |point| Some(point.calls_per_second)),
        ("Time of calls, p99", "", Fold::Most, true, |point| point.times.map(|times| times.p99)),
        ("Refused and failed", "a second", Fold::Mean, false, |point| {
            Some(point.refused_per_second + point.failed_per_second)
        }),
        ("Time of a commit", "", Fold::Mean, true, |point| point.commit_seconds),
        ("Log entries in a commit", "", Fold::Mean, false, |point| point.commit_entries),
    ];
    let (newest, times) = (points.last(), points.iter().rev().find_map(|point| point.times).unwrap_or_default());
    let spark = |(name, unit, fold, is_time, value): (&'static str, &'static str, Fold, bool, Value)| {
        let shown = |number: f64| match fold {
            Fold::Most => percentile(times, number, locale),
            Fold::Mean if is_time => locale.time(number),
            Fold::Mean => locale.number(number),
        };
        let buckets = buckets(points, figures.time_ms, fold, value);
        let most = buckets.iter().flatten().fold(0.0, |most: f64, next| most.max(*next));
        let (line, area) = paths(&buckets, most);
        Spark {
            name,
            unit,
            now: newest.and_then(|point| value(point)).map_or_else(|| "–".to_owned(), shown),
            most: shown(most),
            line,
            area,
        }
    };
    SparksPart { sparks: lines.into_iter().map(spark).collect() }
}

/// The values of the hour up to `now_ms`, a bucket each; `None` for a bucket without one.
fn buckets(points: &[Arc<Point>], now_ms: u64, fold: Fold, value: fn(&Point) -> Option<f64>) -> Vec<Option<f64>> {
    let mut sums = vec![(0.0_f64, 0_u32); BUCKETS];
    let last = now_ms / BUCKET_MS;
    for point in points {
        let age = last.saturating_sub(point.time_ms / BUCKET_MS);
        let place = usize::try_from(age).ok().and_then(|age| (BUCKETS - 1).checked_sub(age));
        let (Some(place), Some(number)) = (place, value(point)) else { continue };
        let (sum, count) = &mut sums[place];
        *count += 1;
        *sum = match fold {
            Fold::Mean => *sum + number,
            Fold::Most => sum.max(number),
        };
    }
    let value = |(sum, count): (f64, u32)| match (count, fold) {
        (0, _) => None,
        (_, Fold::Mean) => Some(sum / f64::from(count)),
        (_, Fold::Most) => Some(sum),
    };
    sums.into_iter().map(value).collect()
}

/// A line through the values, and the area below it; a value that is missing interrupts both.
fn paths(values: &[Option<f64>], most: f64) -> (String, String) {
    let (mut line, mut area, mut is_begun) = (String::new(), String::new(), false);
    // Writing to a string cannot fail.
    for (place, value) in values.iter().enumerate() {
        let x = place * STEP;
        if let Some(value) = value {
            let y = if most > 0.0 { FLOOR - value / most * HEIGHT } else { FLOOR };
            if !is_begun {
                let _ = write!(area, "M{x} {FLOOR:.0}");
            }
            // A line of no length is a dot, if no other follows.
            let _ = if is_begun { write!(line, "L{x} {y:.0}") } else { write!(line, "M{x} {y:.0}h0") };
            let _ = write!(area, "L{x} {y:.0}");
        } else if is_begun {
            let _ = write!(area, "V{FLOOR:.0}Z");
        }
        is_begun = value.is_some();
    }
    if is_begun {
        let _ = write!(area, "V{FLOOR:.0}Z");
    }
    (line, area)
}

pub(crate) fn callers(connections: &[OpenConnection], locale: Locale) -> CallersPart {
    let row = |open: &OpenConnection| {
        let address = open.address.map(|address| address.to_string()).unwrap_or_default();
        let credential = match &open.client {
            hosting::Client::Credential(name) => Some(name.to_string()),
            _ => None,
        };
        CallerRow {
            id: open.id,
            address: if credential.is_some() { address.clone() } else { String::new() },
            name: credential.unwrap_or(if address.is_empty() { "unknown".to_owned() } else { address }),
            agent: library(&open.user_agent),
            calls: locale.count(open.calls_in_flight as u64),
            bytes: locale.bytes(open.bytes_read.saturating_add(open.bytes_written)),
            idle: if open.idle.as_secs() == 0 { "now".to_owned() } else { in_words(open.idle) },
        }
    };
    let others = connections.len().saturating_sub(CALLERS_MAX);
    CallersPart {
        rows: connections.iter().take(CALLERS_MAX).map(row).collect(),
        others: if others == 0 { String::new() } else { locale.count(others as u64) },
    }
}

/// The client's library or browser, of its user agent.
fn library(agent: &str) -> String {
    const BROWSERS: [&str; 4] = ["Firefox/", "Edg/", "Chrome/", "Version/"];
    let named = |name: &&str| agent.split_whitespace().find(|word| word.starts_with(*name));
    let browser = BROWSERS.iter().find_map(named).filter(|_| agent.starts_with("Mozilla/"));
    browser.unwrap_or(agent).chars().take(AGENT_CHARS_MAX).collect()
}

/// A time in its largest unit.
pub(crate) fn in_words(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7_200 => format!("{} min", seconds / 60),
        7_200..172_800 => format!("{} h", seconds / 3_600),
        _ => format!("{} days", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use askama::Template as _;
    use axum::http::HeaderMap;
    use operate::{Figures, MethodFigures, Point, Purchases, ServiceHealth, Times};

    use super::{BUCKETS, Fold, buckets, healthy, library, lost, methods, paths, sparks};
    use crate::locale::Locale;

    #[test]
    fn a_sale_that_is_acknowledged_and_not_committed_is_red() {
        let locale = Locale::of(&HeaderMap::new());
        let part = |acknowledged, durable| {
            let purchases = Purchases { acknowledged, durable, ..Purchases::default() };
            lost(&Figures { purchases, ..Figures::default() }, locale).render().unwrap()
        };
        let (fine, red) = (part(7, 7), part(7, 5));
        assert!(fine.contains("Every acknowledged sale is committed") && !fine.contains("class=\"red\""), "{fine}");
        assert!(red.contains("<p class=\"verdict bad\">Acknowledged but not committed: 2</p>"), "{red}");
        assert_eq!(red.matches("<div class=\"red\">").count(), 2, "{red}");
    }

    #[test]
    fn a_service_is_red_with_trouble_alone() {
        let locale = Locale::of(&HeaderMap::new());
        let part = |trouble: Option<&str>| {
            let service = ServiceHealth { name: "records", is_healthy: false, trouble: trouble.map(str::to_owned) };
            let figures = Figures { is_healthy: trouble.is_none(), services: vec![service], ..Figures::default() };
            healthy(&figures, locale).render().unwrap()
        };
        let (idle, red) = (part(None), part(Some("no disk")));
        assert!(idle.contains("<li class=\"plain\">records: idle</li>") && !idle.contains("bad"), "{idle}");
        assert!(red.contains("<li class=\"bad\">records: no disk</li>") && red.contains("verdict bad"), "{red}");
    }

    #[test]
    fn a_percentile_at_the_greatest_bound_is_marked() {
        let locale = Locale::of(&HeaderMap::new());
        let times = Times { p50: 2.0, p99: 10.0, p999: 10.0, bound: 10.0 };
        let method = MethodFigures { path: "/a.B/C".into(), calls: 9, failed: 0, times };
        let rows = methods(&Figures { methods: vec![method], ..Figures::default() }, locale).rows;
        assert_eq!(rows[0].times, ["2 s", "≥ 10 s", "≥ 10 s"]);
        let points = [Arc::new(Point { times: Some(times), purchases_per_second: 20.0, ..Point::default() })];
        let now: Vec<_> =
            sparks(&Figures::default(), &points, locale).sparks.into_iter().map(|line| line.now).collect();
        assert_eq!((&*now[0], &*now[2]), ("20", "≥ 10 s"));
    }

    fn point(time_ms: u64, purchases_per_second: f64) -> Arc<Point> {
        Arc::new(Point { time_ms, purchases_per_second, ..Point::default() })
    }

    #[test]
    fn the_hour_is_folded_into_buckets_that_end_now() {
        let points = [point(0, 9.0), point(3_570_000, 1.0), point(3_571_000, 3.0), point(3_599_000, 5.0)];
        let value: fn(&Point) -> Option<f64> = |point| Some(point.purchases_per_second);
        let mean = buckets(&points, 3_599_000, Fold::Mean, value);
        assert_eq!((mean.len(), mean[0], mean[1], mean[BUCKETS - 1]), (BUCKETS, Some(9.0), None, Some(3.0)));
        assert_eq!(buckets(&points, 3_599_000, Fold::Most, value)[BUCKETS - 1], Some(5.0));
        assert_eq!(buckets(&points, 3_630_000, Fold::Mean, value)[0], None, "it is older than an hour");
    }

    #[test]
    fn a_client_is_named_by_its_library_or_browser() {
        let chrome =
            "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/156.0.0.0 Safari/537.36";
        for (agent, named) in [
            (chrome, "Chrome/156.0.0.0"),
            ("Mozilla/5.0 (X11; rv:140.0) Gecko/20100101 Firefox/140.0", "Firefox/140.0"),
            ("grpc-go/1.85.0", "grpc-go/1.85.0"),
            ("Mozilla/5.0", "Mozilla/5.0"),
            ("", ""),
        ] {
            assert_eq!(library(agent), named);
        }
        assert_eq!(library(&"x".repeat(300)).len(), super::AGENT_CHARS_MAX);
    }

    #[test]
    fn a_line_is_interrupted_where_there_is_no_value() {
        let (line, area) = paths(&[Some(0.0), Some(2.0), None, Some(1.0)], 2.0);
        assert_eq!(line, "M0 43h0L3 3M9 23h0");
        assert_eq!(area, "M0 43L0 43L3 3V43ZM9 43L9 23V43Z");
        assert_eq!(paths(&[Some(0.0)], 0.0).0, "M0 43h0");
    }
}
