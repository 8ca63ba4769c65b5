//! Outlines of series as SVG paths, from positions in pixels.

use std::collections::HashSet;
use std::fmt::Write as _;

use super::chart::{POINTS_MAX, Shape};
use super::layout::Frame;
use super::scale::Scale;

/// Maximum values of a line with a dot at each.
const DOTS_MAX: usize = 24;

impl Shape {
    pub(super) fn is_empty(&self) -> bool {
        self.corners().is_empty()
    }

    /// All values as `(x, y)`.
    pub(super) fn corners(&self) -> Vec<(f64, f64)> {
        match self {
            Self::Line(points) | Self::Steps(points) | Self::Area(points) | Self::Points(points) => points.clone(),
            Self::ErrorBars(points) => points.iter().flat_map(|&(x, low, high)| [(x, low), (x, high)]).collect(),
            Self::Bars(bars) => bars.iter().flat_map(|bar| [bar.from, bar.to].map(|x| (x, bar.value))).collect(),
        }
    }

    /// True for confidence intervals.
    pub(super) fn is_interval(&self) -> bool {
        matches!(self, Self::ErrorBars(_))
    }

    /// True for a stroke, which can have its name at its end.
    pub(super) fn is_stroke(&self) -> bool {
        matches!(self, Self::Line(_) | Self::Steps(_))
    }
}

/// A path with its class and tooltip.
pub(super) struct Path {
    pub(super) class: String,
    pub(super) outline: String,
    pub(super) tip: String,
}

impl Path {
    pub(super) fn new(class: impl Into<String>, outline: String) -> Self {
        Self { class: class.into(), outline, tip: String::new() }
    }
}

/// Converts values to pixels.
pub(super) struct Places {
    pub(super) x: Scale,
    pub(super) y: Scale,
    pub(super) frame: Frame,
}

impl Places {
    pub(super) fn x(&self, value: f64) -> Option<f64> {
        Some(self.frame.left + self.x.position(value)? * (self.frame.right - self.frame.left))
    }

    pub(super) fn y(&self, value: f64) -> Option<f64> {
        Some(self.frame.bottom - self.y.position(value)? * (self.frame.bottom - self.frame.top))
    }

    /// The pixels of a shape's values.
    pub(super) fn of(&self, shape: &Shape) -> Vec<(f64, f64)> {
        pixels(&shape.corners(), self).into_iter().flatten().collect()
    }
}

/// Outlines of a shape.
pub(super) fn outlines(shape: &Shape, places: &Places) -> Vec<Path> {
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
