//! `RPCGameStream`: frames of messages in, frames of values out, in one call.

use std::sync::Arc;

use quire_rpc::{Encoded, Request, Response, Status, Stream, Streaming, unfold};

use super::caller;
use super::messages::{Play, Played, digits};
use super::wire::rpc_game_stream_server::RpcGameStream;
use crate::refusal::Refusal;
use crate::registry::{Attempt, Games, Room};

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
        let room = caller::find(&self.games, &request);
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
            let sums = caller::end(&self.games, &self.request)?;
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
                Attempt::Closed => self.room = caller::find(&self.games, &self.request)?,
            }
        }
    }
}
