//! Any bytes after the preface, to either side: no panic, and every split of them has the same result.
#![no_main]

use libfuzzer_sys::fuzz_target;
use quire_http2::{Config, Connection, PREFACE, Side};

fn run(side: Side, data: &[u8], cut: usize) -> (Vec<String>, bool) {
    let mut connection = Connection::new(side, Config::default(), 0);
    let mut events = Vec::new();
    let start = if side == Side::Server { &PREFACE[..] } else { &[] };
    let bytes = [start, &[0, 0, 0, 4, 0, 0, 0, 0, 0], data].concat();
    let mut held = Vec::new();
    for chunk in bytes.chunks(cut) {
        held.extend_from_slice(chunk);
        let mut input = &held[..];
        loop {
            match connection.receive(&mut input, 0) {
                Ok(Some(event)) => events.push(format!("{event:?}")),
                Ok(None) => break,
                Err(_) => return (events, true),
            }
        }
        held = input.to_vec();
    }
    (events, false)
}

fuzz_target!(|data: &[u8]| {
    let Some((&first, data)) = data.split_first() else { return };
    let side = if first & 1 == 0 { Side::Server } else { Side::Client };
    let whole = run(side, data, usize::MAX);
    assert_eq!(whole, run(side, data, usize::from(first >> 1) + 1));
});
