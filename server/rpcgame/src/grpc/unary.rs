//! `RPCGame`: one message per call. Messages in order are answered at once; early ones wait as a future.

use bytes::Bytes;
use quire_rpc::server::{Answer, Call, Later};
use quire_rpc::{Encoded, Request, Response, Status};

use super::caller;
use super::messages::{Try, digits, write_value};
use super::wire::{DoneRequest, DoneResponse, TryRequest, rpc_game_server::RpcGame};
use crate::refusal::Refusal;
use crate::registry::{Attempt, Games, Room};

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
            let room = caller::find(&self.games, request)?;
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
            let attempt = |room: &Room| room.attempt(message.serial, message.name, message.count);
            caller::attempt(&self.games, call.request(), attempt)
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
        let ended = caller::end(&self.games, &request);
        let sums = ended.map_err(|refusal| self.refused(refusal))?;
        let (client_checksum, server_checksum) = (digits(sums.client), digits(sums.server));
        Ok(Response::new(DoneResponse { client_checksum, server_checksum }))
    }
}
