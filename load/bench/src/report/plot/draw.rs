//! Draws a chart in one size: scales, margins, outlines and text for the template.

use askama::Template;

use super::chart::{Across, Axis, Chart, Shape};
use super::layout::{self, Frame, GAP, LINE, SAMPLE};
use super::scale::{self, Scale};
use super::shape::{self, Path, Places};
use super::text;
use crate::report::units::real;

/// Maximum strokes named at their ends; more are named in rows above.
const NAMED_AT_END_MAX: usize = 6;

/// Pixels per tick on each axis.
const TICK_X: f64 = 74.0;
const TICK_Y: f64 = 42.0;

#[derive(Template)]
#[template(path = "chart.svg", escape = "html")]
struct Drawing<'a> {
    id: &'a str,
    place: &'static str,
    width: f64,
    height: f64,
    title: &'a str,
    about: String,
    paths: Vec<Path>,
    texts: Vec<Text>,
}

struct Text {
    class: String,
    x: f64,
    y: f64,
    anchor: &'static str,
    words: String,
}

/// A vertical line at a value of x, with its name in a row above the data.
struct Upright {
    x: f64,
    middle: f64,
    span: (f64, f64),
    row: usize,
    words: String,
}

struct Canvas<'a> {
    chart: &'a Chart,
    place: &'a layout::Place,
    places: Places,
    y_ticks: Vec<(f64, String)>,
    /// Series by number, with the names at their ends.
    at_end: Vec<(usize, String)>,
    /// Other named series, with the names in rows above.
    in_rows: Vec<(usize, String)>,
    paths: Vec<Path>,
    texts: Vec<Text>,
}

impl Chart {
    /// The chart for wide and for narrow screens. `id` must be unique on a page.
    pub fn svg(&self, id: &str) -> String {
        [layout::WIDE, layout::NARROW].map(|place| svg(self, &place, id)).concat()
    }
}

fn svg(chart: &Chart, place: &layout::Place, id: &str) -> String {
    let mut canvas = Canvas::new(chart, place);
    canvas.grid();
    canvas.series();
    canvas.rules();
    canvas.x_axis();
    canvas.names();
    let Canvas { paths, texts, .. } = canvas;
    let drawing = Drawing {
        id,
        place: place.name,
        width: place.width,
        height: place.height,
        title: &chart.title,
        about: text::about(chart),
        paths,
        texts,
    };
    drawing.render().expect("the template writes into a string")
}

/// Scale of the values of an axis and of the rules on it.
fn scale(chart: &Chart, axis: &Axis, across: Across, value: fn((f64, f64)) -> f64) -> Scale {
    let of_rules = chart.rules.iter().filter(|rule| rule.across == across).map(|rule| rule.at);
    let of = |is_interval| {
        let shapes = chart.series.iter().map(|series| &series.shape);
        shapes.filter(move |shape| shape.is_interval() == is_interval).flat_map(Shape::corners).map(value)
    };
    let firm: Vec<f64> = of(false).chain(of_rules).collect();
    let intervals = scale::within_reach(axis.spread, &firm, of(true).collect());
    Scale::over(axis.spread, firm.into_iter().chain(intervals), (axis.low, axis.high))
}

fn ticks(axis: &Axis, scale: &Scale, count: f64) -> Vec<(f64, String)> {
    let count = whole(count);
    if axis.ticks.is_empty() { text::ticks(scale, axis.spread, axis.unit, count) } else { axis.ticks.clone() }
}

impl<'a> Canvas<'a> {
    fn new(chart: &'a Chart, place: &'a layout::Place) -> Self {
        let x = scale(chart, &chart.x, Across::X, |(x, _)| x);
        let mut y = scale(chart, &chart.y, Across::Y, |(_, y)| y);
        let ticks_y = (place.height - 4.0 * LINE) / TICK_Y;
        if chart.y.high.is_none() && chart.y.ticks.is_empty() {
            y = y.roomy(whole(ticks_y));
        }
        let y_ticks = ticks(&chart.y, &y, ticks_y);
        let frame = Frame { left: 0.0, top: 0.0, right: 0.0, bottom: 0.0 };
        let places = Places { x, y, frame };
        let (at_end, in_rows, paths, texts) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let mut canvas = Canvas { chart, place, places, y_ticks, at_end, in_rows, paths, texts };
        canvas.share_out_names();
        let widest = canvas.y_ticks.iter().map(|(_, word)| layout::text_width(word)).fold(0.0, f64::max);
        let (_, rows) = layout::rows(names(&canvas.in_rows), place.width);
        let at_end = names(&canvas.at_end).map(layout::bold_width).fold(0.0, f64::max);
        canvas.places.frame = Frame {
            left: (widest + GAP).min(place.width / 3.0),
            top: LINE * real(1 + rows) + GAP + 2.0,
            right: place.width - if at_end > 0.0 { at_end + GAP } else { GAP },
            bottom: place.height - 2.0 * LINE - 6.0,
        };
        // Names of vertical lines are above the data.
        let above = canvas.upright().iter().map(|rule| rule.row + 1).max().unwrap_or(0);
        canvas.places.frame.top += LINE * real(above);
        canvas
    }

