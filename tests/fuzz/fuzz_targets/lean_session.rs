//! Any bytes as a client's frames, in pieces of any size: no panic, and the session stays within its limits.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rpcgame::lean::{Connection, Hello, Keep, Session, SessionLimits, TableLimits, VERSION};

fuzz_target!(|data: &[u8]| {
    let Some((&[greeted, piece, names, window], data)) = data.split_first_chunk::<4>() else { return };
    let table = TableLimits { names_max: usize::from(names), bytes_max: 2000 };
    let window_messages = u64::from(window) + 1;
    let limits = SessionLimits { window_messages, frame_bytes_max: 4096, name_bytes_max: 1000, table };
    let mut session = Session::new(limits);
    if greeted & 1 == 1 {
        let hello = Hello { version_min: VERSION, version_max: VERSION, window_messages, table };
        session.receive(&mut Connection::new(hello, Keep::First).output()).unwrap();
        session.advance(session.output().len());
    }
    let mut held = Vec::new();
    for piece in data.chunks(usize::from(piece) + 1) {
        held.extend_from_slice(piece);
        let mut rest = &held[..];
        let ended = session.receive(&mut rest).is_err();
        held = rest.to_vec();
        // Values of a window, the sums of games, a fault's text: each bounded by what one read can ask for.
        assert!(session.output().len() <= 8 * 256 + 40 * (usize::from(u8::MAX) + 4096) + 1100);
        assert!(session.held_bytes() <= 2000 + 2 * (8 * 256 + 40 * 4400 + 1100));
        assert!(held.len() <= 4096 + 5 || ended);
        // Partially, as a slow client takes it.
        let half = session.output().len().div_ceil(2);
        session.advance(half);
        if ended {
            assert!(session.receive(&mut &held[..]).is_err());
            return;
        }
        session.advance(session.output().len());
    }
});
