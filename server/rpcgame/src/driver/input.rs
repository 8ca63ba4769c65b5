//! Input of a client: pairs from a text file of `name,count` lines.
//!
//! Parsing follows the published client, as both sides' checksums depend on it: the name precedes the first comma of a
//! line, the count is the decimal digits right after that comma, and the rest is ignored. Only a line feed ends a line,
//! and names are raw bytes: a carriage return, a NUL, or invalid UTF-8 belongs to the name.

use std::path::Path;
use std::{fs, io};

use crate::number;

/// A name and its count.
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

/// Reason why there is no input.
#[derive(Debug, thiserror::Error)]
pub enum InputError {
    /// The file cannot be read.
    #[error("cannot read {path}: {error}")]
    File {
        /// Its name.
        path: String,
        /// The system's error.
        error: io::Error,
    },
    /// The file has no pair.
    #[error(
        "{path} has no line as name,count: of its {lines} lines none has a number below 2^64 right behind its first \
         comma"
    )]
    NoPair {
        /// The file's name.
        path: String,
        /// Number of lines.
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

    /// Input from pairs in memory; `None` for an empty list.
    pub fn new(pairs: Vec<Pair>) -> Option<Self> {
        (!pairs.is_empty()).then_some(Self { pairs, skipped: 0 })
    }

    /// The pairs, each once.
    pub fn pairs(&self) -> &[Pair] {
        &self.pairs
    }

    /// Number of lines that are not pairs.
    pub fn skipped(&self) -> usize {
        self.skipped
    }

    /// Every pair with its index, repeated endlessly.
    pub fn cycle(&self) -> impl Iterator<Item = (usize, &Pair)> {
        self.pairs.iter().enumerate().cycle()
    }
}

fn pair(line: &[u8]) -> Option<Pair> {
    let comma = line.iter().position(|byte| *byte == b',')?;
    let (name, behind) = (&line[..comma], &line[comma + 1..]);
    let digits = behind.iter().take_while(|byte| byte.is_ascii_digit()).count();
    Some(Pair { name: name.into(), count: number::parse(&behind[..digits]).ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(line: &[u8], pair: Option<(&[u8], u64)>) {
        let shown = line.escape_ascii();
        for text in [line.to_vec(), [line, b"\n"].concat()] {
            let input = Input::parse(&text);
            let pairs: Vec<(&[u8], u64)> = input.pairs().iter().map(|pair| (&*pair.name, pair.count)).collect();
            assert_eq!(pairs, pair.into_iter().collect::<Vec<_>>(), "{shown}");
            assert_eq!(input.skipped(), usize::from(pair.is_none()), "{shown}");
        }
    }

    #[test]
    fn the_name_ends_at_the_first_comma_and_the_count_with_its_digits() {
        let table: [(&[u8], &[u8], u64); 17] = [
            (b"a,1", b"a", 1),
            (b",7", b"", 7),
            (b"x,7,9", b"x", 7),
            (b"a,12abc", b"a", 12),
            (b"a,0x10", b"a", 0),
            (b"a,1.5", b"a", 1),
            (b"a,3 4", b"a", 3),
            (b" a ,5", b" a ", 5),
            (b"a,5\r", b"a", 5),
            (b"a\r,5", b"a\r", 5),
            (b"\r\xef\xbb\xbfa,5", b"\r\xef\xbb\xbfa", 5),
            (b"a\0b,5\x006", b"a\0b", 5),
            (b"\xff\xfe\xc0,9\xff", b"\xff\xfe\xc0", 9),
            // Digits of other scripts do not count.
            (b"a,1\xd9\xa1", b"a", 1),
            (b"a,00000000000000000000000000042", b"a", 42),
            (b"a,18446744073709551615", b"a", u64::MAX),
            (b"a,18446744073709551615 ", b"a", u64::MAX),
        ];
        for (line, name, count) in table {
            check(line, Some((name, count)));
        }
    }

    #[test]
    fn a_line_without_digits_right_behind_its_first_comma_is_skipped() {
        let table: [&[u8]; 14] = [
            b"",
            b"\r",
            b"a",
            b"12",
            b"a,",
            b"a,\r",
            b"a, 12",
            b"a,b,5",
            b"a,,5",
            b"a,-1",
            b"a,+1",
            b"a,\x005",
            b"a,\xd9\xa1",
            b"a,18446744073709551616x",
        ];
        for line in table {
            check(line, None);
        }
    }

    #[test]
    fn only_line_feeds_end_lines_and_the_last_needs_none() {
        let input = Input::parse(b"a,1\r\n\nb\rc,2\x0b3,4\nlast,5");
        let pairs: Vec<(&[u8], u64)> = input.pairs().iter().map(|pair| (&*pair.name, pair.count)).collect();
        assert_eq!(pairs, [(&b"a"[..], 1), (b"b\rc", 2), (b"last", 5)]);
        assert_eq!(input.skipped(), 1);
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
