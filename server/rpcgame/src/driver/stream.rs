//! Frames of many messages in one gRPC stream.
//!
//! The connection polls for frames as it has room; the window holds them back until values have come.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use quire_rpc::client::Channel;
use quire_rpc::{Code, Encoded, Ignored, Request, Status, Stream};
use tokio::time::timeout;

use super::game::{Failure, Options, Outcome, Progress, Received, checksum};
use super::input::Input;
use crate::game::{Checksum, Sums};
use crate::grpc::messages::{Played, write_play};
use crate::grpc::wire::rpc_game_stream_client::PLAY;

const STREAM_SERVED: &str =
    "RPCGameStream, which is Quire's own: use --transport windowed or unary, which every server of the game has";

/// Approximate total length of a frame's names: it stays below the 16 KiB of an HTTP/2 frame, and so need not be
/// reassembled.
const FRAME_NAME_BYTES: usize = 14 * 1024;
/// Enough for nearly every frame.
const FRAME_BYTES: usize = 16 * 1024;
/// Maximum number of messages in a frame, however short their names are.
const FRAME_MESSAGES_MAX: usize = 1024;

#[derive(Default)]
struct Window {
    answered: u64,
    waiting: Option<Waker>,
    /// Checksum over all messages, once all are sent.
    client: Option<u64>,
}

#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Window>>);

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Window> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(super) async fn play(
    channel: &Channel,
    input: &Input,
    options: &Options,
    window: u64,
    mut received: Received<impl FnMut(Progress)>,
) -> Result<Outcome, Failure> {
    let shared = Shared::default();
    let frames = Frames {
        // The stream lives in the connection's task, apart from the caller that lent the input.
        input: input.clone(),
        place: 0,
        sent: 0,
        messages: options.messages,
        window,
        counts: Vec::new(),
        client: Checksum::default(),
        shared: shared.clone(),
        is_done: false,
    };
    received.start();
    let refused = |status: Status| match status.code() {
        Code::Unimplemented => options.unserved(STREAM_SERVED),
        _ => Failure::Refused { what: "a frame".to_owned(), status },
    };
    let mut answers =
        channel.bidi_streaming::<_, Encoded>(&PLAY, Request::new(frames)).await.map_err(refused)?.into_inner();
    loop {
        let frame = answers.message().await.map_err(refused)?;
        let Some(frame) = frame else { return Err(Failure::Nonsense("the stream's end before the checksums".into())) };
        let frame = frame.into_bytes();
        let played = Played::read(&frame).map_err(|fault| Failure::Nonsense(fault.to_string()))?;
        if !played.values.is_empty() && played.first_serial != received.count + 1 {
            let (wanted, came) = (received.count + 1, played.first_serial);
            return Err(Failure::Nonsense(format!("values from serial {came} where {wanted} was due")));
        }
        played.values.iter().for_each(|value| received.value(*value));
        let mut window = shared.lock();
        window.answered = received.count;
        if let Some(waiting) = window.waiting.take() {
            waiting.wake();
        }
        if !played.checksums[0].is_empty() {
            let theirs = Sums { client: checksum(played.checksums[0])?, server: checksum(played.checksums[1])? };
            return Ok(received.outcome(window.client.unwrap_or_default(), theirs));
        }
    }
}

/// Time limit for finding out whether the server has the stream.
const PROBE_TIMEOUT: Duration = Duration::from_secs(2);

/// True if the server has the stream. Such a server holds early messages without a thread for each.
pub(super) async fn is_served(channel: &Channel) -> bool {
    let no_frames = Request::new(futures_util::stream::empty::<Encoded>());
    let ask = async { channel.bidi_streaming::<_, Ignored>(&PLAY, no_frames).await?.into_inner().message().await };
    matches!(timeout(PROBE_TIMEOUT, ask).await, Ok(Ok(None)))
}

struct Frames {
    input: Input,
    place: usize,
    sent: u64,
    messages: u64,
    window: u64,
    counts: Vec<u64>,
    client: Checksum,
    shared: Shared,
    is_done: bool,
}

impl Frames {
    fn frame(&mut self, room: u64) -> Encoded {
        let pairs = self.input.pairs();
        let (first, mut bytes) = (self.place, 0);
        self.counts.clear();
        while (self.counts.len() as u64) < room && self.counts.len() < FRAME_MESSAGES_MAX {
            let pair = &pairs[self.place];
            if bytes + pair.name.len() > FRAME_NAME_BYTES && bytes > 0 {
                break;
            }
            bytes += pair.name.len();
            self.client.add(&pair.name);
            self.client.add_number(pair.count);
            self.counts.push(pair.count);
            self.place = if self.place + 1 == pairs.len() { 0 } else { self.place + 1 };
        }
        let from_there = pairs[first..].iter().chain(pairs.iter().cycle());
        let names = from_there.take(self.counts.len()).map(|pair| &*pair.name);
        let first_serial = self.sent + 1;
        self.sent += self.counts.len() as u64;
        self.is_done = self.sent == self.messages;
        let mut frame = Vec::with_capacity(FRAME_BYTES);
        write_play(first_serial, names, &self.counts, self.is_done, &mut frame);
        frame.into()
    }
}

impl Stream for Frames {
    type Item = Encoded;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Encoded>> {
        if self.is_done {
            return Poll::Ready(None);
        }
        let left = self.messages - self.sent;
        let room = {
            let mut window = self.shared.lock();
            let room = self.window - (self.sent - window.answered);
            if room == 0 && left > 0 {
                window.waiting = Some(cx.waker().clone());
                return Poll::Pending;
            }
            room
        };
        let frame = self.frame(room.min(left));
        if self.is_done {
            let client = self.client.value();
            self.shared.lock().client = Some(client);
        }
        Poll::Ready(Some(frame))
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use tokio::net::TcpListener;

    use super::*;
    use crate::grpc::wire::rpc_game_server::RpcGameServer;
    use crate::grpc::wire::rpc_game_stream_server::RpcGameStreamServer;
    use crate::grpc::{GameService, StreamService};
    use crate::{GameLimits, Games};

    #[tokio::test]
    async fn a_server_says_whether_it_has_the_stream() {
        for has_stream in [true, false] {
            let games = Games::new(GameLimits::default());
            let server = quire_rpc::Server::builder().add_service(RpcGameServer::new(GameService::new(games.clone())));
            let server = if has_stream {
                server.add_service(RpcGameStreamServer::new(StreamService::new(games)))
            } else {
                server
            };
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = format!("http://{}", listener.local_addr().unwrap());
            tokio::spawn(server.serve(listener, pending()));
            let channel = Channel::builder(&address).unwrap().connect().await.unwrap();
            assert_eq!(is_served(&channel).await, has_stream);
        }
    }
}
