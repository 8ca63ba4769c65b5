//! The line protocol without sockets: bytes in, requests out; and replies as bytes.
//!
//! A line is `<type>:<seed>` in UTF-8. Unicode white space around it is ignored, and so is everything between the first
//! and the last of its `:`-separated fields; a single field is both. Lines do not depend on how bytes are split into
//! reads.

use std::fmt;

use crate::task::{Kind, Task};

/// Prefix of a client's credential, sent before its first task if required.
const TOKEN: &str = "TOKEN ";

/// Requests text replies.
const HELLO: &str = "HELLO 2";

/// A parsed line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Line {
    /// A task to run.
    Task(Task),
    /// Switches to text replies.
    Hello,
    /// A credential; never answered, and ignored if none is required.
    Token(String),
    /// An invalid line.
    Bad(BadLine),
}

/// Reason why a line is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadLine {
    /// The first field is not a type.
    #[error("the type is {0}; it must be 0 (CPU) or 1 (I/O), as in 0:42")]
    Type(Quoted),
    /// The last field is not a seed.
    #[error("the seed is {0}; it must be a whole number from 0 to 18446744073709551615, as in 0:42")]
    Seed(Quoted),
    /// The line is not UTF-8.
    #[error("the line {0} is not UTF-8; it must be a type and a seed, as in 0:42")]
    NotText(Quoted),
    /// The line exceeds the limit.
    #[error(
        "the line is longer than the server's limit tasks.line_bytes, {0}; it must be a type and a seed, as in 0:42"
    )]
    Long(usize),
}

impl BadLine {
    /// Names of all reasons, for metrics that show them from the start.
    pub const NAMES: [&'static str; 4] = ["type", "seed", "long", "not text"];

    /// Index of its reason in [`Self::NAMES`].
    pub(crate) const fn place(&self) -> usize {
        match self {
            Self::Type(_) => 0,
            Self::Seed(_) => 1,
            Self::Long(_) => 2,
            Self::NotText(_) => 3,
        }
    }
}

/// Excerpt of received text, shortened and escaped to one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quoted(String);

impl Quoted {
    /// Limit of an excerpt, in received bytes.
    const BYTES_MAX: usize = 32;

    fn new(bytes: &[u8]) -> Self {
        let shown = &bytes[..bytes.len().min(Self::BYTES_MAX)];
        let more = if shown.len() < bytes.len() { "..." } else { "" };
        Self(format!("'{}'{more}", shown.escape_ascii()))
    }
}

impl fmt::Display for Quoted {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// Parses one line, with or without its end.
pub fn parse(line: &[u8]) -> Line {
    let Ok(text) = str::from_utf8(line) else { return Line::Bad(BadLine::NotText(Quoted::new(line))) };
    let text = text.trim();
    if text == HELLO {
        return Line::Hello;
    }
    if let Some(token) = text.strip_prefix(TOKEN) {
        return Line::Token(token.trim().to_owned());
    }
    // Both exist in any line: splitting gives at least one field.
    let first = text.split(':').next().unwrap_or_default();
    let last = text.rsplit(':').next().unwrap_or_default();
    // A number may have a plus and leading zeros.
    let kind = first.parse().ok().and_then(Kind::from_number);
    match (kind, last.parse()) {
        (Some(kind), Ok(seed)) => Line::Task(Task::new(kind, seed)),
        (None, _) => Line::Bad(BadLine::Type(Quoted::new(first.as_bytes()))),
        (_, Err(_)) => Line::Bad(BadLine::Seed(Quoted::new(last.as_bytes()))),
    }
}

/// Splits bytes into lines; buffers only an incomplete line.
#[derive(Debug)]
pub struct Lines {
    part: Vec<u8>,
    line_bytes_max: usize,
    /// True while the rest of an overlong line is skipped.
    skipping: bool,
}

impl Lines {
    /// Limits lines to `line_bytes_max` bytes before their end.
    pub const fn new(line_bytes_max: usize) -> Self {
        Self { part: Vec::new(), line_bytes_max, skipping: false }
    }

    /// Takes the next line off `input`. `None` if more bytes are needed; then `input` is empty.
    pub fn next(&mut self, input: &mut &[u8]) -> Option<Line> {
        while !input.is_empty() {
            let Some(end) = input.iter().position(|byte| *byte == b'\n') else {
                let rest = std::mem::take(input);
                return self.store(rest);
            };
            let line = &input[..end];
            *input = &input[end + 1..];
            if std::mem::take(&mut self.skipping) {
                continue;
            }
            if self.part.len() + line.len() > self.line_bytes_max {
                self.part = Vec::new();
                return Some(Line::Bad(BadLine::Long(self.line_bytes_max)));
            }
            if self.part.is_empty() {
                return Some(parse(line));
            }
            self.part.extend_from_slice(line);
            // Frees the memory, so that a client waiting for its reply costs no more than a silent one.
            return Some(parse(&std::mem::take(&mut self.part)));
        }
        None
    }

    /// Returns an unfinished line at the end of the input.
    pub fn finish(&mut self) -> Option<Line> {
        let part = std::mem::take(&mut self.part);
        (!part.is_empty()).then(|| parse(&part))
    }

    /// Buffers the beginning of a line, unless it is too long.
    fn store(&mut self, rest: &[u8]) -> Option<Line> {
        if self.skipping {
            return None;
        }
        if self.part.len() + rest.len() > self.line_bytes_max {
            self.part = Vec::new();
            self.skipping = true;
            return Some(Line::Bad(BadLine::Long(self.line_bytes_max)));
        }
        self.part.extend_from_slice(rest);
        None
    }
}

/// Reply format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Form {
    /// A byte for each result.
    #[default]
    Byte,
    /// A line for each request.
    Text,
}

impl Form {
    /// Appends a result.
    pub fn write(self, result: u8, into: &mut Vec<u8>) {
        match self {
            Self::Byte => into.push(result),
            Self::Text => write_line(into, format_args!("OK {result}")),
        }
    }
}

/// Appends an error in text form.
pub fn write_error(reason: &impl fmt::Display, into: &mut Vec<u8>) {
    write_line(into, format_args!("ERR {reason}"));
}

fn write_line(into: &mut Vec<u8>, line: fmt::Arguments<'_>) {
    use std::io::Write as _;
    // Writing to memory does not fail.
    let _ = writeln!(into, "{line}");
}
