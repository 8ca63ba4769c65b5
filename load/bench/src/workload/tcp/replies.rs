//! Finds replies in a byte stream, however it was split, and numbers each kind of reply when it is first seen. Sans-IO,
//! without a clock.

use std::collections::HashMap;
use std::sync::Arc;

use anyhow::Context as _;

use crate::workload::{Ending, Values};

/// Maximum length of a reply line, its end included.
pub const LINE_BYTES_MAX: usize = 1 << 20;

/// Form of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    /// A fixed number of bytes, at least one.
    Bytes(usize),
    /// Everything up to a newline.
    Line,
}

impl std::str::FromStr for Reply {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        if text == "line" {
            return Ok(Self::Line);
        }
        let count =
            text.strip_prefix("bytes:").and_then(|count| crate::values::bytes(count).ok()).filter(|&count| count > 0);
        count.map(Self::Bytes).with_context(|| {
            format!("--reply `{text}` is unknown: write bytes:N with a size of 1 or more, as in bytes:100 or bytes:64KiB, or line")
        })
    }
}

/// Finds the ends of replies.
#[derive(Debug)]
pub(super) struct Replies {
    form: Reply,
    /// Bytes of the current reply.
    taken: usize,
    /// Its beginning, as far as an outcome needs it.
    kept: Vec<u8>,
}

impl Replies {
    pub(super) fn new(form: Reply) -> Self {
        Self { form, taken: 0, kept: Vec::new() }
    }

    /// True within a reply.
    pub(super) fn is_partial(&self) -> bool {
        self.taken > 0
    }

    /// Takes the next whole reply from `input` and returns its beginning, without a line end; `None` if all was taken.
    /// The error is the ending of a line longer than [`LINE_BYTES_MAX`].
    pub(super) fn next<'s, 'i: 's>(&'s mut self, input: &mut &'i [u8]) -> Result<Option<&'s [u8]>, u16> {
        let (count, is_whole) = match self.form {
            Reply::Bytes(wanted) => (input.len().min(wanted - self.taken), input.len() >= wanted - self.taken),
            Reply::Line => match input.iter().position(|&byte| byte == b'\n') {
                Some(place) => (place + 1, true),
                None => (input.len(), false),
            },
        };
        if self.form == Reply::Line && self.taken + count > LINE_BYTES_MAX {
            return Err(OVERLONG);
        }
        let (part, rest) = input.split_at(count);
        *input = rest;
        if !is_whole {
            if self.taken == 0 {
                self.kept.clear();
            }
            self.keep(part);
            self.taken += count;
            return Ok(None);
        }
        if self.taken == 0 {
            return Ok(Some(self.beginning(part)));
        }
        self.keep(part);
        self.taken = 0;
        Ok(Some(self.beginning(&self.kept)))
    }

    /// Keeps two bytes more than an outcome has, so that a line end is seen and cut off.
    fn keep(&mut self, part: &[u8]) {
        let room = (OUTCOME_BYTES_MAX + 2).saturating_sub(self.kept.len());
        self.kept.extend_from_slice(&part[..part.len().min(room)]);
    }

    fn beginning<'a>(&self, reply: &'a [u8]) -> &'a [u8] {
        let reply = match (self.form, reply) {
            (Reply::Line, [text @ .., b'\r', b'\n'] | [text @ .., b'\n']) => text,
            _ => reply,
        };
        &reply[..reply.len().min(OUTCOME_BYTES_MAX)]
    }
}

pub(super) const CONNECTION: u16 = 0;
pub(super) const CLOSED: u16 = 1;
pub(super) const OVERLONG: u16 = 2;
pub(super) const UNASKED: u16 = 3;
pub(super) const REPLY: u16 = 4;
/// Kinds of replies are numbered from here on; the number after the last is for all others.
pub(super) const KIND_MIN: u16 = 5;
pub(super) const OTHER: u16 = KIND_MIN + OUTCOMES_MAX;
/// Maximum kinds of replies: every single byte, and as many others.
pub const OUTCOMES_MAX: u16 = 512;
/// Bytes of a reply that distinguish it.
pub const OUTCOME_BYTES_MAX: usize = 64;

/// Endings of replies by kind, known to one session: it takes the lock only for a kind that is new to it.
#[derive(Debug)]
pub(super) struct Seen {
    kinds: Arc<Values>,
    /// Good replies; if there are any, every other counts as an error.
    good: Vec<Vec<u8>>,
    endings: HashMap<Box<[u8]>, Ending>,
}

