//! Draws a chart in one size: margins from text widths, labels that do not overlap, outlines of series as SVG paths, and
//! a description for readers who cannot see it.

use std::collections::HashSet;
use std::fmt::Write as _;

use askama::Template;

use super::chart::{Across, Axis, Chart, POINTS_MAX, Series, Shape, Unit};
use super::scale::{self, Scale, Spread};
use crate::report::units::{self, real};

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
    screen: &'a Screen,
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
        [WIDE, NARROW].map(|screen| svg(self, &screen, id)).concat()
    }
}

fn svg(chart: &Chart, screen: &Screen, id: &str) -> String {
    let mut canvas = Canvas::new(chart, screen);
    canvas.grid();
    canvas.series();
    canvas.rules();
    canvas.x_axis();
    canvas.names();
    let Canvas { paths, texts, .. } = canvas;
    let drawing = Drawing {
        id,
        place: screen.name,
        width: screen.width,
        height: screen.height,
        title: &chart.title,
        about: about(chart),
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
    if axis.ticks.is_empty() { round_ticks(scale, axis.spread, axis.unit, count) } else { axis.ticks.clone() }
}

impl<'a> Canvas<'a> {
    fn new(chart: &'a Chart, screen: &'a Screen) -> Self {
        let x = scale(chart, &chart.x, Across::X, |(x, _)| x);
        let mut y = scale(chart, &chart.y, Across::Y, |(_, y)| y);
        let ticks_y = (screen.height - 4.0 * LINE) / TICK_Y;
        if chart.y.high.is_none() && chart.y.ticks.is_empty() {
            y = y.roomy(whole(ticks_y));
        }
        let y_ticks = ticks(&chart.y, &y, ticks_y);
        let frame = Frame { left: 0.0, top: 0.0, right: 0.0, bottom: 0.0 };
        let places = Places { x, y, frame };
        let (at_end, in_rows, paths, texts) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let mut canvas = Canvas { chart, screen, places, y_ticks, at_end, in_rows, paths, texts };
        canvas.share_out_names();
        let widest = canvas.y_ticks.iter().map(|(_, word)| text_width(word)).fold(0.0, f64::max);
        let (_, rows) = rows(names(&canvas.in_rows), screen.width);
        let at_end = names(&canvas.at_end).map(bold_width).fold(0.0, f64::max);
        canvas.places.frame = Frame {
            left: (widest + GAP).min(screen.width / 3.0),
            top: LINE * real(1 + rows) + GAP + 2.0,
            right: screen.width - if at_end > 0.0 { at_end + GAP } else { GAP },
            bottom: screen.height - 2.0 * LINE - 6.0,
        };
        // Names of vertical lines are above the data.
        let above = canvas.upright().iter().map(|rule| rule.row + 1).max().unwrap_or(0);
        canvas.places.frame.top += LINE * real(above);
        canvas
    }

    /// Vertical lines, each with a row for its name above the frame.
    fn upright(&self) -> Vec<Upright> {
        let rules = self.chart.rules.iter().filter(|rule| rule.across == Across::X);
        let named = rules.filter_map(|rule| Some((self.places.x(rule.at)?, shortened(&rule.label))));
        let mut upright: Vec<Upright> = named
            .map(|(x, words)| {
                let width = text_width(&words);
                let from = (x - width / 2.0).min(self.screen.width - width).max(0.0);
                Upright { x, middle: from + width / 2.0, span: (from, from + width), row: 0, words }
            })
            .collect();
        let rows = free_rows(&upright.iter().map(|rule| rule.span).collect::<Vec<_>>());
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
        let height = self.screen.height - 5.0 * LINE;
        let wanted: Vec<f64> = strokes.iter().map(|&index| (1.0 - self.end(index)) * height).collect();
        let heights = spread_out(&wanted, 0.0, height);
        let has_room = self.screen.name == WIDE.name
            && (2..=NAMED_AT_END_MAX).contains(&strokes.len())
            && wanted.iter().zip(heights).all(|(wanted, height)| (wanted - height).abs() <= LINE);
        let named = named.map(|(index, series)| (index, shortened(&series.label)));
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
            let paths = outlines(&series.shape, &self.places).into_iter();
            self.paths.extend(paths.map(|path| Path { class: format!("{} {colour}", path.class), ..path }));
        }
    }

    fn rules(&mut self) {
        let Frame { left, right, top, bottom } = self.places.frame;
        for rule in self.chart.rules.iter().filter(|rule| rule.across == Across::Y) {
            let Some(y) = self.places.y(rule.at) else { continue };
            let words = shortened(&rule.label);
            self.path("rule", format!("M{left:.1} {y:.1}H{right:.1}"));
            let (x, y) = self.quiet_place(text_width(&words), y);
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
            let half = text_width(&word) / 2.0;
            let middle = x.clamp(half, (self.screen.width - half).max(half));
            if middle - half < free {
                continue;
            }
            free = middle + half + GAP;
            self.path("axis", format!("M{x:.1} {bottom:.1}v5"));
            self.text("tick", middle, bottom + LINE + 2.0, "middle", word);
        }
        self.text("label", right, self.screen.height - 4.0, "end", self.chart.x.label.clone());
    }

    fn names(&mut self) {
        let Frame { right, top, bottom, .. } = self.places.frame;
        let height = |index: usize| bottom - self.end(index) * (bottom - top);
        let wanted: Vec<f64> = self.at_end.iter().map(|&(index, _)| height(index) + 4.5).collect();
        let heights = spread_out(&wanted, top + 4.5, bottom + 4.5);
        for ((index, name), height) in std::mem::take(&mut self.at_end).into_iter().zip(heights) {
            let class = format!("name {}", self.chart.series[index].colour.class());
            self.text(&class, right + GAP, height, "start", name);
        }
        let (places, _) = rows(names(&self.in_rows), self.screen.width);
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

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "pixels of a screen over pixels of a word")]
fn whole(count: f64) -> usize {
    count as usize
}

