//! A page of figures, tables and charts in one file that needs nothing else: no script, no font, no request.
//!
//! The blocks are plain data; the template gives them their markup and escapes every word, for targets, labels and
//! errors come from outside. Must not know what is measured.

use std::fmt;

use askama::Template;

use super::plot::Chart;

/// Longest word that is not broken in the first column of a table.
const LETTERS_MAX: usize = 18;

/// A table with more columns is too wide for a narrow screen.
const NARROW_COLUMNS_MAX: usize = 3;

/// A page that is being put together, from top to bottom.
#[derive(Template)]
#[template(path = "page.html")]
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

/// How a block looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tone {
    /// Nothing in particular.
    #[default]
    Plain,
    /// The one to look at first.
    Main,
    /// As it should be.
    Good,
    /// To be read before the figures.
    Warning,
    /// Wrong.
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
    /// How it looks.
    pub tone: Tone,
    /// For programs: what `data-verdict` says.
    pub key: String,
    /// In a word or two.
    pub title: String,
    /// In a sentence.
    pub words: String,
    /// One after another.
    pub reasons: Vec<String>,
}

impl Banner {
    /// All of it.
    pub fn new(tone: Tone, [key, title, words]: [&str; 3], reasons: Vec<String>) -> Self {
        Self { tone, key: key.to_owned(), title: title.to_owned(), words: words.to_owned(), reasons }
    }
}

/// What is shown in one place: words, and where they stand for a figure its key and its value in full.
#[derive(Clone, Debug, Default)]
pub struct Value {
    /// For people.
    pub text: String,
    /// For programs: what `data-figure` says; empty if the words are no figure.
    pub key: String,
    /// For programs: the value with all its digits.
    pub exact: String,
    /// Whether it tells of something wrong.
    pub is_bad: bool,
}

impl Value {
    /// Words.
    pub fn text(text: impl Into<String>) -> Self {
        Self { text: text.into(), ..Self::default() }
    }

    /// A figure: its key, its value in full and how it is shown.
    pub fn figure(key: impl Into<String>, exact: impl fmt::Display, text: impl Into<String>) -> Self {
        Self { text: text.into(), key: key.into(), exact: format!("{exact}"), is_bad: false }
    }

    /// Marked as something wrong, if it is.
    #[must_use]
    pub fn bad(self, is_bad: bool) -> Self {
        Self { is_bad, ..self }
    }

    /// Whether it has a word that would widen a column too far.
    fn is_long(&self) -> bool {
        self.text.split_whitespace().any(|word| word.chars().count() > LETTERS_MAX)
    }

    fn amount(&self) -> &str {
        self.parts().0
    }

    fn unit(&self) -> &str {
        self.parts().1
    }

    /// What stands before the last space and what behind it, unless that is a number too.
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
    /// What it is.
    pub name: String,
    /// Amount and unit, with a space between.
    pub value: Value,
    /// What it is to be seen beside; may be empty.
    pub note: String,
    /// How it looks.
    pub tone: Tone,
}

/// A column of a table.
#[derive(Clone, Debug)]
pub struct Column {
    /// Its head.
    pub name: String,
    /// Numbers stand at the right.
    pub is_number: bool,
}

/// A table whose first column names the rows.
#[derive(Clone, Debug, Default)]
pub struct Table {
    /// What it shows.
    pub caption: String,
    /// Its columns; a row's further cells are not shown.
    pub columns: Vec<Column>,
    /// Its rows.
    pub rows: Vec<Vec<Value>>,
}

