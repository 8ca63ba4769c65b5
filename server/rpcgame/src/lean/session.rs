//! Server side of a connection: frames in, frames out, consecutive games. No socket, no clock.

use std::convert::Infallible;

use super::frame::{
    self, End, FIRST_BYTES_MAX, HEAD_BYTES, Hello, VERSION, Welcome, kind, take_bytes, take_eight, take_varint,
};
use super::table::Ring;
use crate::game::{Answer, Game, Sums, hash};
use crate::lean::frame::{Fault, FaultCode};
use crate::refusal::Refusal;
use crate::settings::{SessionLimits, TableLimits};

/// A name and its hash.
#[derive(Debug)]
struct Name {
    bytes: Box<[u8]>,
    hash: u64,
}

/// No message waits here: messages on one connection arrive in order.
#[derive(Debug)]
struct NoWaiter(Infallible);

impl Answer for NoWaiter {
    fn report(self, _: Result<u64, Refusal>) {
        match self.0 {}
    }
}

/// Admits a client by its token, or returns the reason for refusal.
pub type Admit = Box<dyn FnOnce(Option<&[u8]>) -> Result<(), String> + Send>;

/// One connection.
pub struct Session {
    limits: SessionLimits,
    /// Called before the HELLO is answered, if clients need a token.
    admit: Option<Admit>,
    token: Option<Box<[u8]>>,
    /// The agreed terms.
    welcome: Option<Welcome>,
    names: Ring<Name>,
    game: Game<NoWaiter>,
    output: Vec<u8>,
    written: usize,
    /// Messages whose values are in the output.
    unwritten_messages: u64,
    games_ended: u64,
    /// Messages and checksums of the last of them.
    last_ended: Option<(u64, Sums)>,
    messages: u64,
    fault: Option<Fault>,
}

/// Output buffers above this are freed when empty.
const KEPT_BYTES: usize = 4096;

impl Session {
    /// A session before the HELLO.
    pub fn new(limits: SessionLimits) -> Self {
        Self {
            limits,
            admit: None,
            token: None,
            welcome: None,
            names: Ring::new(TableLimits::default()),
            game: Game::default(),
            output: Vec::new(),
            written: 0,
            unwritten_messages: 0,
            games_ended: 0,
            last_ended: None,
            messages: 0,
            fault: None,
        }
    }

    /// Serves only clients that `admit` accepts.
    #[must_use]
    pub fn guarded(self, admit: Admit) -> Self {
        Self { admit: Some(admit), ..self }
    }

    /// Handles every complete frame of `input` and leaves the rest; does nothing while output is waiting. After a
    /// fault, write the output and close the connection.
    pub fn receive(&mut self, input: &mut &[u8]) -> Result<(), Fault> {
        if let Some(fault) = &self.fault {
            return Err(fault.clone());
        }
        if !self.output().is_empty() {
            return Ok(());
        }
        let handled = self.frames(input);
        if let Err(fault) = &handled {
            self.end(fault.clone());
        }
        handled
    }

    /// Ends the connection with a fault.
    pub fn end(&mut self, fault: Fault) {
        if self.fault.is_none() {
            fault.put(&mut self.output);
            self.fault = Some(fault);
        }
    }

    fn frames(&mut self, input: &mut &[u8]) -> Result<(), Fault> {
        loop {
            let bytes_max = if self.welcome.is_some() { self.limits.frame_bytes_max } else { FIRST_BYTES_MAX };
            let Some((kind, body)) = frame::take(input, bytes_max)? else { return Ok(()) };
            match (kind, self.welcome) {
                (kind::TOKEN, None) => self.token = Some(body.into()),
                (kind::HELLO, None) => self.hello(&Hello::read(body)?)?,
                (_, None) => return Err(Fault::malformed("the first frame is no HELLO of the lean protocol")),
                (kind::TRY, Some(welcome)) => self.try_all(body, &welcome)?,
                (kind::DONE, Some(_)) => self.done(&End::read(body)?),
                _ => return Err(Fault::malformed("a frame of a kind that may not come here")),
            }
        }
    }

    fn hello(&mut self, hello: &Hello) -> Result<(), Fault> {
        if !(hello.version_min..=hello.version_max).contains(&VERSION) {
            let (least, most) = (hello.version_min, hello.version_max);
            let text = format!("the client speaks versions {least} to {most}: this server speaks {VERSION}");
            return Err(Fault::new(FaultCode::Version, text));
        }
        if hello.window_messages == 0 {
            return Err(Fault::malformed("the HELLO asks for a window of 0: it must be at least 1"));
        }
        if let Some(admit) = self.admit.take() {
            admit(self.token.take().as_deref()).map_err(|why| Fault::new(FaultCode::Denied, why))?;
        }
        let welcome = Welcome {
            version: VERSION,
            window_messages: hello.window_messages.min(self.limits.window_messages),
            table: hello.table.at_most(self.limits.table),
            frame_bytes_max: self.limits.frame_bytes_max,
            name_bytes_max: self.limits.name_bytes_max,
        };
        welcome.put(&mut self.output);
        self.names = Ring::new(welcome.table);
        self.welcome = Some(welcome);
        Ok(())
    }