/// Maximum values of a line with a dot at each.
const DOTS_MAX: usize = 24;

impl Shape {
    pub(super) fn is_empty(&self) -> bool {
        self.corners().is_empty()
    }

    /// All values as `(x, y)`.
    fn corners(&self) -> Vec<(f64, f64)> {
        match self {
            Self::Line(points) | Self::Steps(points) | Self::Area(points) | Self::Points(points) => points.clone(),
            Self::ErrorBars(points) => points.iter().flat_map(|&(x, low, high)| [(x, low), (x, high)]).collect(),
            Self::Bars(bars) => bars.iter().flat_map(|bar| [bar.from, bar.to].map(|x| (x, bar.value))).collect(),
        }
    }

    /// True for confidence intervals.
    fn is_interval(&self) -> bool {
        matches!(self, Self::ErrorBars(_))
    }

    /// True for a stroke, which can have its name at its end.
    fn is_stroke(&self) -> bool {
        matches!(self, Self::Line(_) | Self::Steps(_))
    }
}

/// A path with its class and tooltip.
struct Path {
    class: String,
    outline: String,
    tip: String,
}

impl Path {
    fn new(class: impl Into<String>, outline: String) -> Self {
        Self { class: class.into(), outline, tip: String::new() }
    }
}

/// Converts values to pixels.
struct Places {
    x: Scale,
    y: Scale,
    frame: Frame,
}

impl Places {
    fn x(&self, value: f64) -> Option<f64> {
        Some(self.frame.left + self.x.position(value)? * (self.frame.right - self.frame.left))
    }

    fn y(&self, value: f64) -> Option<f64> {
        Some(self.frame.bottom - self.y.position(value)? * (self.frame.bottom - self.frame.top))
    }

    fn of(&self, shape: &Shape) -> Vec<(f64, f64)> {
        pixels(&shape.corners(), self).into_iter().flatten().collect()
    }
}

fn outlines(shape: &Shape, places: &Places) -> Vec<Path> {
    match shape {
        Shape::Line(points) => line(points, places),
        Shape::Steps(points) => vec![Path::new("line", stepped(&pixels(points, places), None))],
        Shape::Area(points) => {
            let pixels = pixels(points, places);
            let top = stepped(&pixels, None);
            vec![Path::new("area", stepped(&pixels, Some(places.frame.bottom))), Path::new("line", top)]
        }
        Shape::Points(points) => vec![Path::new("dots", dots(points, places))],
        Shape::ErrorBars(points) => vec![Path::new("whisker", whiskers(points, places))],
        Shape::Bars(bars) => bars
            .iter()
            .filter_map(|bar| {
                let (from, to, top) = (places.x(bar.from)?, places.x(bar.to)?, places.y(bar.value)?);
                // A hairline between neighbours, unless they are too narrow.
                let gap = if to - from > 3.0 { 1.0 } else { 0.0 };
                let (left, right, floor) = (from + gap / 2.0, (to - gap / 2.0).max(from + 0.5), places.frame.bottom);
                let path = format!("M{left:.1} {floor:.1}V{top:.1}H{right:.1}V{floor:.1}Z");
                Some(Path { tip: bar.tip.clone(), ..Path::new("bar", path) })
            })
            .collect(),
    }
}

