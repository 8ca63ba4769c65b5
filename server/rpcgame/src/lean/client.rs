//! Client side of a connection: messages in, frames out, values back. No socket, no clock.

use super::frame::{self, End, HEAD_BYTES, Hello, Welcome, kind, take_varint};
use super::table::Ring;
use crate::game::Sums;
use crate::lean::frame::Fault;
use crate::settings::{FRAME_BYTES_BESIDE_NAME, FRAME_BYTES_TARGET};

/// Policy for the names that the client puts into the table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Keep {
    /// The first that fit: for names that repeat in a cycle.
    #[default]
    First,
    /// Each new one, evicting the oldest: for names that come in bursts.
    Newest,
}

/// A received event.
#[derive(Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// The server's side of the handshake.
    Welcome(Welcome),
    /// Values in the order of the messages, 8 bytes each, little-endian.
    Values(&'a [[u8; 8]]),
    /// The game is over: the server's message count and checksums.
    Sums {
        /// Messages handled.
        messages: u64,
        /// The server's checksums.
        sums: Sums,
    },
}

/// One connection.
#[derive(Debug)]
pub struct Connection {
    hello: Hello,
    keep: Keep,
    welcome: Option<Welcome>,
    /// Table number of each name, by the caller's key.
    kept: Vec<Option<u64>>,
    names: Ring<()>,
    sent: u64,
    answered: u64,
    output: Vec<u8>,
    written: usize,
    body: Vec<u8>,
}

/// Largest frame from the server: the values of a window, which the server may have reduced.
fn frame_bytes_max(hello: &Hello) -> usize {
    let window = usize::try_from(hello.window_messages).unwrap_or(usize::MAX);
    window.saturating_mul(8).saturating_add(FRAME_BYTES_BESIDE_NAME).max(4096)
}

impl Connection {
    /// Creates a connection with a HELLO to be written.
    pub fn new(hello: Hello, keep: Keep) -> Self {
        Self::with_token(hello, keep, None)
    }

    /// Like [`Connection::new`], with a token before the HELLO.
    pub fn with_token(hello: Hello, keep: Keep, token: Option<&[u8]>) -> Self {
        let mut output = Vec::new();
        if let Some(token) = token {
            frame::put(kind::TOKEN, &mut output, |body| body.extend_from_slice(token));
        }
        hello.put(&mut output);
        Self {
            hello,
            keep,
            welcome: None,
            kept: Vec::new(),
            names: Ring::new(hello.table),
            sent: 0,
            answered: 0,
            output,
            written: 0,
            body: Vec::new(),
        }
    }

    /// The server's grant, once received.
    pub fn welcome(&self) -> Option<&Welcome> {
        self.welcome.as_ref()
    }

    /// Number of messages that may be sent now.
    pub fn room(&self) -> u64 {
        self.welcome.map_or(0, |welcome| welcome.window_messages.saturating_sub(self.unanswered()))
    }

    /// Number of unanswered messages.
    pub fn unanswered(&self) -> u64 {
        self.sent - self.answered
    }

