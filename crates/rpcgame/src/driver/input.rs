//! The pairs a client sends, from a text file of `name,count` lines. Must not know a transport.

use std::path::Path;
use std::{fs, io};

use crate::number;

/// A name and its number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pair {
    /// Any bytes.
    pub name: Box<[u8]>,
    /// Any number.
    pub count: u64,
}

/// Pairs in the order of their lines; never empty.
#[derive(Clone, Debug)]
pub struct Input {
    pairs: Vec<Pair>,
    skipped: usize,
}

/// Why there is no input.
#[derive(Debug, thiserror::Error)]
pub enum InputError {
    /// The file.
    #[error("cannot read {path}: {error}")]
    File {
        /// Its name.
        path: String,
        /// What the system says.
        error: io::Error,
    },
    /// Nothing to send.
    #[error("{path} has no line as name,count: of its {lines} lines none has a comma and a number below 2^64 after it")]
    NoPair {
        /// The file's name.
        path: String,
        /// How many there are.
        lines: usize,
    },
}

impl Input {
    /// Reads a file.
    pub fn read(path: &Path) -> Result<Self, InputError> {
        let shown = || path.display().to_string();
        let text = fs::read(path).map_err(|error| InputError::File { path: shown(), error })?;
        let input = Self::parse(&text);
        if input.pairs.is_empty() {
            return Err(InputError::NoPair { path: shown(), lines: input.skipped });
        }
        Ok(input)
    }

    fn parse(text: &[u8]) -> Self {
        let lines = text.strip_suffix(b"\n").unwrap_or(text).split(|byte| *byte == b'\n');
        let read: Vec<Option<Pair>> = lines.map(pair).collect();
        let lines = read.len();
        let pairs: Vec<Pair> = read.into_iter().flatten().collect();
        Self { skipped: lines - pairs.len(), pairs }
    }

    /// Pairs made otherwise; none if there are none.
    pub fn new(pairs: Vec<Pair>) -> Option<Self> {
        (!pairs.is_empty()).then_some(Self { pairs, skipped: 0 })
    }

    /// The pairs, each once.
    pub fn pairs(&self) -> &[Pair] {
        &self.pairs
    }

    /// Lines that are no pair.
    pub fn skipped(&self) -> usize {
        self.skipped
    }

    /// Every pair with its place, over and over, from the first.
    pub fn cycle(&self) -> impl Iterator<Item = (usize, &Pair)> {
        self.pairs.iter().enumerate().cycle()
    }
}

/// The number follows the last comma, so that a name may have commas of its own.
fn pair(line: &[u8]) -> Option<Pair> {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let comma = line.iter().rposition(|byte| *byte == b',')?;
    let (name, count) = (&line[..comma], &line[comma + 1..]);
    Some(Pair { name: name.into(), count: number::parse(count.trim_ascii()).ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_without_a_comma_or_a_number_are_skipped() {
        let text = b"a,1\nno comma\nb,\nc,x\nd,-1\n\n,7\r\ne,f, 8 \n\xff\xfe,9\ng,18446744073709551616\nlast,10";
        let input = Input::parse(text);
        let pairs: Vec<(&[u8], u64)> = input.pairs().iter().map(|pair| (&*pair.name, pair.count)).collect();
        assert_eq!(pairs, [(&b"a"[..], 1), (b"", 7), (b"e,f", 8), (b"\xff\xfe", 9), (b"last", 10)]);
        assert_eq!(input.skipped(), 6);
    }

    #[test]
    fn a_file_without_a_pair_is_refused_by_name() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), "nothing\nhere\n").unwrap();
        let error = Input::read(file.path()).unwrap_err().to_string();
        assert!(error.contains("no line as name,count") && error.contains("2 lines"), "{error}");
        let error = Input::read(Path::new("/nowhere/at/all")).unwrap_err().to_string();
        assert!(error.starts_with("cannot read /nowhere/at/all"), "{error}");
    }
}