fn line(points: &[(f64, f64)], places: &Places) -> Vec<Path> {
    let thinned = thinned_line(points);
    let mut outlines = vec![Path::new("line", joined(&pixels(&thinned, places)))];
    if points.len() <= DOTS_MAX {
        outlines.push(Path::new("knots", dots(points, places)));
    }
    outlines
}

fn pixels(points: &[(f64, f64)], places: &Places) -> Vec<Option<(f64, f64)>> {
    points.iter().map(|point| Some((places.x(point.0)?, places.y(point.1)?))).collect()
}

fn joined(pixels: &[Option<(f64, f64)>]) -> String {
    let mut path = String::new();
    let mut command = 'M';
    for pixel in pixels {
        match pixel {
            Some((x, y)) => {
                append(&mut path, format_args!("{command}{x:.1} {y:.1}"));
                command = 'L';
            }
            None => command = 'M',
        }
    }
    path
}

/// Steps; with a floor, the outline of the area above it.
fn stepped(pixels: &[Option<(f64, f64)>], floor: Option<f64>) -> String {
    let mut path = String::new();
    for run in pixels.split(Option::is_none) {
        for (index, &(x, y)) in run.iter().flatten().enumerate() {
            match (index, floor) {
                (0, Some(floor)) => append(&mut path, format_args!("M{x:.1} {floor:.1}V{y:.1}")),
                (0, None) => append(&mut path, format_args!("M{x:.1} {y:.1}")),
                _ => append(&mut path, format_args!("H{x:.1}V{y:.1}")),
            }
        }
        if let (Some(floor), false) = (floor, run.is_empty()) {
            append(&mut path, format_args!("V{floor:.1}Z"));
        }
    }
    path
}

/// Dots as strokes of no length, which a round cap makes visible: one path for a series.
fn dots(points: &[(f64, f64)], places: &Places) -> String {
    let mut taken = HashSet::new();
    let mut path = String::new();
    let every = points.len().div_ceil(POINTS_MAX).max(1);
    for point in points.iter().step_by(every) {
        let (Some(x), Some(y)) = (places.x(point.0), places.y(point.1)) else { continue };
        let dot = format!("M{x:.1} {y:.1}h0");
        // Coinciding dots are drawn once.
        if taken.insert(dot.clone()) {
            path.push_str(&dot);
        }
    }
    path
}

fn whiskers(points: &[(f64, f64, f64)], places: &Places) -> String {
    let mut path = String::new();
    for point in points {
        let (Some(x), Some(low), Some(high)) = (places.x(point.0), places.y(point.1), places.y(point.2)) else {
            continue;
        };
        append(&mut path, format_args!("M{x:.1} {low:.1}V{high:.1}"));
        // An end beyond the axis has an arrow instead of a bar.
        for (value, y, inwards) in [(point.1, low, -6.0), (point.2, high, 6.0)] {
            if places.y.holds(value) {
                append(&mut path, format_args!("M{:.1} {y:.1}h8", x - 4.0));
            } else {
                append(&mut path, format_args!("M{:.1} {:.1}l4 {:.1}l4 {inwards:.1}", x - 4.0, y + inwards, -inwards));
            }
        }
    }
    path
}

/// At most [`POINTS_MAX`] points, including the smallest and the largest of every stretch.
pub(super) fn thinned_line(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    if points.len() <= POINTS_MAX {
        return points.to_vec();
    }
    let stretch = points.len().div_ceil(POINTS_MAX / 2);
    let mut thin = Vec::with_capacity(POINTS_MAX);
    for part in points.chunks(stretch) {
        let by_height = |one: &&(f64, f64), other: &&(f64, f64)| one.1.total_cmp(&other.1);
        let (Some(low), Some(high)) = (part.iter().min_by(by_height), part.iter().max_by(by_height)) else { continue };
        let (first, second) = if low.0 <= high.0 { (low, high) } else { (high, low) };
        thin.push(*first);
        if first != second {
            thin.push(*second);
        }
    }
    thin
}

fn append(path: &mut String, arguments: std::fmt::Arguments<'_>) {
    path.write_fmt(arguments).expect("a string takes every character");
}

/// A drawing area. Text has the same size in both, and the stylesheet hardly scales them.
struct Screen {
    /// Class that the stylesheet shows or hides.
    name: &'static str,
    width: f64,
    height: f64,
}

const WIDE: Screen = Screen { name: "wide", width: 640.0, height: 350.0 };
const NARROW: Screen = Screen { name: "narrow", width: 350.0, height: 310.0 };

/// Height of a line of text.
const LINE: f64 = 17.0;
/// Space between neighbours.
const GAP: f64 = 8.0;
/// Width of the sample beside a name.
const SAMPLE: f64 = 30.0;
/// Maximum characters of a name drawn in full.
const LETTERS_MAX: usize = 32;

