//! A chart as plain data.

use super::scale::Spread;

/// Maximum points drawn of a series; a longer one is thinned, and a line keeps its extremes.
pub const POINTS_MAX: usize = 4_000;

/// Number of distinct colours; further series repeat them in another shade.
const COLOURS: usize = 8;

#[derive(Clone, Debug, Default)]
#[must_use]
pub struct Chart {
    /// Title, above the chart and for readers who cannot see it.
    pub title: String,
    /// Explanation below the title; may be empty.
    pub caption: String,
    pub x: Axis,
    pub y: Axis,
    /// In drawing order: later ones lie above earlier ones.
    pub series: Vec<Series>,
    /// Reference lines across the chart.
    pub rules: Vec<Rule>,
}

#[derive(Clone, Debug, Default)]
#[must_use]
pub struct Axis {
    /// Quantity on the axis.
    pub label: String,
    pub spread: Spread,
    pub unit: Unit,
    /// Lower end; by default, the smallest value.
    pub low: Option<f64>,
    /// Upper end; by default, the largest value.
    pub high: Option<f64>,
    /// Ticks with labels; by default, at round values.
    pub ticks: Vec<(f64, String)>,
}

impl Axis {
    pub fn linear(label: impl Into<String>, unit: Unit) -> Self {
        Self { label: label.into(), unit, ..Self::default() }
    }

    pub fn log(label: impl Into<String>, unit: Unit) -> Self {
        Self { label: label.into(), unit, spread: Spread::Log, ..Self::default() }
    }

    pub fn from(self, low: f64) -> Self {
        Self { low: Some(low), ..self }
    }

    pub fn to(self, high: f64) -> Self {
        Self { high: Some(high), ..self }
    }

    pub fn ticks(self, ticks: Vec<(f64, String)>) -> Self {
        Self { ticks, ..self }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unit {
    /// Plain numbers: clients, requests, rates.
    #[default]
    Count,
    /// Microseconds, shown in the unit that fits.
    Micros,
    Seconds,
    /// Parts of 1, shown as percentages.
    Share,
}

/// A data series.
#[derive(Clone, Debug)]
pub struct Series {
    /// Empty if it needs none.
    pub label: String,
    pub colour: Colour,
    /// Data, and the way they are drawn.
    pub shape: Shape,
}

impl Series {
    pub fn new(label: impl Into<String>, colour: Colour, shape: Shape) -> Self {
        Self { label: label.into(), colour, shape }
    }
}

/// Data by the way they are drawn.
#[derive(Clone, Debug)]
pub enum Shape {
    /// `(x, y)` joined in the given order; a value without a position on its axis leaves a gap. Short lines get a dot
    /// at each value.
    Line(Vec<(f64, f64)>),
    /// `(x, y)` where `y` holds from this `x` to the next.
    Steps(Vec<(f64, f64)>),
    /// Like [`Shape::Steps`], filled down to the axis.
    Area(Vec<(f64, f64)>),
    /// `(x, y)`, a dot each.
    Points(Vec<(f64, f64)>),
    /// `(x, low, high)`: a confidence interval for each value.
    ErrorBars(Vec<(f64, f64, f64)>),
    /// Bars that stand on the axis.
    Bars(Vec<Bar>),
}

#[derive(Clone, Debug)]
pub struct Bar {
    pub from: f64,
    pub to: f64,
    pub value: f64,
    pub tip: String,
}

/// A colour by its role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Colour {
    /// Colour of the series with this number: distinct also for readers who do not distinguish red or green; lines have
    /// dashes of their own.
    Series(usize),
    Bad,
    /// Shown only for comparison.
    Muted,
}

impl Colour {
    pub(super) fn class(self) -> String {
        match self {
            // Repeated colours are darker or lighter, and square or dashed.
            Self::Series(number) if number >= COLOURS => format!("s{} again", number % COLOURS + 1),
            Self::Series(number) => format!("s{}", number + 1),
            Self::Bad => "bad".to_owned(),
            Self::Muted => "muted".to_owned(),
        }
    }
}

/// A line across the chart.
#[derive(Clone, Debug)]
pub struct Rule {
    pub across: Across,
    pub at: f64,
    pub label: String,
}

/// Axis of a [`Rule`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Across {
    /// A vertical line at a value of x.
    X,
    /// A horizontal line at a value of y.
    Y,
}

impl Chart {
    /// A chart without rules.
    pub fn new(
        title: impl Into<String>,
        caption: impl Into<String>,
        (x, y): (Axis, Axis),
        series: impl IntoIterator<Item = Series>,
    ) -> Self {
        let series = series.into_iter().collect();
        Self { title: title.into(), caption: caption.into(), x, y, series, rules: Vec::new() }
    }

    /// A line chart; each line has its own name and colour.
    pub fn of_lines<'a>(
        title: impl Into<String>,
        caption: impl Into<String>,
        axes: (Axis, Axis),
        lines: impl IntoIterator<Item = (&'a str, Vec<(f64, f64)>)>,
    ) -> Self {
        let line = |(number, (name, points))| Series::new(name, Colour::Series(number), Shape::Line(points));
        Self::new(title, caption, axes, lines.into_iter().enumerate().map(line))
    }

    pub fn rules(self, rules: Vec<Rule>) -> Self {
        Self { rules, ..self }
    }

    /// True if there is nothing to draw.
    pub fn is_empty(&self) -> bool {
        self.series.iter().all(|series| series.shape.is_empty())
    }
}
