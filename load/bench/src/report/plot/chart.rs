//! A chart as plain data.

use super::scale::Spread;

/// Points that a series is drawn with at most; a longer one is thinned, a line so that its extremes stay.
pub const POINTS_MAX: usize = 4_000;

/// Series that have a colour of their own; further ones begin again in another shade.
const COLOURS: usize = 8;

/// A chart.
#[derive(Clone, Debug, Default)]
pub struct Chart {
    /// What it shows; above it, and for readers who cannot see it.
    pub title: String,
    /// What to see in it; below the title; may be empty.
    pub caption: String,
    /// Left to right.
    pub x: Axis,
    /// Bottom to top.
    pub y: Axis,
    /// In drawing order: later ones lie above earlier ones.
    pub series: Vec<Series>,
    /// Values worth a line across the chart.
    pub rules: Vec<Rule>,
}

/// An axis.
#[derive(Clone, Debug, Default)]
pub struct Axis {
    /// What is along it.
    pub label: String,
    /// How values are spread over it.
    pub spread: Spread,
    /// What the values are.
    pub unit: Unit,
    /// Lower end; without one, the smallest value is there.
    pub low: Option<f64>,
    /// Upper end; without one, the largest value is there.
    pub high: Option<f64>,
    /// Ticks with their words; empty: round values.
    pub ticks: Vec<(f64, String)>,
}

impl Axis {
    /// A linear axis.
    pub fn linear(label: impl Into<String>, unit: Unit) -> Self {
        Self { label: label.into(), unit, ..Self::default() }
    }

    /// A logarithmic axis.
    pub fn log(label: impl Into<String>, unit: Unit) -> Self {
        Self { label: label.into(), unit, spread: Spread::Log, ..Self::default() }
    }

    /// With its lower end here.
    #[must_use]
    pub fn from(self, low: f64) -> Self {
        Self { low: Some(low), ..self }
    }

    /// With its upper end here.
    #[must_use]
    pub fn to(self, high: f64) -> Self {
        Self { high: Some(high), ..self }
    }

    /// With these ticks and no others.
    #[must_use]
    pub fn ticks(self, ticks: Vec<(f64, String)>) -> Self {
        Self { ticks, ..self }
    }
}

/// What the values of an axis are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unit {
    /// Numbers: of clients, of requests, a second.
    #[default]
    Count,
    /// Microseconds, shown in the unit that fits.
    Micros,
    /// Seconds.
    Seconds,
    /// Parts of 1, shown as percentages.
    Share,
}

/// Data that belong together.
#[derive(Clone, Debug)]
pub struct Series {
    /// Its name; empty: it needs none.
    pub label: String,
    /// Its colour.
    pub colour: Colour,
    /// The data, and how they are drawn.
    pub shape: Shape,
}

impl Series {
    /// A series.
    pub fn new(label: impl Into<String>, colour: Colour, shape: Shape) -> Self {
        Self { label: label.into(), colour, shape }
    }
}

/// How data are drawn.
#[derive(Clone, Debug)]
pub enum Shape {
    /// `(x, y)` joined in the given order; a value without a place on its axis leaves a gap. Short ones get a dot at
    /// each value.
    Line(Vec<(f64, f64)>),
    /// `(x, y)` where `y` holds from this `x` to the next.
    Steps(Vec<(f64, f64)>),
    /// As [`Shape::Steps`], filled down to the axis.
    Area(Vec<(f64, f64)>),
    /// `(x, y)`, a dot each.
    Points(Vec<(f64, f64)>),
    /// `(x, low, high)`: a confidence interval for each value.
    ErrorBars(Vec<(f64, f64, f64)>),
    /// Bars that stand on the axis.
    Bars(Vec<Bar>),
}

/// A bar.
#[derive(Clone, Debug)]
pub struct Bar {
    /// Where it begins on the x axis.
    pub from: f64,
    /// Where it ends.
    pub to: f64,
    /// How high it is.
    pub value: f64,
    /// Shown when the pointer rests on it.
    pub tip: String,
}

/// A colour by its role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Colour {
    /// The series with this number: each has a colour that differs from the others also without seeing red or green,
    /// and lines have dashes of their own.
    Series(usize),
    /// What went wrong.
    Bad,
    /// What is there only to compare with.
    Muted,
}

impl Colour {
    pub(super) fn class(self) -> String {
        match self {
            // Darker or lighter, and square or dashed, where a colour comes again.
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
    /// Which axis the value is on.
    pub across: Across,
    /// The value.
    pub at: f64,
    /// Its name.
    pub label: String,
}

/// An axis that a [`Rule`] stands on.
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

    /// A chart of lines, each with its name and a colour of its own.
    pub fn of_lines<'a>(
        title: impl Into<String>,
        caption: impl Into<String>,
        axes: (Axis, Axis),
        lines: impl IntoIterator<Item = (&'a str, Vec<(f64, f64)>)>,
    ) -> Self {
        let line = |(number, (name, points))| Series::new(name, Colour::Series(number), Shape::Line(points));
        Self::new(title, caption, axes, lines.into_iter().enumerate().map(line))
    }

    /// With these lines across.
    #[must_use]
    pub fn rules(self, rules: Vec<Rule>) -> Self {
        Self { rules, ..self }
    }

    /// Whether there is anything to draw.
    pub fn is_empty(&self) -> bool {
        self.series.iter().all(|series| series.shape.is_empty())
    }
}
