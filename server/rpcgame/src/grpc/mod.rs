//! The game over gRPC: the contract's calls, one message each, and our own stream with many. No rule lives here.

use std::cell::RefCell;
use std::sync::{Arc, Weak};

use bytes::Bytes;
use quire_rpc::server::{Answer, Call, Later};
use quire_rpc::{Code, Encoded, Metadata, Peer, Request, Response, Status, Stream, Streaming, unfold};

use crate::game::Sums;
use crate::grpc::messages::{Play, Played, Try, digits, write_value};
use crate::grpc::wire::rpc_game_server::RpcGame;
use crate::grpc::wire::rpc_game_stream_server::RpcGameStream;
use crate::grpc::wire::{DoneRequest, DoneResponse, TryRequest};
use crate::refusal::Refusal;
use crate::registry::{Attempt, Caller, Connection, Games, Room};

pub mod messages;
pub mod wire;

impl From<Refusal> for Status {
    fn from(refusal: Refusal) -> Self {
        let code = match &refusal {
            Refusal::Number { .. }
            | Refusal::SerialZero
            | Refusal::Duplicate { .. }
            | Refusal::NotText
            | Refusal::NameTooLong { .. }
            | Refusal::Malformed(_)
            | Refusal::Unpaired { .. }
            | Refusal::GameName { .. } => Code::InvalidArgument,
            Refusal::TooFarAhead { .. } | Refusal::NoRoomToWait { .. } | Refusal::TooManyGames { .. } => {
                Code::ResourceExhausted
            }
            // Sending it again helps only after the missing one.
            Refusal::Missing { .. } => Code::FailedPrecondition,
            Refusal::Over { .. } => Code::Aborted,
        };
        Self::new(code, refusal.to_string())
    }
}

/// Metadata name for the game of a call.
pub const GAME_METADATA: &str = "quire-game";

/// The room of this thread's last call.
struct LastCall {
    games: usize,
    peer: Weak<Peer>,
    metadata: Metadata,
    room: Arc<Room>,
}

thread_local! {
    static LAST: RefCell<Option<LastCall>> = const { RefCell::new(None) };
}

/// Looks up the caller's room in the registry.
pub(super) fn find<T>(games: &Games, request: &Request<T>) -> Result<Arc<Room>, Refusal> {
    as_caller(request, |caller| games.room(caller, || request.client()))
}

/// Ends the caller's game.
pub(super) fn end<T>(games: &Games, request: &Request<T>) -> Result<Sums, Refusal> {
    as_caller(request, |caller| games.end(caller))
}