/// Estimated width of text at the stylesheet's 13 pixels. Fonts differ; this is one of the widest, so that words are
/// rather too far apart than cut.
fn text_width(text: &str) -> f64 {
    let letter = |letter| match letter {
        'i' | 'j' | 'l' | 'I' | '.' | ',' | ':' | ';' | '|' | '\'' | ' ' => 4.6,
        'f' | 'r' | 't' | '-' | '(' | ')' | '/' => 6.0,
        'm' | 'w' | 'M' | 'W' | '%' | '@' | '…' => 12.6,
        _ => 8.4,
    };
    text.chars().map(letter).sum()
}

fn bold_width(text: &str) -> f64 {
    text_width(text) * 1.12
}

fn shortened(text: &str) -> String {
    if text.chars().count() <= LETTERS_MAX {
        return text.to_owned();
    }
    text.chars().take(LETTERS_MAX - 1).chain(['…']).collect()
}

/// The rectangle of the data.
#[derive(Clone, Copy)]
struct Frame {
    left: f64,
    top: f64,
    right: f64,
    bottom: f64,
}

/// Left ends and rows of names with samples in rows of this width, and the number of rows.
fn rows<'a>(names: impl IntoIterator<Item = &'a str>, width: f64) -> (Vec<(f64, usize)>, usize) {
    let mut places = Vec::new();
    let (mut x, mut row) = (0.0, 0);
    for name in names {
        let needs = SAMPLE + 5.0 + text_width(name);
        if x > 0.0 && x + needs > width {
            (x, row) = (0.0, row + 1);
        }
        places.push((x, row));
        x += needs + 2.0 * GAP;
    }
    let rows = if places.is_empty() { 0 } else { row + 1 };
    (places, rows)
}

/// Heights between two ends, as near to the wanted ones as is possible without overlapping text.
fn spread_out(wanted: &[f64], top: f64, bottom: f64) -> Vec<f64> {
    let mut order: Vec<usize> = (0..wanted.len()).collect();
    order.sort_by(|&one, &other| wanted[one].total_cmp(&wanted[other]));
    let mut heights = wanted.to_vec();
    let mut free = top;
    for &index in &order {
        heights[index] = heights[index].max(free);
        free = heights[index] + LINE;
    }
    let mut free = bottom;
    for &index in order.iter().rev() {
        heights[index] = heights[index].min(free);
        free = heights[index] - LINE;
    }
    heights
}

/// First row for each span in which it touches no earlier one.
fn free_rows(spans: &[(f64, f64)]) -> Vec<usize> {
    let mut taken: Vec<Vec<(f64, f64)>> = Vec::new();
    spans
        .iter()
        .map(|&(from, to)| {
            let is_free =
                |row: &Vec<(f64, f64)>| row.iter().all(|&(left, right)| to + GAP < left || from > right + GAP);
            let row = taken.iter().position(is_free).unwrap_or(taken.len());
            if row == taken.len() {
                taken.push(Vec::new());
            }
            taken[row].push((from, to));
            row
        })
        .collect()
}

/// Labels of the ticks of an axis.
fn round_ticks(scale: &Scale, spread: Spread, unit: Unit, count: usize) -> Vec<(f64, String)> {
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
fn about(chart: &Chart) -> String {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_that_want_the_same_height_lie_below_each_other() {
        let heights = spread_out(&[100.0, 101.0, 99.0], 0.0, 200.0);
        assert_eq!(heights, [116.0, 133.0, 99.0]);
        let at_the_bottom = spread_out(&[198.0, 199.0], 0.0, 200.0);
        assert!((at_the_bottom[1] - at_the_bottom[0]).abs() >= LINE - 1e-9);
        assert!(at_the_bottom.iter().all(|&height| height <= 200.0));
    }

    #[test]
    fn names_fill_rows_and_never_share_a_place() {
        let names: Vec<String> = (0..10).map(|number| format!("client {number}")).collect();
        let (places, rows) = rows(names.iter().map(String::as_str), 330.0);
        assert!(rows > 1);
        assert!(places.windows(2).all(|pair| pair[1].1 > pair[0].1 || pair[1].0 > pair[0].0));
        assert!(places.iter().all(|&(x, _)| x + SAMPLE + text_width("client 0") <= 330.0));
    }

    #[test]
    fn spans_that_touch_are_in_different_rows() {
        assert_eq!(free_rows(&[(0.0, 50.0), (40.0, 90.0), (100.0, 120.0)]), [0, 1, 0]);
    }
}