    /// Puts messages into one frame while window and frame have room; returns how many. `key` is a small number of the
    /// caller's for a name: equal keys must have equal names.
    pub fn send<'a>(&mut self, messages: impl Iterator<Item = (usize, &'a [u8], u64)>) -> Result<u64, Fault> {
        let Some(welcome) = self.welcome else { return Ok(0) };
        let mut body = std::mem::take(&mut self.body);
        body.clear();
        let mut count = 0;
        let room = usize::try_from(self.room()).unwrap_or(usize::MAX);
        let mut result = Ok(());
        for (key, name, number) in messages.take(room) {
            if name.len() > welcome.name_bytes_max {
                result = Err(Fault::limit(
                    "the name's length",
                    name.len(),
                    "rpcgame.name_bytes_max",
                    welcome.name_bytes_max,
                ));
                break;
            }
            self.put_name(key, name, &mut body);
            body.extend_from_slice(&number.to_le_bytes());
            count += 1;
            // The next name, not known yet, may have the maximum length: a frame is closed well before its end.
            if body.len() >= FRAME_BYTES_TARGET {
                break;
            }
        }
        if count > 0 {
            let start = self.output.len();
            self.output.extend_from_slice(&[0; HEAD_BYTES]);
            frame::put_varint(self.sent + 1, &mut self.output);
            frame::put_varint(count, &mut self.output);
            self.output.extend_from_slice(&body);
            frame::seal(&mut self.output, start, kind::TRY);
            self.sent += count;
        }
        self.body = body;
        result.map(|()| count)
    }

    #[inline]
    fn put_name(&mut self, key: usize, name: &[u8], body: &mut Vec<u8>) {
        if let Some(slot) = self.kept.get(key).copied().flatten().and_then(|number| self.names.slot(number)) {
            return frame::put_varint(slot + frame::REFERENCES, body);
        }
        let is_kept = match self.keep {
            Keep::First => self.names.has_room(name.len()),
            Keep::Newest => self.names.can_hold(name.len()),
        };
        frame::put_varint(if is_kept { frame::LITERAL_KEPT } else { frame::LITERAL }, body);
        frame::put_varint(name.len() as u64, body);
        body.extend_from_slice(name);
        if is_kept {
            let number = self.names.insert(name.len(), ());
            if self.kept.len() <= key {
                self.kept.resize(key + 1, None);
            }
            self.kept[key] = Some(number);
        }
    }

    /// Ends the game, with this side's checksums.
    pub fn done(&mut self, sums: Sums) {
        End { messages: self.sent, sums }.put(kind::DONE, &mut self.output);
    }

    /// Passes every complete frame of `input` to `event` and leaves the rest. A fault of either side ends the
    /// connection.
    pub fn receive(&mut self, input: &mut &[u8], mut event: impl FnMut(Event<'_>)) -> Result<(), Fault> {
        while let Some((kind, mut body)) = frame::take(input, frame_bytes_max(&self.hello))? {
            match (kind, self.welcome) {
                (kind::ERROR, _) => return Err(Fault::read(body)?),
                (kind::WELCOME, None) => {
                    let welcome = Welcome::read(body)?;
                    self.check(&welcome)?;
                    self.names = Ring::new(welcome.table);
                    self.welcome = Some(welcome);
                    event(Event::Welcome(welcome));
                }
                (kind::VALUES, Some(_)) => {
                    let (first_serial, count) = (take_varint(&mut body)?, take_varint(&mut body)?);
                    let (values, rest) = body.as_chunks();
                    if values.len() as u64 != count || !rest.is_empty() {
                        return Err(Fault::malformed("a frame of values has another length than it says"));
                    }
                    if first_serial != self.answered + 1 || count > self.unanswered() {
                        return Err(Fault::malformed("values came for messages that were not sent or have theirs"));
                    }
                    self.answered += count;
                    event(Event::Values(values));
                }
                (kind::SUMS, Some(_)) if self.unanswered() == 0 => {
                    let End { messages, sums } = End::read(body)?;
                    (self.sent, self.answered) = (0, 0);
                    event(Event::Sums { messages, sums });
                }
                _ => return Err(Fault::malformed("a frame of a kind that may not come here")),
            }
        }
        Ok(())
    }

    /// Checks that the server grants no more than requested.
    fn check(&self, welcome: &Welcome) -> Result<(), Fault> {
        let hello = &self.hello;
        let fits = (hello.version_min..=hello.version_max).contains(&welcome.version)
            && (1..=hello.window_messages).contains(&welcome.window_messages)
            && welcome.table.at_most(hello.table) == welcome.table
            && welcome.frame_bytes_max >= welcome.name_bytes_max.saturating_add(FRAME_BYTES_BESIDE_NAME);
        if fits { Ok(()) } else { Err(Fault::malformed("the server's WELCOME is not what was asked for")) }
    }

    /// Bytes to write.
    pub fn output(&self) -> &[u8] {
        &self.output[self.written..]
    }

    /// Removes written bytes.
    pub fn advance(&mut self, bytes: usize) {
        self.written += bytes;
        if self.written >= self.output.len() {
            self.output.clear();
            self.written = 0;
        }
    }
}
