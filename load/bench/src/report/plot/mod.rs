//! Charts: plain data in, SVG out.
//!
//! Colours, fonts and strokes are classes of the page's stylesheet, so a chart follows the reader's light or dark
//! scheme. Every chart is drawn twice, for wide and for narrow screens, with text of the same size; the stylesheet
//! shows the one that fits. No script is needed.

mod chart;
mod draw;
mod scale;

pub use chart::{Across, Axis, Bar, Chart, Colour, POINTS_MAX, Rule, Series, Shape, Unit};
pub use scale::Spread;

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
            ..Chart::default()
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
        let thin = draw::thinned_line(&line);
        assert!(thin.len() <= POINTS_MAX);
        assert!(thin.contains(&(77_777.0, 5_000.0)));
        let svg = chart(Shape::Points(line.iter().map(|&(x, _)| (x, x * 0.37 % 91.0)).collect())).svg("points");
        assert!(svg.len() < POINTS_MAX * 2 * 30, "{}", svg.len());
    }

    #[test]
    fn a_reader_who_cannot_see_is_told_the_ends_of_each_series() {
        let svg = chart(Shape::Line(vec![(1.0, 464.93), (100.0, 259.6)])).svg("mean");
        assert!(svg.contains("ours: from 465 µs at 1 to 260 µs at 100"), "{svg}");
    }
}
