//! Texts with placeholders that differ from request to request: a counter, seeded random values, rows of a file.
//!
//! The text depends on the [`Turn`] and the seed alone, never on the order of calls or the number of workers, so a seed
//! repeats the same requests.

use std::fmt::{self, Write};
use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, anyhow, bail, ensure};
use rand_core::{RngCore as _, SeedableRng as _};
use rand_xoshiro::SplitMix64;

/// Maximum random bytes of a `{{hex N}}`.
pub const HEX_BYTES_MAX: usize = 1 << 20;

const ALLOWED: &str = "allowed are {{number}}, {{number FIRST}}, {{client}}, {{worker}}, {{random LOW HIGH}}, \
                       {{hex BYTES}}, {{row.COLUMN}} with --rows FILE, and {{{{ for two braces";

/// A request to be made, numbered so that templates can distinguish requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// Number of the request in the run, from 0; unique over all workers.
    pub number: u64,
    /// Number of the client that makes it, from 0.
    pub client: u32,
    /// Number of the worker thread, from 0.
    pub worker: u32,
}

/// Sources of placeholder values.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    pub seed: u64,
    /// For `{{row.COLUMN}}`; request number n has row n modulo their count.
    pub rows: Option<Arc<Rows>>,
}

/// A parsed text with placeholders.
#[derive(Clone, Debug)]
pub struct Template {
    /// No two literals follow each other.
    pieces: Vec<Piece>,
    seed: u64,
    rows: Option<Arc<Rows>>,
}

#[derive(Clone, Debug)]
enum Piece {
    Literal(String),
    Number { first: u64 },
    Client,
    Worker,
    Random { low: i64, high: i64 },
    Hex { count: usize },
    Cell { column: usize },
}

impl Template {
    /// Parses `text`; all its errors are found here, so rendering cannot fail.
    pub fn parse(text: &str, sources: &Sources) -> anyhow::Result<Self> {
        let mut pieces = Vec::new();
        let mut literal = String::new();
        let mut rest = text;
        while let Some(start) = rest.find("{{") {
            literal.push_str(&rest[..start]);
            let from_braces = &rest[start..];
            if let Some(after) = from_braces.strip_prefix("{{{{") {
                literal.push_str("{{");
                rest = after;
                continue;
            }
            let at = text[..text.len() - from_braces.len()].chars().count() + 1;
            let Some(length) = from_braces.find("}}") else {
                bail!("{{{{ at character {at} of the template: no }}}} follows; {ALLOWED}");
            };
            let piece = piece(&from_braces[2..length], sources).map_err(|reason| {
                anyhow!("{} at character {at} of the template: {reason}", &from_braces[..length + 2])
            })?;
            if !literal.is_empty() {
                pieces.push(Piece::Literal(std::mem::take(&mut literal)));
            }
            pieces.push(piece);
            rest = &from_braces[length + 2..];
        }
        literal.push_str(rest);
        if !literal.is_empty() {
            pieces.push(Piece::Literal(literal));
        }
        Ok(Self { pieces, seed: seed(sources.seed, text), rows: sources.rows.clone() })
    }

    /// The text, if it is the same for every request.
    pub fn constant(&self) -> Option<&str> {
        match self.pieces.as_slice() {
            [] => Some(""),
            [Piece::Literal(text)] => Some(text),
            _ => None,
        }
    }

    /// Appends the text for one request.
    pub fn render(&self, turn: Turn, out: &mut impl Write) {
        self.write(turn, out).expect("a text in memory takes every character");
    }

    fn write(&self, turn: Turn, out: &mut impl Write) -> fmt::Result {
        let mut draws = draws(self.seed, turn.number);
        for piece in &self.pieces {
            match piece {
                Piece::Literal(text) => out.write_str(text)?,
                Piece::Number { first } => write!(out, "{}", first.wrapping_add(turn.number))?,
                Piece::Client => write!(out, "{}", turn.client)?,
                Piece::Worker => write!(out, "{}", turn.worker)?,
                Piece::Random { low, high } => write!(out, "{}", between(&mut draws, *low, *high))?,
                Piece::Hex { count } => write_hex(*count, &mut draws, out)?,
                Piece::Cell { column } => {
                    if let Some(rows) = &self.rows {
                        out.write_str(rows.cell(turn.number, *column))?;
                    }
                }
            }
        }
        Ok(())
    }
}

fn piece(inside: &str, sources: &Sources) -> Result<Piece, String> {
    let words: Vec<&str> = inside.split_whitespace().collect();
    match words.as_slice() {
        ["number"] => Ok(Piece::Number { first: 0 }),
        ["number", first] => match first.parse() {
            Ok(first) => Ok(Piece::Number { first }),
            Err(_) => Err(format!("`{first}` is not a number to count from, as in {{{{number 1000}}}}")),
        },
        ["client"] => Ok(Piece::Client),
        ["worker"] => Ok(Piece::Worker),
        ["random", low, high] => match (low.parse(), high.parse()) {
            (Ok(low), Ok(high)) if low <= high => Ok(Piece::Random { low, high }),
            (Ok(_), Ok(_)) => Err(format!("{low} is above {high}; the lower comes first, as in {{{{random 1 100}}}}")),
            _ => Err("write two integers, the lowest and the highest value, as in {{random 1 100}}".into()),
        },
        ["random", ..] => Err("write two integers, the lowest and the highest value, as in {{random 1 100}}".into()),
        ["hex", count] => match count.parse() {
            Ok(count @ 1..=HEX_BYTES_MAX) => Ok(Piece::Hex { count }),
            _ => Err(format!("write a number of bytes from 1 to {HEX_BYTES_MAX}, as in {{{{hex 16}}}}")),
        },
        _ => match inside.trim().strip_prefix("row.") {
            Some(column) => cell(column, sources),
            None => Err(format!("no such placeholder; {ALLOWED}")),
        },
    }
}