impl Table {
    /// A table without rows, with a column of words and then columns of numbers.
    pub fn of_numbers<'a>(caption: impl Into<String>, heads: impl IntoIterator<Item = &'a str>) -> Self {
        let heads = heads.into_iter().enumerate();
        let columns = heads.map(|(index, name)| Column { name: name.to_owned(), is_number: index > 0 }).collect();
        Self { caption: caption.into(), columns, rows: Vec::new() }
    }

    /// A table of names and words without heads.
    pub fn of_facts(caption: impl Into<String>, facts: impl IntoIterator<Item = (String, String)>) -> Self {
        let columns = [(); 2].map(|()| Column { name: String::new(), is_number: false }).into();
        let rows = facts.into_iter().map(|(name, words)| vec![Value::text(name), Value::text(words)]).collect();
        Self { caption: caption.into(), columns, rows }
    }

    /// With another row.
    #[must_use]
    pub fn row(mut self, cells: impl IntoIterator<Item = Value>) -> Self {
        self.rows.push(cells.into_iter().collect());
        self
    }

    /// Whether a narrow place needs its rows as lists.
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
    /// An empty page.
    pub fn new(title: impl Into<String>) -> Self {
        let [lead, origin, footer] = [const { String::new() }; 3];
        Self { title: title.into(), lead, origin, footer, blocks: Vec::new(), charts: 0 }
    }

    /// With a line below the title.
    #[must_use]
    pub fn lead(self, words: impl Into<String>) -> Self {
        Self { lead: words.into(), ..self }
    }

    /// With a line that says when, with what and on which machine it was measured.
    #[must_use]
    pub fn origin(self, words: impl Into<String>) -> Self {
        Self { origin: words.into(), ..self }
    }

    /// With a line at the end.
    #[must_use]
    pub fn footer(self, words: impl Into<String>) -> Self {
        Self { footer: words.into(), ..self }
    }

    /// With a heading.
    #[must_use]
    pub fn heading(self, words: impl Into<String>) -> Self {
        self.block(Block::Heading(words.into()))
    }

    /// With a paragraph.
    #[must_use]
    pub fn paragraph(self, words: impl Into<String>) -> Self {
        self.block(Block::Paragraph(words.into()))
    }

    /// With a message across the page.
    #[must_use]
    pub fn banner(self, banner: Banner) -> Self {
        self.block(Block::Banner(banner))
    }

    /// With headline figures.
    #[must_use]
    pub fn cards(self, cards: Vec<Card>) -> Self {
        self.block(Block::Cards(cards))
    }

    /// With a table.
    #[must_use]
    pub fn table(self, table: Table) -> Self {
        self.tables(vec![table])
    }

    /// With tables beside each other where there is room.
    #[must_use]
    pub fn tables(self, tables: Vec<Table>) -> Self {
        self.block(Block::Tables(tables))
    }

    /// With a chart.
    #[must_use]
    pub fn chart(self, chart: Chart) -> Self {
        self.charts(vec![chart])
    }

    /// With charts beside each other where there is room.
    #[must_use]
    pub fn charts(mut self, charts: Vec<Chart>) -> Self {
        let drawn = charts.into_iter().map(|chart| {
            self.charts += 1;
            let svg = chart.svg(&format!("chart-{}", self.charts));
            Drawn { svg, title: chart.title, caption: chart.caption }
        });
        let drawn = drawn.collect();
        self.block(Block::Figures(drawn))
    }

    /// The page as a file's text.
    pub fn finish(&self) -> String {
        self.render().expect("the template writes into a string")
    }

    /// The title in parts between which a narrow page may break it.
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
        let page = Page::new(evil)
            .lead(evil)
            .origin(evil)
            .heading(evil)
            .paragraph(evil)
            .banner(banner)
            .cards(vec![Card { name: evil.into(), value: value.clone(), note: evil.into(), tone: Tone::Main }])
            .table(Table::of_numbers(evil, [evil, evil]).row([value.clone(), value]))
            .chart(Chart { title: evil.into(), caption: evil.into(), ..chart() })
            .footer(evil)
            .finish();
        assert!(!page.contains("<script"));
        assert!(!page.contains("\"'>"));
        assert!(page.contains("{{ 7 * 7 }}"));
    }

    #[test]
    fn a_page_asks_for_nothing_from_elsewhere() {
        let page = Page::new("Answers").chart(chart()).chart(chart()).finish();
        for asking in ["http://", "https://", "<script", "@import", "url(", "<img", "src="] {
            assert!(!page.contains(asking), "{asking}");
        }
    }

    #[test]
    fn figures_can_be_read_with_all_their_digits() {
        let page = Page::new("Answers")
            .cards(vec![Card { value: Value::figure("p99_us", 26_320.123_456_7, "26.3 ms"), ..Card::default() }])
            .table(
                Table::of_numbers("Buys", ["clients", "mean"])
                    .row([Value::text("10"), Value::figure("mean_us", 263.2, "263 µs")]),
            )
            .finish();
        assert!(page.contains("<data value=\"26320.1234567\" data-figure=\"p99_us\">26.3 <small>ms</small></data>"));
        assert!(page.contains("<data value=\"263.2\" data-figure=\"mean_us\">263 µs</data>"));
    }

    #[test]
    fn charts_of_a_page_have_identifiers_of_their_own() {
        let page = Page::new("Answers").chart(chart()).charts(vec![chart(), chart()]).finish();
        for number in 1..=3 {
            assert_eq!(page.matches(&format!("id=\"chart-{number}-wide-title\"")).count(), 1);
        }
    }
}
