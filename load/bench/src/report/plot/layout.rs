//! Layout of a chart: margins from text widths, names in rows, labels that do not overlap.

/// A drawing area. Text has the same size in both, and the stylesheet hardly scales them.
pub(super) struct Place {
    /// Class that the stylesheet shows or hides.
    pub(super) name: &'static str,
    pub(super) width: f64,
    pub(super) height: f64,
}

pub(super) const WIDE: Place = Place { name: "wide", width: 640.0, height: 350.0 };
pub(super) const NARROW: Place = Place { name: "narrow", width: 350.0, height: 310.0 };

/// Height of a line of text.
pub(super) const LINE: f64 = 17.0;
/// Space between neighbours.
pub(super) const GAP: f64 = 8.0;
/// Width of the sample beside a name.
pub(super) const SAMPLE: f64 = 30.0;
/// Maximum characters of a name drawn in full.
const LETTERS_MAX: usize = 32;

/// Estimated width of text at the stylesheet's 13 pixels. Fonts differ; this is one of the widest, so that words are
/// rather too far apart than cut.
pub(super) fn text_width(text: &str) -> f64 {
    let letter = |letter| match letter {
        'i' | 'j' | 'l' | 'I' | '.' | ',' | ':' | ';' | '|' | '\'' | ' ' => 4.6,
        'f' | 'r' | 't' | '-' | '(' | ')' | '/' => 6.0,
        'm' | 'w' | 'M' | 'W' | '%' | '@' | '…' => 12.6,
        _ => 8.4,
    };
    text.chars().map(letter).sum()
}

/// Estimated width of bold text.
pub(super) fn bold_width(text: &str) -> f64 {
    text_width(text) * 1.12
}

/// Shortens a long name.
pub(super) fn shortened(text: &str) -> String {
    if text.chars().count() <= LETTERS_MAX {
        return text.to_owned();
    }
    text.chars().take(LETTERS_MAX - 1).chain(['…']).collect()
}

/// The rectangle of the data.
#[derive(Clone, Copy)]
pub(super) struct Frame {
    pub(super) left: f64,
    pub(super) top: f64,
    pub(super) right: f64,
    pub(super) bottom: f64,
}

/// Left ends and rows of names with samples in rows of this width, and the number of rows.
pub(super) fn rows<'a>(names: impl IntoIterator<Item = &'a str>, width: f64) -> (Vec<(f64, usize)>, usize) {
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
pub(super) fn spread_out(wanted: &[f64], top: f64, bottom: f64) -> Vec<f64> {
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
pub(super) fn free_rows(spans: &[(f64, f64)]) -> Vec<usize> {
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