impl Seen {
    pub(super) fn new(kinds: Arc<Values>, good: Vec<Vec<u8>>) -> Self {
        Self { kinds, good, endings: HashMap::new() }
    }

    pub(super) fn ending(&mut self, reply: &[u8]) -> Ending {
        if let Some(ending) = self.endings.get(reply) {
            return *ending;
        }
        let is_error = !self.good.is_empty() && !self.good.iter().any(|good| good == reply);
        let ending = Ending { number: KIND_MIN + self.kinds.number(reply), is_error };
        if ending.number != OTHER {
            self.endings.insert(reply.into(), ending);
        }
        ending
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn all(form: Reply, chunks: &[&[u8]]) -> (Vec<Vec<u8>>, bool) {
        let mut replies = Replies::new(form);
        let mut out = Vec::new();
        for chunk in chunks {
            let mut input = *chunk;
            while let Some(reply) = replies.next(&mut input).expect("short lines") {
                out.push(reply.to_vec());
            }
            assert!(input.is_empty());
        }
        (out, replies.is_partial())
    }

    #[test]
    fn lines_lose_their_ends_and_nothing_else() {
        let (replies, is_partial) = all(Reply::Line, &[b"a\r\n\n\r\nb\rc\nrest"]);
        assert_eq!(replies, [&b"a"[..], b"", b"", b"b\rc"]);
        assert!(is_partial);
    }

    #[test]
    fn a_line_beyond_the_limit_is_overlong_wherever_it_is_cut() {
        let whole = vec![b'x'; LINE_BYTES_MAX];
        assert_eq!(Replies::new(Reply::Line).next(&mut &[&whole[..], b"\n"].concat()[..]), Err(OVERLONG));
        let mut replies = Replies::new(Reply::Line);
        assert_eq!(replies.next(&mut &whole[..]), Ok(None));
        assert_eq!(replies.next(&mut &b"x"[..]), Err(OVERLONG));
        let mut replies = Replies::new(Reply::Line);
        assert_eq!(replies.next(&mut &whole[1..]), Ok(None));
        assert!(replies.next(&mut &b"\n"[..]).is_ok_and(|reply| reply.is_some()));
    }

    #[test]
    fn a_form_that_is_none_is_refused() {
        assert_eq!("bytes:7".parse::<Reply>().expect("a form"), Reply::Bytes(7));
        assert_eq!("bytes:64KiB".parse::<Reply>().expect("a form"), Reply::Bytes(65_536));
        assert_eq!("line".parse::<Reply>().expect("a form"), Reply::Line);
        for text in ["", "bytes", "bytes:", "bytes:0", "bytes:-1", "lines", "bytes:99999999999999999999"] {
            assert!(text.parse::<Reply>().is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn replies_are_the_same_however_they_are_cut(
            bytes in proptest::collection::vec(prop_oneof![Just(b'\n'), Just(b'\r'), Just(b'x'), any::<u8>()], 0..400),
            cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..8),
            size in 1_usize..200,
        ) {
            let mut places: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
            places.extend([0, bytes.len()]);
            places.sort_unstable();
            let chunks: Vec<&[u8]> = places.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect();
            for form in [Reply::Line, Reply::Bytes(size)] {
                prop_assert_eq!(all(form, &[&bytes]), all(form, &chunks));
            }
        }
    }
}

#[cfg(test)]
mod outcomes_tests {
    use super::*;

    #[test]
    fn two_sessions_number_the_same_reply_alike() {
        let kinds = Arc::new(Values::new(OUTCOMES_MAX));
        let session = || Seen::new(Arc::clone(&kinds), vec![b"OK".to_vec()]);
        let (mut one, mut other) = (session(), session());
        let ok = one.ending(b"OK");
        assert!(!ok.is_error);
        assert!(other.ending(b"\xff").is_error);
        assert_eq!(other.ending(b"OK"), ok);
        assert_eq!(kinds.value(1).as_deref(), Some(&b"\xff"[..]));
    }

    #[test]
    fn beyond_the_limit_every_new_reply_is_another() {
        let kinds = Arc::new(Values::new(OUTCOMES_MAX));
        let (mut one, mut other) = (Seen::new(Arc::clone(&kinds), Vec::new()), Seen::new(kinds, Vec::new()));
        let numbers: Vec<u16> = (0..OUTCOMES_MAX).map(|n| one.ending(n.to_string().as_bytes()).number).collect();
        assert!(!numbers.contains(&OTHER));
        assert_eq!(one.ending(b"new").number, OTHER);
        assert_eq!(other.ending(b"newer").number, OTHER);
        assert_eq!(other.ending(b"7").number, numbers[7]);
    }
}
