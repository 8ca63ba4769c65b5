//! Rules of the game: messages are handled in the order of their serials, and everything handled is hashed.
//!
//! Independent of callers and transports, and never blocks: early messages are kept until their turn, and their caller
//! is notified through [`Answer`].

use std::collections::BTreeMap;
use std::fmt;
use std::hash::Hasher as _;

use twox_hash::XxHash3_64;

use crate::refusal::Refusal;

/// Reports the outcome of a waiting message to its caller.
pub trait Answer {
    /// Called when the message was handled, its turn has come, or it is refused.
    fn report(self, outcome: Result<u64, Refusal>);
}

/// An entry that waits for its turn.
#[derive(Debug)]
enum Early<A> {
    /// A whole message; handled as soon as all before it are.
    Message { name: Box<[u8]>, count: u64, answer: A },
    /// A caller that keeps its messages, from this serial on, until their turn.
    Turn { answer: A },
}

impl<A> Early<A> {
    fn bytes(&self) -> usize {
        let name = match self {
            Self::Message { name, .. } => name.len(),
            Self::Turn { .. } => 0,
        };
        name + EARLY_BYTES
    }
}

/// Cost of a waiting message besides its name: its entry in the map and the means to answer.
pub const EARLY_BYTES: usize = 256;

/// Consecutive games of one group of callers.
#[derive(Debug)]
pub struct Game<A> {
    /// Messages handled.
    handled: u64,
    client: Checksum,
    server: Checksum,
    early: BTreeMap<u64, (u64, Early<A>)>,
    /// Distinguishes entries that had the same serial at different times.
    tickets: u64,
}

impl<A> Default for Game<A> {
    fn default() -> Self {
        Self {
            handled: 0,
            client: Checksum::default(),
            server: Checksum::default(),
            early: BTreeMap::new(),
            tickets: 0,
        }
    }
}

/// Turn of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// It is the next.
    Now,
    /// Others have to come before.
    Later,
}

/// Handle to a waiting message, for [`Game::forget`].
#[derive(Clone, Copy, Debug)]
pub struct Ticket {
    serial: u64,
    number: u64,
}

/// Value of a message: `hash` is that of its name, `handled` the number of messages before.
#[inline]
pub const fn value(hash: u64, count: u64, handled: u64) -> u64 {
    hash.wrapping_add(count).wrapping_add(handled)
}

impl<A: Answer> Game<A> {
    /// The serial of the next message.
    pub fn next(&self) -> u64 {
        self.handled + 1
    }

    /// Number of waiting messages.
    pub fn waiting(&self) -> usize {
        self.early.len()
    }

    /// Memory cost of waiting messages, in bytes.
    pub fn waiting_bytes(&self) -> usize {
        self.early.values().map(|(_, early)| early.bytes()).sum()
    }

    /// Checks whether a message may come now or has to wait; fails if it is refused.
    #[inline]
    pub fn turn(&self, serial: u64, window_messages: u64) -> Result<Turn, Refusal> {
        let next = self.next();
        if serial == next {
            return Ok(Turn::Now);
        }
        if serial == 0 {
            return Err(Refusal::SerialZero);
        }
        if serial < next || self.early.contains_key(&serial) {
            return Err(Refusal::Duplicate { serial, next });
        }
        if serial - next >= window_messages {
            return Err(Refusal::TooFarAhead { serial, missing: next, window_messages });
        }
        Ok(Turn::Later)
    }

    /// Handles the next message and returns its value. Requires [`Turn::Now`].
    #[inline]
    pub fn handle(&mut self, name: &[u8], count: u64) -> u64 {
        self.handle_hashed(hash(name), name, count)
    }

    /// Like [`Game::handle`], for a name whose hash is known.
    #[inline]
    pub fn handle_hashed(&mut self, hash: u64, name: &[u8], count: u64) -> u64 {
        let value = value(hash, count, self.handled);
        self.handled += 1;
        self.client.add(name);
        self.client.add_number(count);
        self.server.add_number(value);
        value
    }

    /// Keeps a message until its turn. Requires [`Turn::Later`].
    pub fn keep(&mut self, serial: u64, name: &[u8], count: u64, answer: A) -> Ticket {
        self.put(serial, Early::Message { name: name.into(), count, answer })
    }

    /// Like [`Game::keep`], for a caller that keeps the messages.
    pub fn keep_turn(&mut self, serial: u64, answer: A) -> Ticket {
        self.put(serial, Early::Turn { answer })
    }

    fn put(&mut self, serial: u64, early: Early<A>) -> Ticket {
        self.tickets += 1;
        self.early.insert(serial, (self.tickets, early));
        Ticket { serial, number: self.tickets }
    }

