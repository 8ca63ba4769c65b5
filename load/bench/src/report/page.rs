//! A self-contained page of figures, tables and charts: no script, no font, no request.
//!
//! Blocks are plain data; the template adds markup and escapes all text, because targets, labels and errors come from
//! outside.

use std::fmt;

use askama::Template;

use super::plot::Chart;

/// Longest unbroken word in the first column of a table.
const LETTERS_MAX: usize = 18;

/// A table with more columns is too wide for a narrow screen.
const NARROW_COLUMNS_MAX: usize = 3;

/// A page under construction, from top to bottom.
#[derive(Template)]
#[template(path = "page.html")]
#[must_use]
pub struct Page {
    title: String,
    lead: String,
    origin: String,
    footer: String,
    blocks: Vec<Block>,
    charts: usize,
}

enum Block {
    Heading(String),
    Paragraph(String),
    Banner(Banner),
    Cards(Vec<Card>),
    Tables(Vec<Table>),
    Figures(Vec<Drawn>),
}

/// Emphasis of a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tone {
    /// No emphasis.
    #[default]
    Plain,
    /// To look at first.
    Main,
    /// As expected.
    Good,
    /// To read before the figures.
    Warning,
    /// Something wrong.
    Bad,
}

impl Tone {
    fn class(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Main => "main",
            Self::Good => "good",
            Self::Warning => "warn",
            Self::Bad => "bad",
        }
    }
}

/// A message across the page.
#[derive(Clone, Debug, Default)]
pub struct Banner {
    pub tone: Tone,
    /// Value of `data-verdict`, for programs.
    pub key: String,
    pub title: String,
    /// Explanation in a sentence.
    pub words: String,
    pub reasons: Vec<String>,
}

impl Banner {
    pub fn new(tone: Tone, [key, title, words]: [&str; 3], reasons: Vec<String>) -> Self {
        Self { tone, key: key.to_owned(), title: title.to_owned(), words: words.to_owned(), reasons }
    }
}

/// Text shown in one place; for a figure, also its key and full value.
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct Value {
    pub text: String,
    /// Value of `data-figure`, for programs; empty if the text is no figure.
    pub key: String,
    /// Value with all digits, for programs.
    pub exact: String,
    pub is_bad: bool,
}

impl Value {
    pub fn text(text: impl Into<String>) -> Self {
        Self { text: text.into(), ..Self::default() }
    }

    /// A figure: its key, full value and text.
    pub fn figure(key: impl Into<String>, exact: impl fmt::Display, text: impl Into<String>) -> Self {
        Self { text: text.into(), key: key.into(), exact: format!("{exact}"), is_bad: false }
    }

    pub fn bad(self, is_bad: bool) -> Self {
        Self { is_bad, ..self }
    }

    /// True if a word would widen a column too far.
    fn is_long(&self) -> bool {
        self.text.split_whitespace().any(|word| word.chars().count() > LETTERS_MAX)
    }

    fn amount(&self) -> &str {
        self.parts().0
    }

    fn unit(&self) -> &str {
        self.parts().1
    }

    /// The text before and after the last space, unless the latter is a number.
    fn parts(&self) -> (&str, &str) {
        match self.text.rsplit_once(' ') {
            Some((amount, unit)) if !unit.starts_with(|first: char| first.is_ascii_digit()) => (amount, unit),
            _ => (&self.text, ""),
        }
    }
}

/// A headline figure.
#[derive(Clone, Debug, Default)]
pub struct Card {
    pub name: String,
    /// Amount and unit, with a space between.
    pub value: Value,
    /// Context shown beside the value; may be empty.
    pub note: String,
    pub tone: Tone,
}

/// A column of a table.
#[derive(Clone, Debug)]
pub struct Column {
    pub name: String,
    /// Numbers are aligned right.
    pub is_number: bool,
}

/// A table whose first column names the rows.
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct Table {
    pub caption: String,
    pub columns: Vec<Column>,
    pub rows: Vec<Vec<Value>>,
}

impl Table {
    /// A table with a text column and then number columns.
    pub fn of_numbers<'a>(
        caption: impl Into<String>,
        heads: impl IntoIterator<Item = &'a str>,
        rows: impl IntoIterator<Item = Vec<Value>>,
    ) -> Self {
        let heads = heads.into_iter().enumerate();
        let columns = heads.map(|(index, name)| Column { name: name.to_owned(), is_number: index > 0 }).collect();
        Self { caption: caption.into(), columns, rows: rows.into_iter().collect() }
    }

    /// A table of names and text without headings.
    pub fn of_facts(caption: impl Into<String>, facts: impl IntoIterator<Item = (String, String)>) -> Self {
        let columns = [(); 2].map(|()| Column { name: String::new(), is_number: false }).into();
        let rows = facts.into_iter().map(|(name, words)| vec![Value::text(name), Value::text(words)]).collect();
        Self { caption: caption.into(), columns, rows }
    }

    /// True if a narrow screen needs the rows as lists.
    fn is_wide(&self) -> bool {
        self.columns.len() > NARROW_COLUMNS_MAX
    }

    fn has_heads(&self) -> bool {
        self.columns.iter().any(|column| !column.name.is_empty())
    }

    fn cells<'a>(&'a self, row: &'a [Value]) -> impl Iterator<Item = (&'a Value, &'a Column)> {
        row.iter().zip(&self.columns)
    }
}