    fn try_all(&mut self, mut body: &[u8], welcome: &Welcome) -> Result<(), Fault> {
        let first_serial = take_varint(&mut body)?;
        let count = take_varint(&mut body)?;
        let next = self.game.next();
        if first_serial != next {
            let text = format!("serial {first_serial} came: the next is {next}, and one connection keeps the order");
            return Err(Fault::new(FaultCode::Serial, text));
        }
        let unwritten = self.unwritten_messages.saturating_add(count);
        if unwritten > welcome.window_messages {
            let window = welcome.window_messages;
            let text = format!("{unwritten} messages came without waiting for values: the window is {window}");
            return Err(Fault::new(FaultCode::Window, text));
        }
        self.unwritten_messages = unwritten;
        let start = self.output.len();
        self.output.extend_from_slice(&[0; HEAD_BYTES]);
        frame::put_varint(first_serial, &mut self.output);
        frame::put_varint(count, &mut self.output);
        for _ in 0..count {
            if let Err(fault) = self.try_one(&mut body) {
                self.output.truncate(start);
                return Err(fault);
            }
        }
        if !body.is_empty() {
            self.output.truncate(start);
            return Err(Fault::malformed("the frame goes on after its last message"));
        }
        frame::seal(&mut self.output, start, kind::VALUES);
        self.messages += count;
        Ok(())
    }

    #[inline]
    fn try_one(&mut self, body: &mut &[u8]) -> Result<(), Fault> {
        let reference = take_varint(body)?;
        let value = if let Some(slot) = reference.checked_sub(frame::REFERENCES) {
            let count = take_eight(body)?;
            let Some(name) = self.names.get(slot) else {
                let text = format!("slot {slot} of the table holds no name: there are {}", self.names.len());
                return Err(Fault::new(FaultCode::Reference, text));
            };
            self.game.handle_hashed(name.hash, &name.bytes, count)
        } else {
            self.literal(reference == frame::LITERAL_KEPT, body)?
        };
        self.output.extend_from_slice(&value.to_le_bytes());
        Ok(())
    }

    fn literal(&mut self, is_kept: bool, body: &mut &[u8]) -> Result<u64, Fault> {
        let length = usize::try_from(take_varint(body)?).unwrap_or(usize::MAX);
        if length > self.limits.name_bytes_max {
            return Err(Fault::limit(
                "the name's length",
                length,
                "rpcgame.name_bytes_max",
                self.limits.name_bytes_max,
            ));
        }
        let name = take_bytes(body, length)?;
        let count = take_eight(body)?;
        let hash = hash(name);
        if is_kept {
            if !self.names.can_hold(length) {
                return Err(Fault::new(FaultCode::Limit, "a name that the table cannot hold is to be kept"));
            }
            self.names.insert(length, Name { bytes: name.into(), hash });
        }
        Ok(self.game.handle_hashed(hash, name, count))
    }

    fn done(&mut self, theirs: &End) {
        let messages = self.game.handled();
        let (sums, _) = self.game.end();
        self.games_ended += 1;
        let ours = End { messages, sums };
        self.last_ended = Some((messages, sums));
        if ours != *theirs {
            tracing::warn!(?ours, ?theirs, "the checksums of a game do not match");
        }
        ours.put(kind::SUMS, &mut self.output);
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
            self.unwritten_messages = 0;
        }
    }

    /// Frees memory that only a busy connection needs.
    pub fn rest(&mut self) {
        if self.output.is_empty() {
            self.output.shrink_to(KEPT_BYTES);
        }
    }

    /// Number of games ended since the last call, and the messages and checksums of the last of them.
    pub fn take_games_ended(&mut self) -> (u64, Option<(u64, Sums)>) {
        (std::mem::take(&mut self.games_ended), self.last_ended.take())
    }

    /// Messages handled in complete frames since the last call.
    pub fn take_messages(&mut self) -> u64 {
        std::mem::take(&mut self.messages)
    }

    /// True if no game is running.
    pub fn is_between_games(&self) -> bool {
        self.game.handled() == 0
    }

    /// Memory held for the client besides the session itself: names and values.
    pub fn held_bytes(&self) -> usize {
        self.names.bytes() + self.output.capacity()
    }
}
