//! Charts: plain data in, SVG out.
//!
//! Colours, fonts and strokes are classes that the page's stylesheet gives meaning to, so that a chart follows the
//! reader's light or dark scheme. Every chart is drawn twice, for wide and for narrow places, with text of the same
//! size in both; the stylesheet shows the one that fits. Nothing needs a script.
//!
//! Must not know what is measured.

mod draw;
mod layout;
mod scale;
mod shape;
mod text;

pub use scale::Spread;

/// Points that a series is drawn with at most; a longer one is thinned, a line so that its extremes stay.
pub const POINTS_MAX: usize = 4_000;

/// Series that have a colour of their own; further ones begin again in another shade.
pub const COLOURS: usize = 8;

/// A chart.
#[derive(Clone, Debug, Default)]
pub struct Chart {
    /// What it shows, for readers who cannot see it.
    pub title: String,
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
    /// Lower end; none: the smallest value.
    pub low: Option<f64>,
    /// Upper end; none: the largest value.
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
    /// `(x, low, high)`: a confidence band.
    Band(Vec<(f64, f64, f64)>),
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
    fn class(self) -> String {
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
    /// The chart for wide and for narrow places. `id` has to differ between the charts of a page.
    pub fn svg(&self, id: &str) -> String {
        [layout::WIDE, layout::NARROW].map(|place| draw::svg(self, &place, id)).concat()
    }

    /// Whether there is anything to draw.
    pub fn is_empty(&self) -> bool {
        self.series.iter().all(|series| series.shape.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(shape: Shape) -> Chart {
        Chart {
            title: "Mean time by clients".to_owned(),
            x: Axis::linear("clients", Unit::Count),
            y: Axis::log("mean", Unit::Micros),
            series: vec![Series::new("ours", Colour::Series(0), shape)],
            rules: vec![Rule { across: Across::Y, at: 300.0, label: "published".to_owned() }],
        }
    }

    #[test]
    fn text_from_outside_cannot_become_markup() {
        let mut chart = chart(Shape::Line(vec![(1.0, 10.0), (2.0, 30.0)]));
        let evil = "<script>alert(\"x\")</script>&";
        evil.clone_into(&mut chart.title);
        evil.clone_into(&mut chart.series[0].label);
        evil.clone_into(&mut chart.rules[0].label);
        evil.clone_into(&mut chart.x.label);
        chart.y.ticks = vec![(20.0, evil.to_owned())];
        chart.series.push(Series::new(
            evil,
            Colour::Bad,
            Shape::Bars(vec![Bar { from: 1.0, to: 2.0, value: 20.0, tip: evil.to_owned() }]),
        ));
        let svg = chart.svg("evil");
        assert!(!svg.contains("<script"));
        assert!(!svg.contains("\"x\""));
        assert!(svg.contains("&#60;script"));
    }

    #[test]
    fn every_shape_is_drawn_from_nothing_from_one_value_and_from_values_without_a_place() {
        let odd = [0.0, -1.0, f64::NAN, f64::INFINITY, 1e300, 5.0];
        let pairs = |count: usize| odd.iter().take(count).map(|&value| (value, value)).collect::<Vec<_>>();
        let triples =
            |count: usize| odd.iter().take(count).map(|&value| (value, value, value * 2.0)).collect::<Vec<_>>();
        for count in [0, 1, odd.len()] {
            for shape in [
                Shape::Line(pairs(count)),
                Shape::Steps(pairs(count)),
                Shape::Area(pairs(count)),
                Shape::Points(pairs(count)),
                Shape::Band(triples(count)),
                Shape::ErrorBars(triples(count)),
                Shape::Bars(
                    pairs(count)
                        .into_iter()
                        .map(|(x, y)| Bar { from: x, to: x + 1.0, value: y, tip: String::new() })
                        .collect(),
                ),
            ] {
                let svg = chart(shape).svg("odd");
                assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
                assert_eq!(svg.matches("<svg").count(), 2);
            }
        }
    }

    #[test]
    fn a_long_series_is_thinned_and_keeps_its_extremes() {
        let mut line: Vec<(f64, f64)> = (0..200_000).map(|index| (f64::from(index), 100.0)).collect();
        line[77_777].1 = 5_000.0;
        let thin = shape::thinned_line(&line);
        assert!(thin.len() <= POINTS_MAX);
        assert!(thin.contains(&(77_777.0, 5_000.0)));
        let svg = chart(Shape::Points(line.iter().map(|&(x, _)| (x, x * 0.37 % 91.0)).collect())).svg("points");
        assert!(svg.len() < POINTS_MAX * 2 * 30, "{}", svg.len());
    }

    #[test]
    fn two_places_have_identifiers_of_their_own() {
        let svg = chart(Shape::Line(vec![(1.0, 10.0)])).svg("mean");
        for id in
            ["id=\"mean-wide-title\"", "id=\"mean-narrow-title\"", "id=\"mean-wide-about\"", "id=\"mean-narrow-about\""]
        {
            assert_eq!(svg.matches(id).count(), 1, "{id}");
        }
    }

    #[test]
    fn a_reader_who_cannot_see_is_told_the_ends_of_each_series() {
        let svg = chart(Shape::Line(vec![(1.0, 464.93), (100.0, 259.6)])).svg("mean");
        assert!(svg.contains("ours: from 465 µs at 1 to 260 µs at 100"), "{svg}");
    }
}
