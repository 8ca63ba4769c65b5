//! The lean protocol on a socket, from the client's side: fills the window, writes, reads, and takes the values.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout, timeout_at};

use super::game::{Failure, LeanFailure, Options, Outcome, Progress, Received};
use super::input::Input;
use crate::checksum::{Checksum, Sums};
use crate::lean::{Connection, Event, Fault, HEAD_BYTES, Hello, Keep, TableLimits, VERSION, may_be_first};

/// What this client would like to refer to; the server may grant less.
const TABLE: TableLimits = TableLimits { names_max: 1 << 16, bytes_max: 64 << 20 };
/// Output is written when there is so much.
const OUTPUT_BYTES_TARGET: usize = 64 * 1024;
/// Room for a read.
const READ_BYTES: usize = 64 * 1024;
/// A server greets at once.
const GREETING_TIMEOUT: Duration = Duration::from_secs(10);
/// How long it may take to find out what listens where gRPC failed.
const PROBE_TIMEOUT: Duration = Duration::from_secs(2);

pub(super) async fn play(
    input: &Input,
    options: &Options,
    window: u64,
    received: Received<impl FnMut(Progress)>,
) -> Result<Outcome, Failure> {
    let failed = |error| Failure::Lean { address: options.address.clone(), error };
    let played = run(input, options, window, received).await;
    played.map_err(failed)
}

async fn run(
    input: &Input,
    options: &Options,
    window: u64,
    mut received: Received<impl FnMut(Progress)>,
) -> Result<Outcome, LeanFailure> {
    let stream = TcpStream::connect(&options.address).await?;
    stream.set_nodelay(true)?;
    received.start();
    let greeted_by = Instant::now() + GREETING_TIMEOUT;
    let mut player = Player {
        connection: connection(window),
        client: Checksum::default(),
        place: 0,
        sent: 0,
        is_done: false,
        theirs: None,
    };
    let mut buffer = vec![0; READ_BYTES];
    let mut filled = 0;
    loop {
        player.fill(input, options.messages, &received)?;
        let wrote = player.write(&stream)?;
        if filled == buffer.len() {
            buffer.resize(2 * filled, 0);
        }
        let read = match stream.try_read(&mut buffer[filled..]) {
            Ok(0) => return Err(player.closed()),
            Ok(count) => {
                filled += count;
                true
            }
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Err(player.closed()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => false,
            Err(error) => return Err(error.into()),
        };
        if player.connection.welcome().is_none()
            && let Some(stranger) = stranger(&buffer[..filled])
        {
            return Err(LeanFailure::Stranger(stranger));
        }
        if read {
            let taken = player.take_in(&mut buffer[..filled], &mut received);
            // First, for a server that stops after a game says so right behind its checksums.
            if let Some((messages, theirs)) = player.theirs {
                if messages != options.messages {
                    return Err(LeanFailure::Count { ours: options.messages, theirs: messages });
                }
                return Ok(received.outcome(player.client.value(), theirs));
            }
            filled = taken?;
        } else if !wrote {
            let wanted = if player.connection.output().is_empty() {
                Interest::READABLE
            } else {
                Interest::READABLE | Interest::WRITABLE
            };
            if player.connection.welcome().is_some() {
                stream.ready(wanted).await?;
            } else {
                let greeting = timeout_at(greeted_by, stream.ready(wanted)).await;
                greeting.map_err(|_| LeanFailure::Stranger("takes a greeting without an answer"))??;
            }
        }
    }
}

fn connection(window_messages: u64) -> Connection {
    let hello = Hello { version_min: VERSION, version_max: VERSION, window_messages, table: TABLE };
    Connection::new(hello, Keep::First)
}

/// What a server does whose first bytes are these, if it is no lean server.
fn stranger(first: &[u8]) -> Option<&'static str> {
    if may_be_first(first) {
        return None;
    }
    // The head of a SETTINGS frame for the connection (RFC 9113, sections 4.1 and 6.5).
    let is_http2 = first.get(3) == Some(&4) && first.get(5..9).is_none_or(|stream| stream == [0; 4]);
    Some(match first {
        first if first.starts_with(b"HTTP/") => "answers as HTTP/1.1",
        _ if is_http2 => "answers as HTTP/2, as gRPC does,",
        _ => "answers in another way",
    })
}

/// Whether a lean server answers at this address.
pub(super) async fn is_spoken_at(address: &str) -> bool {
    let greet = async {
        let mut stream = TcpStream::connect(address).await?;
        stream.write_all(connection(1).output()).await?;
        let mut head = [0; HEAD_BYTES];
        stream.read_exact(&mut head).await?;
        io::Result::Ok(may_be_first(&head))
    };
    matches!(timeout(PROBE_TIMEOUT, greet).await, Ok(Ok(true)))
}

struct Player {
    connection: Connection,
    client: Checksum,
    place: usize,
    sent: u64,
    is_done: bool,
    theirs: Option<(u64, Sums)>,
}

impl Player {
    /// A server of another protocol closes as soon as it has read a greeting.
    fn closed(&self) -> LeanFailure {
        match self.connection.welcome() {
            Some(_) => LeanFailure::Closed,
            None => LeanFailure::Stranger("closes the connection"),
        }
    }

    /// Frames, as far as window and output go; at the end the game's.
    fn fill<F: FnMut(Progress)>(&mut self, input: &Input, messages: u64, received: &Received<F>) -> Result<(), Fault> {
        let pairs = input.pairs();
        while self.sent < messages && self.connection.room() > 0 {
            if self.connection.output().len() >= OUTPUT_BYTES_TARGET {
                return Ok(());
            }
            let left = usize::try_from(messages - self.sent).unwrap_or(usize::MAX);
            let (client, place) = (&mut self.client, &mut self.place);
            let next = std::iter::repeat_with(|| {
                let key = *place;
                let pair = &pairs[key];
                *place = if key + 1 == pairs.len() { 0 } else { key + 1 };
                client.add(&pair.name);
                client.add_number(pair.count);
                (key, &*pair.name, pair.count)
            });
            self.sent += self.connection.send(next.take(left))?;
        }
        let is_answered = self.sent == messages && self.connection.unanswered() == 0;
        if is_answered && !self.is_done && self.connection.welcome().is_some() {
            self.is_done = true;
            self.connection.done(Sums { client: self.client.value(), server: received.server.value() });
        }
        Ok(())
    }

    fn write(&mut self, stream: &TcpStream) -> io::Result<bool> {
        let mut wrote = false;
        while !self.connection.output().is_empty() {
            match stream.try_write(self.connection.output()) {
                Ok(count) => self.connection.advance(count),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
            wrote = true;
        }
        Ok(wrote)
    }

    /// Returns how many bytes, moved to the front, are no whole frame yet.
    fn take_in(&mut self, bytes: &mut [u8], received: &mut Received<impl FnMut(Progress)>) -> Result<usize, Fault> {
        let mut rest = &*bytes;
        let theirs = &mut self.theirs;
        self.connection.receive(&mut rest, |event| match event {
            Event::Welcome(_) => {}
            Event::Values(values) => {
                for value in values {
                    received.value(u64::from_le_bytes(*value));
                }
            }
            Event::Sums { messages, sums } => *theirs = Some((messages, sums)),
        })?;
        let (left, end) = (rest.len(), bytes.len());
        bytes.copy_within(end - left.., 0);
        Ok(left)
    }
}
