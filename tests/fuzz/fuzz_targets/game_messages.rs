//! Any bytes as messages of the game's gRPC contract: decoded or refused, and decoded ones encode to the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rpcgame::grpc::messages::{Play, Played, Try, read_value, write_play};

fuzz_target!(|data: &[u8]| {
    let _ = read_value(data);
    let mut out = Vec::new();
    if let Ok(message) = Try::read(data, 1000) {
        message.write(&mut out);
        assert_eq!(Try::read(&out, 1000), Ok(message));
    }
    if let Ok(play) = Play::read(data, 1000) {
        out.clear();
        write_play(play.first_serial, play.names.iter().copied(), &play.counts, play.done, &mut out);
        assert_eq!(Play::read(&out, 1000), Ok(play));
    }
    if let Ok(played) = Played::read(data) {
        out.clear();
        played.write(&mut out);
        assert_eq!(Played::read(&out), Ok(played));
    }
});
