//! Text of a chart: tick labels with units, and a description for readers who cannot see it.

use super::chart::{Chart, Series, Shape, Unit};
use super::scale::{Scale, Spread};
use crate::report::units;

/// Labels of the ticks of an axis.
pub(super) fn ticks(scale: &Scale, spread: Spread, unit: Unit, count: usize) -> Vec<(f64, String)> {
    let ticks = scale.ticks(count);
    // On a linear axis all ticks have the unit of the largest; on a logarithmic one, each its own.
    let largest = ticks.iter().copied().map(f64::abs).fold(0.0, f64::max);
    let word = |value: f64| tick(value, if spread == Spread::Log { value } else { largest }, unit);
    ticks.iter().map(|&value| (value, word(value))).collect()
}

fn tick(value: f64, scale_by: f64, unit: Unit) -> String {
    match unit {
        _ if value == 0.0 => "0".to_owned(),
        Unit::Micros => {
            let (divisor, name) = units::time_unit(scale_by);
            format!("{} {name}", short(value / divisor))
        }
        Unit::Seconds if scale_by.abs() < 1.0 => tick(value * 1e6, scale_by * 1e6, Unit::Micros),
        Unit::Seconds => format!("{} s", short(value)),
        Unit::Share => format!("{}%", short(value * 100.0)),
        Unit::Count => {
            let (divisor, name) = match scale_by.abs() {
                size if size >= 1e15 => return format!("{value:.0e}"),
                size if size >= 1e12 => (1e12, "T"),
                size if size >= 1e9 => (1e9, "G"),
                size if size >= 1e6 => (1e6, "M"),
                size if size >= 1e4 => (1e3, "k"),
                _ => (1.0, ""),
            };
            format!("{}{name}", short(value / divisor))
        }
    }
}

/// A number with no more digits than it needs.
fn short(value: f64) -> String {
    if value != 0.0 && (value.abs() < 1e-5 || value.abs() >= 1e7) {
        return format!("{value:.0e}");
    }
    let text = format!("{value:.6}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// A value in a sentence.
fn value(value: f64, unit: Unit) -> String {
    match unit {
        Unit::Micros => units::micros(value),
        Unit::Seconds => units::micros(value * 1e6),
        Unit::Share => units::percent(value),
        Unit::Count if value.fract() == 0.0 && value.abs() < 1e6 => short(value),
        Unit::Count => units::number(value),
    }
}

/// Description of the chart.
pub(super) fn about(chart: &Chart) -> String {
    let mut about = format!("{} by {}.", sentence(&chart.y.label), chart.x.label);
    for series in chart.series.iter().filter(|series| !series.label.is_empty()) {
        if let Some(ends) = ends(series, chart) {
            about.extend([" ", &series.label, ": ", &ends, "."]);
        }
    }
    for rule in &chart.rules {
        about.extend([" Marked: ", &rule.label, "."]);
    }
    about
}

fn ends(series: &Series, chart: &Chart) -> Option<String> {
    let words = |first: (f64, f64), last: (f64, f64)| {
        let at = |(x, y): (f64, f64)| format!("{} at {}", value(y, chart.y.unit), value(x, chart.x.unit));
        format!("from {} to {}", at(first), at(last))
    };
    match &series.shape {
        Shape::Line(points) | Shape::Steps(points) | Shape::Area(points) => {
            Some(words(*points.first()?, *points.last()?))
        }
        Shape::Points(points) => Some(format!("{} points", points.len())),
        Shape::Bars(bars) => {
            let highest = bars.iter().max_by(|one, other| one.value.total_cmp(&other.value))?;
            let [from, to] = [highest.from, highest.to].map(|end| value(end, chart.x.unit));
            Some(format!("highest between {from} and {to} with {}", value(highest.value, chart.y.unit)))
        }
        Shape::ErrorBars(_) => None,
    }
}

fn sentence(label: &str) -> String {
    let mut letters = label.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}
