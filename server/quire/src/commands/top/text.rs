//! A sample as text, losses and refusals first, then health, then speed.

use std::time::Duration;

use operate::grpc::wire::{Figures, Level, MethodFigures, Reason};
use quire_terminal::table;

/// The whole sample.
pub(super) fn sample(figures: &Figures, url: &str) -> String {
    let mut lines = vec![title(figures, url), String::new()];
    lines.extend(losses(figures));
    lines.push(health(figures));
    lines.extend(
        figures
            .services
            .iter()
            .filter(|service| !service.trouble.is_empty())
            .map(|service| format!("           {}: {}", service.name, service.trouble)),
    );
    for (name, level, is_bytes) in levels(figures) {
        lines.push(format!("{name:<10} {}", level_text(level, is_bytes)));
    }
    lines.extend(speed(figures));
    if !figures.methods.is_empty() {
        lines.push(String::new());
        lines.push(methods(figures));
    }
    lines.join("\n").trim_end().to_owned()
}

pub(super) fn title(figures: &Figures, url: &str) -> String {
    let up = Duration::from_secs(figures.uptime_ms / 1000);
    format!("{url}, up {}", humantime::format_duration(up))
}

/// Purchases, refusals and failures.
pub(super) fn losses(figures: &Figures) -> [String; 3] {
    let bought = figures.purchases.clone().unwrap_or_default();
    let missing = if bought.acknowledged > bought.durable { ": TOO FEW" } else { "" };
    [
        format!("purchases  acknowledged {}, committed {}{missing}", bought.acknowledged, bought.durable),
        format!("refused    {}", reasons(&figures.refusals)),
        format!("failed     {}", reasons(&figures.errors)),
    ]
}

fn reasons(reasons: &[Reason]) -> String {
    if reasons.is_empty() {
        return "none in the last minute".to_owned();
    }
    reasons.iter().map(|reason| format!("{} {}", reason.count, reason.name)).collect::<Vec<_>>().join(", ")
}

pub(super) fn health(figures: &Figures) -> String {
    let mut parts = vec![if figures.healthy { "healthy" } else { "NOT HEALTHY" }.to_owned()];
    match figures.certificate_expires_seconds {
        Some(seconds) if seconds <= 0 => parts.push("the certificate HAS EXPIRED".to_owned()),
        Some(seconds) => parts.push(format!("the certificate expires in {} days", seconds / 86_400)),
        None => {}
    }
    parts.push(match figures.backup_age_seconds {
        Some(age) => format!("last backup {} ago", humantime::format_duration(Duration::from_secs(age))),
        None => "no backup yet".to_owned(),
    });
    format!("health     {}", parts.join(", "))
}

/// The levels that there are, and whether each counts bytes.
pub(super) fn levels(figures: &Figures) -> Vec<(&'static str, Level, bool)> {
    let levels = figures.levels.unwrap_or_default();
    let all = [
        ("memory", levels.memory_bytes, true),
        ("disk", levels.disk_bytes, true),
        ("clients", levels.connections, false),
        ("files", levels.descriptors, false),
        ("queue", levels.queue, false),
    ];
    all.into_iter().filter_map(|(name, level, is_bytes)| Some((name, level?, is_bytes))).collect()
}

/// The used part in percent, at most 100.
pub(super) fn percent(level: Level) -> u16 {
    let percent = u128::from(level.used) * 100 / u128::from(level.limit.max(1));
    u16::try_from(percent.min(100)).unwrap_or(100)
}

pub(super) fn level_text(level: Level, is_bytes: bool) -> String {
    let number = |count: u64| if is_bytes { format!("{} MiB", count >> 20) } else { count.to_string() };
    format!("{} of {}, {}%", number(level.used), number(level.limit), percent(level))
}

/// Rates and commits.
pub(super) fn speed(figures: &Figures) -> [String; 2] {
    let (bought, calls) = (figures.purchases.clone().unwrap_or_default(), figures.calls.unwrap_or_default());
    let commits = figures.commits.unwrap_or_default();
    [
        format!(
            "speed      {:.1} purchases and {:.1} calls a second, {} waiting",
            bought.per_second, calls.per_second, calls.in_flight
        ),
        format!(
            "commits    {:.1} a second with {:.1} entries, p50 {}, p99 {}",
            commits.per_second,
            commits.entries,
            time(commits.p50_seconds),
            time(commits.p99_seconds)
        ),
    ]
}

fn methods(figures: &Figures) -> String {
    table::render(COLUMNS, figures.methods.iter().map(row))
}

/// Columns of the methods, and whether each has numbers.
pub(super) const COLUMNS: [table::Column; 6] =
    [("method", false), ("calls/min", true), ("failed", true), ("p50", true), ("p99", true), ("p99.9", true)];

pub(super) fn row(method: &MethodFigures) -> [String; 6] {
    let MethodFigures { path, calls, failed, p50_seconds, p99_seconds, p999_seconds } = method;
    let [p50, p99, p999] = [p50_seconds, p99_seconds, p999_seconds].map(|seconds| time(*seconds));
    [path.trim_start_matches('/').to_owned(), calls.to_string(), failed.to_string(), p50, p99, p999]
}

/// A short time in the unit that fits.
fn time(seconds: f64) -> String {
    match seconds {
        none if none <= 0.0 => "-".to_owned(),
        micro if micro < 1e-3 => format!("{:.0} µs", micro * 1e6),
        milli if milli < 1.0 => format!("{:.1} ms", milli * 1e3),
        _ => format!("{seconds:.2} s"),
    }
}

#[cfg(test)]
mod tests {
    use operate::grpc::wire::{Purchases, ServiceHealth};

    use super::*;

    #[test]
    fn what_is_wrong_stands_out() {
        let fine = sample(&Figures { healthy: true, ..Figures::default() }, "http://a");
        assert!(fine.contains("acknowledged 0, committed 0\n") && fine.contains(" healthy, no backup yet"), "{fine}");
        let wrong = Figures {
            purchases: Some(Purchases { acknowledged: 2, durable: 1, ..Purchases::default() }),
            errors: vec![Reason { name: "Internal".to_owned(), count: 3 }],
            certificate_expires_seconds: Some(-1),
            services: vec![ServiceHealth { name: "kv".to_owned(), trouble: "disk full".to_owned(), healthy: false }],
            ..Figures::default()
        };
        let text = sample(&wrong, "http://a");
        for part in ["committed 1: TOO FEW", "3 Internal", "NOT HEALTHY, the certificate HAS EXPIRED", "kv: disk full"]
        {
            assert!(text.contains(part), "{part} is missing in\n{text}");
        }
    }

    #[test]
    fn times_and_levels_are_short() {
        assert_eq!([0.0, 0.000_25, 0.0125, 2.5].map(time), ["-", "250 µs", "12.5 ms", "2.50 s"]);
        assert_eq!(level_text(Level { used: 3 << 20, limit: 12 << 20 }, true), "3 MiB of 12 MiB, 25%");
        assert_eq!(percent(Level { used: 9, limit: 0 }), 100);
    }
}
