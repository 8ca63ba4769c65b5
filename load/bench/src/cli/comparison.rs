//! A comparison as a text table and as JSON, for `compare` and `ab`.

use std::fmt::Write as _;
use std::io::{self, Write};

use anyhow::Context as _;
use serde::Serialize;

use super::exit::Exit;
use crate::report::table::table;
use crate::report::units;
use crate::stats::compare::{Design, Effect, Verdict};
use crate::stats::metric::Scale;

/// Value of `format` in the JSON.
pub(crate) const FORMAT: &str = "quire-bench-effects/1";

#[derive(Clone, Debug, Serialize)]
pub(crate) struct Comparison {
    pub(crate) format: &'static str,
    pub(crate) a: String,
    pub(crate) b: String,
    pub(crate) design: Design,
    /// Joint confidence of all verdicts.
    pub(crate) confidence: f64,
    pub(crate) effects: Vec<Effect>,
    /// Reasons to doubt the comparison.
    pub(crate) warnings: Vec<String>,
    /// True if any run is invalid.
    pub(crate) invalid: bool,
    pub(crate) interrupted: bool,
}

impl Comparison {
    /// Writes the table, or JSON.
    pub(crate) fn write(&self, as_json: bool, out: &mut dyn Write) -> io::Result<()> {
        if as_json {
            serde_json::to_writer_pretty(&mut *out, self)?;
            writeln!(out)
        } else {
            out.write_all(self.page().as_bytes())
        }
    }

    /// Writes to standard output; returns the exit code.
    pub(crate) fn print(&self, as_json: bool) -> anyhow::Result<Exit> {
        let mut out = io::stdout().lock();
        self.write(as_json, &mut out).and_then(|()| out.flush()).context("cannot write to standard output")?;
        Ok(self.exit())
    }

    pub(crate) fn exit(&self) -> Exit {
        if self.invalid { Exit::Invalid } else { Exit::Done }
    }

    fn page(&self) -> String {
        let mut page = String::new();
        for warning in &self.warnings {
            writeln!(page, "warning: {warning}").expect("a string takes everything");
        }
        writeln!(page, "A  {}\nB  {}\n\n{}\n\n{}", self.a, self.b, self.table(), self.legend())
            .expect("a string takes everything");
        page
    }

    fn table(&self) -> String {
        let heads = ["metric", "A", "B", "B/A", "interval", ""];
        let rows = self.effects.iter().map(|effect| {
            [
                effect.metric.name().to_owned(),
                effect.metric.show(effect.a),
                effect.metric.show(effect.b),
                change(effect, effect.change),
                effect.interval().map_or_else(
                    || "none".to_owned(),
                    |interval| format!("{} to {}", change(effect, interval.low), change(effect, interval.high)),
                ),
                words(effect),
            ]
        });
        table(&heads, rows)
    }

    fn legend(&self) -> String {
        let Some(first) = self.effects.first() else { return "no metric was measured on both sides".to_owned() };
        let (unit, how) = match self.design {
            Design::Independent => (format!("{} and {} runs", first.runs_a, first.runs_b), "Welch"),
            Design::Paired => (format!("{} rounds", first.runs_a), "paired by round"),
        };
        let of = self.effects.len();
        let shared = if of == 1 { String::new() } else { format!(" of all {of} verdicts together (Bonferroni)") };
        format!("{unit}, {how}; confidence {}%{shared}", self.confidence * 100.0)
    }
}

fn change(effect: &Effect, value: f64) -> String {
    match effect.scale {
        Scale::Ratio => ratio(value),
        Scale::Difference => {
            let sign = if value < 0.0 { "−" } else { "+" };
            format!("{sign}{}", effect.metric.show(value.abs()))
        }
    }
}

fn ratio(value: f64) -> String {
    // Less than a thousandth is below the noise between runs.
    if value < 10.0 { format!("{value:.3}") } else { units::number(value) }
}

fn words(effect: &Effect) -> String {
    match (effect.verdict, effect.scale) {
        (Verdict::TooFewRuns, _) => "too few runs to tell: make at least 2 of each".to_owned(),
        (Verdict::NoDifferenceSeen, _) => "no difference seen".to_owned(),
        (Verdict::Different, Scale::Difference) if effect.change > 0.0 => "B is higher".to_owned(),
        (Verdict::Different, Scale::Difference) => "B is lower".to_owned(),
        (Verdict::Different, Scale::Ratio) if effect.change >= 2.0 => {
            format!("B is {} times A", units::number(effect.change))
        }
        (Verdict::Different, Scale::Ratio) if effect.change > 1.0 => {
            format!("B is {}% higher", percent(effect.change - 1.0))
        }
        (Verdict::Different, Scale::Ratio) if effect.change > 0.5 => {
            format!("B is {}% lower", percent(1.0 - effect.change))
        }
        (Verdict::Different, Scale::Ratio) => format!("A is {} times B", units::number(1.0 / effect.change)),
    }
}

fn percent(share: f64) -> String {
    format!("{:.1}", share * 100.0)
}