    /// Vertical lines, each with a row for its name above the frame.
    fn upright(&self) -> Vec<Upright> {
        let rules = self.chart.rules.iter().filter(|rule| rule.across == Across::X);
        let named = rules.filter_map(|rule| Some((self.places.x(rule.at)?, layout::shortened(&rule.label))));
        let mut upright: Vec<Upright> = named
            .map(|(x, words)| {
                let width = layout::text_width(&words);
                let from = (x - width / 2.0).min(self.place.width - width).max(0.0);
                Upright { x, middle: from + width / 2.0, span: (from, from + width), row: 0, words }
            })
            .collect();
        let rows = layout::free_rows(&upright.iter().map(|rule| rule.span).collect::<Vec<_>>());
        for (rule, row) in upright.iter_mut().zip(rows) {
            rule.row = row;
        }
        upright
    }

    /// In a wide chart, a few strokes with ends far enough apart have their names there.
    fn share_out_names(&mut self) {
        let named = self.chart.series.iter().enumerate().filter(|(_, series)| !series.label.is_empty());
        let strokes: Vec<usize> = named
            .clone()
            .filter(|(_, series)| series.shape.is_stroke() && !series.shape.is_empty())
            .map(|(index, _)| index)
            .collect();
        // The frame depends on the names; until it is known, its height is estimated.
        let height = self.place.height - 5.0 * LINE;
        let wanted: Vec<f64> = strokes.iter().map(|&index| (1.0 - self.end(index)) * height).collect();
        let heights = layout::spread_out(&wanted, 0.0, height);
        let has_room = self.place.name == layout::WIDE.name
            && (2..=NAMED_AT_END_MAX).contains(&strokes.len())
            && wanted.iter().zip(heights).all(|(wanted, height)| (wanted - height).abs() <= LINE);
        let named = named.map(|(index, series)| (index, layout::shortened(&series.label)));
        (self.at_end, self.in_rows) = named.partition(|(index, _)| has_room && strokes.contains(index));
    }

    /// Height of a stroke's end, 0 to 1.
    fn end(&self, series: usize) -> f64 {
        let values = self.chart.series[series].shape.corners();
        values.into_iter().rev().find_map(|(_, y)| self.places.y.position(y)).unwrap_or(0.0)
    }

    fn grid(&mut self) {
        let Frame { left, right, top, bottom } = self.places.frame;
        for (value, word) in self.y_ticks.clone() {
            let Some(y) = self.places.y(value) else { continue };
            self.path("grid", format!("M{left:.1} {y:.1}H{right:.1}"));
            self.text("tick", left - GAP, y + 4.5, "end", word);
        }
        self.path("axis", format!("M{left:.1} {bottom:.1}H{right:.1}"));
        if top < bottom {
            self.text("label", 0.0, LINE - 4.0, "start", self.chart.y.label.clone());
        }
    }

    fn series(&mut self) {
        for series in &self.chart.series {
            let colour = series.colour.class();
            let paths = shape::outlines(&series.shape, &self.places).into_iter();
            self.paths.extend(paths.map(|path| Path { class: format!("{} {colour}", path.class), ..path }));
        }
    }

    fn rules(&mut self) {
        let Frame { left, right, top, bottom } = self.places.frame;
        for rule in self.chart.rules.iter().filter(|rule| rule.across == Across::Y) {
            let Some(y) = self.places.y(rule.at) else { continue };
            let words = layout::shortened(&rule.label);
            self.path("rule", format!("M{left:.1} {y:.1}H{right:.1}"));
            let (x, y) = self.quiet_place(layout::text_width(&words), y);
            self.text("note", x, y, "start", words);
        }
        for rule in self.upright() {
            let foot = top - LINE * real(rule.row);
            self.path("rule", format!("M{:.1} {:.1}V{bottom:.1}", rule.x, foot - 2.0));
            self.text("note", rule.middle, foot - 5.0, "middle", rule.words);
        }
    }