    /// Drops a message if it still waits; returns the bytes it cost.
    pub fn forget(&mut self, ticket: Ticket) -> usize {
        match self.early.get(&ticket.serial) {
            Some((number, early)) if *number == ticket.number => {
                let bytes = early.bytes();
                self.early.remove(&ticket.serial);
                bytes
            }
            _ => 0,
        }
    }

    /// Handles entries that waited for the last messages; returns the bytes they cost.
    #[inline]
    pub fn catch_up(&mut self) -> usize {
        if self.early.is_empty() { 0 } else { self.catch_up_slowly() }
    }

    #[cold]
    fn catch_up_slowly(&mut self) -> usize {
        let mut bytes = 0;
        while let Some(first) = self.early.first_entry().filter(|first| *first.key() <= self.handled + 1) {
            let serial = *first.key();
            let (_, early) = first.remove();
            bytes += early.bytes();
            match early {
                // Superseded: another message with this serial came while this one only waited to run.
                Early::Message { answer, .. } | Early::Turn { answer } if serial <= self.handled => {
                    answer.report(Err(Refusal::Duplicate { serial, next: self.next() }));
                }
                Early::Message { name, count, answer } => {
                    let value = self.handle(&name, count);
                    answer.report(Ok(value));
                }
                // The waiting caller resumes when its task runs; nothing behind it can be handled before.
                Early::Turn { answer } => {
                    answer.report(Ok(serial));
                    break;
                }
            }
        }
        bytes
    }

    /// The checksums of everything handled.
    pub fn sums(&self) -> Sums {
        Sums { client: self.client.value(), server: self.server.value() }
    }

    /// Messages handled in this game.
    pub fn handled(&self) -> u64 {
        self.handled
    }

    /// Ends the game and begins the next. Waiting entries are refused; returns the bytes they cost.
    pub fn end(&mut self) -> (Sums, usize) {
        let (sums, missing) = (self.sums(), self.next());
        let mut bytes = 0;
        for (_, early) in std::mem::take(&mut self.early).into_values() {
            bytes += early.bytes();
            match early {
                Early::Message { answer, .. } | Early::Turn { answer } => answer.report(Err(Refusal::Over { missing })),
            }
        }
        self.handled = 0;
        self.client.clear();
        self.server.clear();
        (sums, bytes)
    }
}

/// XXH3-64 of `bytes`.
#[inline]
pub fn hash(bytes: &[u8]) -> u64 {
    XxHash3_64::oneshot(bytes)
}

/// Incremental XXH3-64; independent of how bytes are split.
#[derive(Clone, Default)]
pub struct Checksum {
    state: XxHash3_64,
}

impl fmt::Debug for Checksum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Checksum({:016x})", self.value())
    }
}

impl Checksum {
    /// Adds bytes.
    #[inline]
    pub fn add(&mut self, bytes: &[u8]) {
        self.state.write(bytes);
    }

    /// Adds a number as 8 bytes, little-endian.
    #[inline]
    pub fn add_number(&mut self, number: u64) {
        self.add(&number.to_le_bytes());
    }

    /// The hash of everything added.
    pub fn value(&self) -> u64 {
        self.state.finish()
    }

    /// Resets the checksum.
    pub fn clear(&mut self) {
        *self = Self::default();
    }
}

/// One side's two checksums of a game.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sums {
    /// Checksum over the client's messages: each name and count.
    pub client: u64,
    /// Checksum over the server's values.
    pub server: u64,
}

impl Sums {
    /// Checksums of a game without messages.
    pub fn of_nothing() -> Self {
        let empty = hash(&[]);
        Self { client: empty, server: empty }
    }
}

impl fmt::Display for Sums {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "client {:016x} server {:016x}", self.client, self.server)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // xxhash.xxh3_64_hexdigest of Python's xxhash: b"", b"a" and bytes(i * 7 % 256 for i in range(10000)).
    #[test]
    fn hashes_are_those_of_another_implementation() {
        let long: Vec<u8> = (0..10_000_usize).map(|i| u8::try_from(i * 7 % 256).unwrap()).collect();
        let cases = [(&b""[..], EMPTY), (b"a", LETTER), (&long, LONG)];
        for (bytes, expected) in cases {
            assert_eq!(hash(bytes), expected);
            for piece in [1, 8, 345, 2048, 2049, 4096, 9999] {
                let mut checksum = Checksum::default();
                bytes.chunks(piece).for_each(|part| checksum.add(part));
                assert_eq!(checksum.value(), expected, "in pieces of {piece}");
                checksum.clear();
                assert_eq!(checksum.value(), EMPTY);
            }
        }
    }

    const EMPTY: u64 = 0x2d06_8005_38d3_94c2;
    const LETTER: u64 = 0xe6c6_32b6_1e96_4e1f;
    const LONG: u64 = 0x09ea_754d_7983_b623;
}
