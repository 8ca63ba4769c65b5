//! The game of a call. Looked up once for each connection and head, and cached by the thread that serves them: its next
//! call is nearly always of the same game.

use std::cell::RefCell;
use std::sync::{Arc, Weak};

use quire_rpc::{Metadata, Peer, Request};

use crate::checksum::Sums;
use crate::refusal::Refusal;
use crate::registry::{Attempt, Caller, Connection, Games, Room};

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