struct Drawn {
    title: String,
    caption: String,
    svg: String,
}

impl Page {
    /// `lead` is the line below the title, `origin` that with time, tool and machine of the measurement.
    pub fn new(title: impl Into<String>, lead: impl Into<String>, origin: impl Into<String>) -> Self {
        let (title, lead, origin) = (title.into(), lead.into(), origin.into());
        Self { title, lead, origin, footer: String::new(), blocks: Vec::new(), charts: 0 }
    }

    /// Sets the last line.
    pub fn footer(self, words: impl Into<String>) -> Self {
        Self { footer: words.into(), ..self }
    }

    pub fn heading(self, words: impl Into<String>) -> Self {
        self.block(Block::Heading(words.into()))
    }

    pub fn paragraph(self, words: impl Into<String>) -> Self {
        self.block(Block::Paragraph(words.into()))
    }

    pub fn banner(self, banner: Banner) -> Self {
        self.block(Block::Banner(banner))
    }

    pub fn cards(self, cards: Vec<Card>) -> Self {
        self.block(Block::Cards(cards))
    }

    pub fn table(self, table: Table) -> Self {
        self.tables(vec![table])
    }

    /// Adds tables, side by side where there is room.
    pub fn tables(self, tables: Vec<Table>) -> Self {
        self.block(Block::Tables(tables))
    }

    /// Adds charts, side by side where there is room.
    pub fn charts(mut self, charts: Vec<Chart>) -> Self {
        let drawn = charts.into_iter().map(|chart| {
            self.charts += 1;
            let svg = chart.svg(&format!("chart-{}", self.charts));
            Drawn { svg, title: chart.title, caption: chart.caption }
        });
        let drawn = drawn.collect();
        self.block(Block::Figures(drawn))
    }

    pub fn finish(&self) -> String {
        self.render().expect("the template writes into a string")
    }

    /// Parts of the title, between which a narrow page may break it.
    fn title_parts(&self) -> impl Iterator<Item = &str> {
        self.title.split_inclusive(['.', '/', ':', '?', '&'])
    }

    fn block(mut self, block: Block) -> Self {
        self.blocks.push(block);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::plot::{Axis, Unit};

    fn chart() -> Chart {
        let axes = (Axis::linear("clients", Unit::Count), Axis::linear("mean", Unit::Micros).from(0.0));
        Chart::of_lines("Mean time by clients", "", axes, [("buy", vec![(1.0, 464.93), (10.0, 263.2)])])
    }

    #[test]
    fn every_word_is_escaped_wherever_it_stands() {
        let evil = "\"'><script>alert(1)</script>{{ 7 * 7 }}";
        let value = Value::figure(evil, evil, evil);
        let banner = Banner {
            key: evil.into(),
            title: evil.into(),
            words: evil.into(),
            reasons: vec![evil.into()],
            ..Banner::default()
        };
        let page = Page::new(evil, evil, evil)
            .heading(evil)
            .paragraph(evil)
            .banner(banner)
            .cards(vec![Card { name: evil.into(), value: value.clone(), note: evil.into(), tone: Tone::Main }])
            .table(Table::of_numbers(evil, [evil, evil], [vec![value.clone(), value]]))
            .charts(vec![Chart { title: evil.into(), caption: evil.into(), ..chart() }])
            .footer(evil)
            .finish();
        assert!(!page.contains("<script"));
        assert!(!page.contains("\"'>"));
        assert!(page.contains("{{ 7 * 7 }}"));
    }

    #[test]
    fn a_page_asks_for_nothing_from_elsewhere() {
        let page = Page::new("Answers", "", "").charts(vec![chart(), chart()]).finish();
        for asking in ["http://", "https://", "<script", "@import", "url(", "<img", "src="] {
            assert!(!page.contains(asking), "{asking}");
        }
    }

    #[test]
    fn figures_can_be_read_with_all_their_digits() {
        let page = Page::new("Answers", "", "")
            .cards(vec![Card { value: Value::figure("p99_us", 26_320.123_456_7, "26.3 ms"), ..Card::default() }])
            .table(Table::of_numbers(
                "Buys",
                ["clients", "mean"],
                [vec![Value::text("10"), Value::figure("mean_us", 263.2, "263 µs")]],
            ))
            .finish();
        assert!(page.contains("<data value=\"26320.1234567\" data-figure=\"p99_us\">26.3 <small>ms</small></data>"));
        assert!(page.contains("<data value=\"263.2\" data-figure=\"mean_us\">263 µs</data>"));
    }

    #[test]
    fn charts_of_a_page_have_identifiers_of_their_own() {
        let page = Page::new("Answers", "", "").charts(vec![chart()]).charts(vec![chart(), chart()]).finish();
        for number in 1..=3 {
            assert_eq!(page.matches(&format!("id=\"chart-{number}-wide-title\"")).count(), 1);
        }
    }
}
