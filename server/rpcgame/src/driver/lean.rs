//! Client of the lean protocol on a socket: fills the window, writes, reads, and passes on the values.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use quire_rpc::rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_rustls::TlsConnector;

use super::game::{Failure, LeanFailure, Options, Outcome, Progress, Received};
use super::input::Input;
use crate::game::{Checksum, Sums};
use crate::lean::{Connection, Event, Fault, HEAD_BYTES, Hello, Keep, TableLimits, VERSION, may_be_first};

/// Requested limits of the table; the server may grant less.
const TABLE: TableLimits = TableLimits { names_max: 1 << 16, bytes_max: 64 << 20 };
/// Output is written once it has this size.
const OUTPUT_BYTES_TARGET: usize = 64 * 1024;
/// Size of a read.
const READ_BYTES: usize = 64 * 1024;
/// Time limit for the server's greeting.
const GREETING_TIMEOUT: Duration = Duration::from_secs(10);
/// Time limit for identifying the protocol of a port where gRPC failed.
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
    received: Received<impl FnMut(Progress)>,
) -> Result<Outcome, LeanFailure> {
    let stream = TcpStream::connect(&options.address).await?;
    stream.set_nodelay(true)?;
    let Some(tls) = &options.tls else { return converse(stream, input, options, window, received).await };
    let host = options.address.rsplit_once(':').map_or(&*options.address, |(host, _)| host);
    let name = ServerName::try_from(host.trim_matches(['[', ']']).to_owned()).map_err(io::Error::other)?;
    let shaken = timeout(GREETING_TIMEOUT, TlsConnector::from(Arc::clone(tls)).connect(name, stream)).await;
    let stream = shaken.map_err(|_| LeanFailure::Stranger("begins no TLS"))??;
    converse(stream, input, options, window, received).await
}

async fn converse<S: AsyncRead + AsyncWrite + Unpin>(
    mut stream: S,
    input: &Input,
    options: &Options,
    window: u64,
    mut received: Received<impl FnMut(Progress)>,
) -> Result<Outcome, LeanFailure> {
    received.start();
    let greeted_by = Instant::now() + GREETING_TIMEOUT;
    let mut player = Player {
        connection: connection(window, options.token.as_deref()),
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
        if filled == buffer.len() {
            buffer.resize(2 * filled, 0);
        }
        let is_greeted = player.connection.welcome().is_some();
        let step = std::future::poll_fn(|cx| {
            let wrote = player.write(cx, &mut stream)?;
            let mut room = ReadBuf::new(&mut buffer[filled..]);
            match Pin::new(&mut stream).poll_read(cx, &mut room)? {
                Poll::Ready(()) => Poll::Ready(io::Result::Ok(Some(room.filled().len()))),
                Poll::Pending if wrote => Poll::Ready(Ok(None)),
                Poll::Pending => Poll::Pending,
            }
        });
        let step = if is_greeted {
            step.await
        } else {
            let greeting = timeout_at(greeted_by, step).await;
            greeting.map_err(|_| LeanFailure::Stranger("takes a greeting without an answer"))?
        };
        let read = match step {
            Ok(Some(0)) => return Err(player.closed()),
            Ok(Some(count)) => {
                filled += count;
                true
            }
            Ok(None) => false,
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Err(player.closed()),
            Err(error) => return Err(error.into()),
        };
        if player.connection.welcome().is_none()
            && let Some(stranger) = stranger(&buffer[..filled])
        {
            return Err(LeanFailure::Stranger(stranger));
        }
        if read {
            let taken = player.take_in(&mut buffer[..filled], &mut received);
            // First, since a server that stops after a game reports that right after its checksums.
            if let Some((messages, theirs)) = player.theirs {
                if messages != options.messages {
                    return Err(LeanFailure::Count { ours: options.messages, theirs: messages });
                }
                return Ok(received.outcome(player.client.value(), theirs));
            }
            filled = taken?;
        }
    }
}

fn connection(window_messages: u64, token: Option<&str>) -> Connection {
    let hello = Hello { version_min: VERSION, version_max: VERSION, window_messages, table: TABLE };
    Connection::with_token(hello, Keep::First, token.map(str::as_bytes))
}

/// Description of a server that starts with these bytes and is not a lean server.
fn stranger(first: &[u8]) -> Option<&'static str> {
    // An alert (RFC 8446 sections 5.1 and 6); no greeting has the length that it would announce.
    if first.starts_with(&[0x15, 3]) {
        return Some("speaks TLS (write https://)");
    }
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

/// True if a lean server answers at this address.
pub(super) async fn is_spoken_at(address: &str) -> bool {
    let greet = async {
        let mut stream = TcpStream::connect(address).await?;
        stream.write_all(connection(1, None).output()).await?;
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
    /// Failure for a closed connection: a server of another protocol closes as soon as it has read a greeting.
    fn closed(&self) -> LeanFailure {
        match self.connection.welcome() {
            Some(_) => LeanFailure::Closed,
            None => LeanFailure::Stranger("closes the connection"),
        }
    }

    /// Adds frames, as far as window and output allow; at the end DONE.
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

    /// Writes what the socket accepts; returns whether that was anything.
    fn write(&mut self, cx: &mut Context<'_>, stream: &mut (impl AsyncWrite + Unpin)) -> io::Result<bool> {
        let mut wrote = false;
        while !self.connection.output().is_empty() {
            let Poll::Ready(count) = Pin::new(&mut *stream).poll_write(cx, self.connection.output())? else { break };
            self.connection.advance(count);
            wrote = true;
        }
        // TLS may hold back output; if this is pending the next read or write continues it.
        let _ = Pin::new(stream).poll_flush(cx)?;
        Ok(wrote)
    }

    /// Processes received bytes; returns the length of the incomplete frame, which is moved to the front.
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