fn as_caller<T, A>(request: &Request<T>, act: impl FnOnce(Caller<'_>) -> A) -> A {
    let connection = request.shared_peer().map(|peer| Arc::clone(peer) as Connection);
    let address = request.remote_addr().map(|address| address.ip());
    act(Caller { game: request.metadata().get(GAME_METADATA), connection: connection.as_ref(), address })
}

/// Tries something in the caller's room; a closed room is replaced.
#[inline]
pub(super) fn attempt<T>(games: &Games, request: &Request<T>, attempt: impl Fn(&Room) -> Attempt) -> Attempt {
    let remembered = LAST.with_borrow(|last| {
        let last = last.as_ref()?;
        let peer = request.shared_peer()?;
        let same = std::ptr::eq(last.peer.as_ptr(), Arc::as_ptr(peer))
            && last.metadata.is_same_block(request.metadata())
            && last.games == games.identity();
        same.then(|| attempt(&last.room))
    });
    match remembered {
        None | Some(Attempt::Closed) => attempt_anew(games, request, attempt),
        Some(attempt) => attempt,
    }
}

#[cold]
fn attempt_anew<T>(games: &Games, request: &Request<T>, attempt: impl Fn(&Room) -> Attempt) -> Attempt {
    let room = match find(games, request) {
        Ok(room) => room,
        Err(refusal) => return Attempt::Refused(refusal),
    };
    let attempted = attempt(&room);
    if let Some(peer) = request.shared_peer() {
        let (peer, metadata) = (Arc::downgrade(peer), request.metadata().clone());
        LAST.set(Some(LastCall { games: games.identity(), peer, metadata, room }));
    }
    attempted
}

/// Serves games.
#[derive(Clone, Debug)]
pub struct StreamService {
    games: Games,
}

impl StreamService {
    /// Serves `games`.
    pub fn new(games: Games) -> Self {
        Self { games }
    }
}

type Frames = std::pin::Pin<Box<dyn Stream<Item = Result<Encoded, Status>> + Send>>;

impl RpcGameStream for StreamService {
    type PlayStream = Frames;

    async fn play(&self, request: Request<Streaming<Encoded>>) -> Result<Response<Frames>, Status> {
        let room = find(&self.games, &request);
        let room = room.map_err(|refusal| self.games.counts().refused(refusal))?;
        let player = Player { games: self.games.clone(), request, room };
        Ok(Response::new(Box::pin(unfold(player, Player::step))))
    }
}

/// One stream.
struct Player {
    games: Games,
    request: Request<Streaming<Encoded>>,
    room: Arc<Room>,
}

impl Player {
    async fn step(mut self) -> Option<(Result<Encoded, Status>, Self)> {
        let frame = match self.request.get_mut().message().await {
            Ok(frame) => frame?.into_bytes(),
            Err(status) => return Some((Err(status), self)),
        };
        let answer = self.play(&frame).await.map_err(|refusal| self.games.counts().refused(refusal).into());
        Some((answer, self))
    }

    async fn play(&mut self, frame: &[u8]) -> Result<Encoded, Refusal> {
        let play = Play::read(frame, self.games.limits().name_bytes_max)?;
        let mut played = Played { first_serial: play.first_serial, ..Played::default() };
        if !play.names.is_empty() {
            played.values.reserve_exact(play.names.len());
            self.handle(&play, &mut played.values).await?;
        }
        let checksums = if play.done {
            let sums = end(&self.games, &self.request)?;
            [digits(sums.client), digits(sums.server)]
        } else {
            [Vec::new(), Vec::new()]
        };
        played.checksums = [&checksums[0], &checksums[1]];
        let mut answer = Vec::with_capacity(played.encoded_len_max());
        played.write(&mut answer);
        Ok(answer.into())
    }

    async fn handle(&mut self, play: &Play<'_>, values: &mut Vec<u64>) -> Result<(), Refusal> {
        loop {
            let messages = play.names.iter().copied().zip(play.counts.iter().copied());
            match self.room.attempt_all(play.first_serial, messages, |value| values.push(value)) {
                Attempt::Handled(_) => return Ok(()),
                Attempt::Early => {
                    if let Some(waiting) = self.room.wait_for_turn(play.first_serial)? {
                        waiting.outcome().await?;
                    }
                }
                Attempt::Refused(refusal) => return Err(refusal),
                Attempt::Closed => self.room = find(&self.games, &self.request)?,
            }
        }
    }
}

/// Serves games.
#[derive(Clone, Debug)]
pub struct GameService {
    games: Games,
}

impl GameService {
    /// Serves `games`.
    pub fn new(games: Games) -> Self {
        Self { games }
    }

    fn read<'a>(&self, message: &'a [u8]) -> Result<Try<'a>, Refusal> {
        Try::read(message, self.games.limits().name_bytes_max)
    }

    /// Counts a refusal and converts it to a status.
    fn refused(&self, refusal: Refusal) -> Status {
        self.games.counts().refused(refusal).into()
    }

    async fn try_later(self, request: Request<Bytes>) -> Result<Response<Encoded>, Status> {
        let Some(value) = self.wait(&request).await.map_err(|refusal| self.refused(refusal))? else {
            return Err(Status::unavailable("the game was given up while the message came; send it again"));
        };
        let mut answer = Vec::new();
        write_value(value, &mut answer);
        Ok(Response::new(answer.into()))
    }

    /// Handles a message that has to wait, or whose room was closed.
    async fn wait(&self, request: &Request<Bytes>) -> Result<Option<u64>, Refusal> {
        let message = self.read(request.get_ref())?;
        for _ in 0..ROOMS_MAX {
            let room = find(&self.games, request)?;
            match room.attempt(message.serial, message.name, message.count) {
                Attempt::Handled(value) => return Ok(Some(value)),
                Attempt::Early => {
                    let waiting = room.wait_for_value(message.serial, message.name, message.count)?;
                    if let Some(waiting) = waiting {
                        return waiting.outcome().await.map(Some);
                    }
                }
                Attempt::Refused(refusal) => return Err(refusal),
                Attempt::Closed => {}
            }
        }
        Ok(None)
    }
}

/// Limit of look-ups of a room by a caller; a room is only closed when its game is over.
const ROOMS_MAX: usize = 3;

impl RpcGame for GameService {
    #[inline]
    fn r#try(&self, mut call: Call<'_, TryRequest>) -> Answer<impl Later + use<>> {
        let attempt = self.read(call.bytes()).map(|message| {
            let single = |room: &Room| room.attempt(message.serial, message.name, message.count);
            attempt(&self.games, call.request(), single)
        });
        match attempt {
            Ok(Attempt::Handled(value)) => {
                write_value(value, call.out());
                call.answer()
            }
            Ok(Attempt::Refused(refusal)) | Err(refusal) => call.fail(&self.refused(refusal)),
            Ok(Attempt::Early | Attempt::Closed) => call.later_with_bytes(|request| self.clone().try_later(request)),
        }
    }

    async fn done(&self, request: Request<DoneRequest>) -> Result<Response<DoneResponse>, Status> {
        let ended = end(&self.games, &request);
        let sums = ended.map_err(|refusal| self.refused(refusal))?;
        let (client_checksum, server_checksum) = (digits(sums.client), digits(sums.server));
        Ok(Response::new(DoneResponse { client_checksum, server_checksum }))
    }
}