    /// Position of a label beside a horizontal line that covers the fewest values: left or right, above or below.
    fn quiet_place(&self, width: f64, level: f64) -> (f64, f64) {
        let Frame { left, right, top, bottom } = self.places.frame;
        let middle = f64::midpoint(left, right) - width / 2.0;
        let heights = [level - 5.0, level + LINE - 3.0].into_iter().filter(|&y| y - LINE >= top && y <= bottom);
        let places = heights.flat_map(|y| [right - width - 2.0, middle, left + 4.0].map(|x| (x, y)));
        let pixels: Vec<(f64, f64)> =
            self.chart.series.iter().flat_map(|series| self.places.of(&series.shape)).collect();
        let covered = |&(x, y): &(f64, f64)| {
            pixels
                .iter()
                .filter(|pixel| (x..x + width).contains(&pixel.0) && (y - LINE..y + 4.0).contains(&pixel.1))
                .count()
        };
        places.min_by_key(covered).unwrap_or((right - width - 2.0, level - 5.0))
    }

    fn x_axis(&mut self) {
        let Frame { left, right, bottom, .. } = self.places.frame;
        let mut free = f64::NEG_INFINITY;
        for (value, word) in ticks(&self.chart.x, &self.places.x, (right - left) / TICK_X) {
            let Some(x) = self.places.x(value) else { continue };
            let half = layout::text_width(&word) / 2.0;
            let middle = x.clamp(half, (self.place.width - half).max(half));
            if middle - half < free {
                continue;
            }
            free = middle + half + GAP;
            self.path("axis", format!("M{x:.1} {bottom:.1}v5"));
            self.text("tick", middle, bottom + LINE + 2.0, "middle", word);
        }
        self.text("label", right, self.place.height - 4.0, "end", self.chart.x.label.clone());
    }

    fn names(&mut self) {
        let Frame { right, top, bottom, .. } = self.places.frame;
        let height = |index: usize| bottom - self.end(index) * (bottom - top);
        let wanted: Vec<f64> = self.at_end.iter().map(|&(index, _)| height(index) + 4.5).collect();
        let heights = layout::spread_out(&wanted, top + 4.5, bottom + 4.5);
        for ((index, name), height) in std::mem::take(&mut self.at_end).into_iter().zip(heights) {
            let class = format!("name {}", self.chart.series[index].colour.class());
            self.text(&class, right + GAP, height, "start", name);
        }
        let (places, _) = layout::rows(names(&self.in_rows), self.place.width);
        for ((index, name), (x, row)) in std::mem::take(&mut self.in_rows).into_iter().zip(places) {
            let series = &self.chart.series[index];
            let y = LINE * real(2 + row) - 1.0;
            let (kind, outline) = sample(&series.shape, x, y - 4.5);
            self.path(&format!("{kind} {}", series.colour.class()), outline);
            self.text("tick", x + SAMPLE + 5.0, y, "start", name);
        }
    }

    fn path(&mut self, class: &str, outline: String) {
        self.paths.push(Path::new(class, outline));
    }

    fn text(&mut self, class: &str, x: f64, y: f64, anchor: &'static str, words: String) {
        self.texts.push(Text { class: class.to_owned(), x, y, anchor, words });
    }
}

fn names(named: &[(usize, String)]) -> impl Iterator<Item = &str> {
    named.iter().map(|(_, name)| name.as_str())
}

/// Sample of a series, beside its name.
fn sample(shape: &Shape, x: f64, y: f64) -> (&'static str, String) {
    let across = format!("M{x:.1} {y:.1}h{SAMPLE}");
    let square = format!("M{:.1} {:.1}h12v10h-12Z", x + 3.0, y - 5.0);
    match shape {
        Shape::Line(_) | Shape::Steps(_) => ("line", across),
        Shape::Points(_) => ("knots", format!("M{:.1} {y:.1}h0", x + SAMPLE / 2.0)),
        Shape::ErrorBars(_) => ("whisker", format!("M{:.1} {:.1}v10m-4 0h8m-8 -10h8", x + SAMPLE / 2.0, y - 5.0)),
        Shape::Area(_) | Shape::Bars(_) => ("bar", square),
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "pixels of a place over pixels of a word")]
fn whole(count: f64) -> usize {
    count as usize
}