fn cell(column: &str, sources: &Sources) -> Result<Piece, String> {
    let rows = sources.rows.as_ref().ok_or("there are no rows; --rows FILE names a CSV file with a header row")?;
    match rows.columns.iter().position(|name| name == column) {
        Some(column) => Ok(Piece::Cell { column }),
        None => Err(format!("no such column; the columns are {}", rows.columns.join(", "))),
    }
}

fn write_hex(count: usize, draws: &mut SplitMix64, out: &mut impl Write) -> fmt::Result {
    const BYTES: usize = size_of::<u64>();
    for _ in 0..count / BYTES {
        write!(out, "{:016x}", draws.next_u64().swap_bytes())?;
    }
    let rest = count % BYTES;
    if rest > 0 {
        out.write_str(&format!("{:016x}", draws.next_u64().swap_bytes())[..rest * 2])?;
    }
    Ok(())
}

/// A seed for one template: two templates of a request must not draw the same values.
fn seed(seed: u64, template: &str) -> u64 {
    template.bytes().fold(mixed(seed), |hash, byte| mixed(hash ^ u64::from(byte)))
}

/// Generator for request `number`. Both are mixed, so that neighbours are not shifted copies of each other.
fn draws(seed: u64, number: u64) -> SplitMix64 {
    SplitMix64::seed_from_u64(mixed(seed ^ mixed(number)))
}

/// An integer from `low` to `high`, both included. Scaling 64 random bits favours some values by at most one part in
/// 2^64 / (high - low), which no load could show.
fn between(draws: &mut SplitMix64, low: i64, high: i64) -> i64 {
    let span = u128::from(high.abs_diff(low)) + 1;
    let offset = (u128::from(draws.next_u64()) * span) >> 64;
    low.wrapping_add_unsigned(u64::try_from(offset).unwrap_or_default())
}

fn mixed(value: u64) -> u64 {
    SplitMix64::seed_from_u64(value).next_u64()
}

/// Maximum size of the file, all of which is kept in memory.
pub const ROWS_BYTES_MAX: u64 = 256 << 20;

/// The rows of a CSV file with a header row.
#[derive(Debug)]
pub struct Rows {
    columns: Vec<String>,
    /// End of each cell in `text`, row by row; a cell begins where the one before it ends.
    ends: Vec<u32>,
    text: String,
    count: u64,
}

impl Rows {
    /// Reads a file of at most [`ROWS_BYTES_MAX`] bytes.
    pub fn read(path: &Path) -> anyhow::Result<Self> {
        let read = || {
            let mut bytes = Vec::new();
            File::open(path)?.take(ROWS_BYTES_MAX + 1).read_to_end(&mut bytes)?;
            ensure!(bytes.len() as u64 <= ROWS_BYTES_MAX, "more than {ROWS_BYTES_MAX} bytes");
            Self::from_csv(&bytes)
        };
        read().with_context(|| format!("rows of {}", path.display()))
    }

    /// Reads CSV text.
    pub fn from_csv(bytes: &[u8]) -> anyhow::Result<Self> {
        let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
        let mut reader = csv::Reader::from_reader(bytes);
        let columns: Vec<String> = reader.headers()?.iter().map(|name| name.trim().to_owned()).collect();
        ensure!(!columns.is_empty(), "empty; a header row with the names of the columns comes first");
        for (number, name) in columns.iter().enumerate() {
            ensure!(!name.is_empty(), "column {} has no name in the header row", number + 1);
            ensure!(!columns[..number].contains(name), "the header row names column `{name}` twice");
        }
        let mut rows = Self { columns, ends: Vec::new(), text: String::new(), count: 0 };
        let mut record = csv::StringRecord::new();
        while reader.read_record(&mut record)? {
            for cell in &record {
                rows.text.push_str(cell);
                rows.ends.push(u32::try_from(rows.text.len()).unwrap_or(u32::MAX));
            }
            rows.count += 1;
        }
        ensure!(rows.count > 0, "no rows follow the header row");
        Ok(rows)
    }

    /// A cell of the row for request `number`.
    fn cell(&self, number: u64, column: usize) -> &str {
        let row = usize::try_from(number % self.count).unwrap_or_default();
        let at = row * self.columns.len() + column;
        let start = if at == 0 { 0 } else { self.ends[at - 1] as usize };
        &self.text[start..self.ends[at] as usize]
    }
}
