//! `RPCGame`: one message a call. What comes in order is answered where it lies; what comes early waits as a future.

use ::grpc::server::{Answer, Answered};
use ::grpc::{Request, Response, Status};

use super::messages::{TRY_RESPONSE_BYTES_MAX, Try, write_value};
use super::raw::{RawTryRequest, RawTryResponse};
use super::wire::{DoneRequest, DoneResponse, rpc_game_server::RpcGame};
use super::{desk, digits};
use crate::refusal::Refusal;
use crate::registry::{Attempt, Games};

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

    fn read<'a>(&self, request: &'a Request<RawTryRequest>) -> Result<Try<'a>, Refusal> {
        Try::read(request.get_ref().bytes(), self.games.settings().name_bytes_max)
    }

    /// What the caller is told of a refusal, which is counted.
    fn refused(&self, refusal: Refusal) -> Status {
        self.games.counts().refused(refusal).into()
    }

    /// Handles a message that has to wait, or whose game nobody remembers.
    async fn wait(&self, request: &Request<RawTryRequest>) -> Result<Option<u64>, Refusal> {
        let message = self.read(request)?;
        for _ in 0..ROOMS_MAX {
            let room = desk::find(&self.games, request.shared_peer(), request.metadata())?;
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

/// How often a caller looks for a room; one is given up only when its game is over.
const ROOMS_MAX: usize = 3;

impl RpcGame for GameService {
    async fn r#try(&self, request: Request<RawTryRequest>) -> Result<Response<RawTryResponse>, Status> {
        let Some(value) = self.wait(&request).await.map_err(|refusal| self.refused(refusal))? else {
            return Err(Status::unavailable("the game was given up while the message came; send it again"));
        };
        let mut response = RawTryResponse::default();
        response.bytes_mut().extend_from_slice(write_value(value, &mut [0; TRY_RESPONSE_BYTES_MAX]));
        Ok(Response::new(response))
    }

    #[inline]
    fn try_now(&self, request: &Request<RawTryRequest>, answer: Answer<'_, '_, RawTryResponse>) -> Option<Answered> {
        let message = match self.read(request) {
            Ok(message) => message,
            Err(refusal) => return Some(answer.status(&self.refused(refusal))),
        };
        let attempt = |room: &crate::registry::Room| room.attempt(message.serial, message.name, message.count);
        match desk::attempt(&self.games, request, attempt) {
            Attempt::Handled(value) => Some(answer.encoded(write_value(value, &mut [0; TRY_RESPONSE_BYTES_MAX]))),
            Attempt::Refused(refusal) => Some(answer.status(&self.refused(refusal))),
            Attempt::Early | Attempt::Closed => None,
        }
    }

    async fn done(&self, request: Request<DoneRequest>) -> Result<Response<DoneResponse>, Status> {
        let ended = desk::end(&self.games, request.shared_peer(), request.metadata());
        let sums = ended.map_err(|refusal| self.refused(refusal))?;
        let (client_checksum, server_checksum) = (digits(sums.client), digits(sums.server));
        Ok(Response::new(DoneResponse { client_checksum, server_checksum }))
    }
}
