//! Any bytes as header blocks of a server's requests: no panic, and memory stays within the table and list limits.
#![no_main]

use libfuzzer_sys::fuzz_target;
use quire_http2::{Config, Connection, Event, PREFACE, Side};

fuzz_target!(|data: &[u8]| {
    let config = Config { header_list_bytes_max: 4096, ..Config::default() };
    let mut connection = Connection::new(Side::Server, config, 0);
    let greeting = [&PREFACE[..], &[0, 0, 0, 4, 0, 0, 0, 0, 0]].concat();
    assert!(matches!(connection.receive(&mut &greeting[..], 0), Ok(None)));
    // The first byte of each piece is the block's length.
    let (mut rest, mut stream) = (data, 1u32);
    while let Some((&length, after)) = rest.split_first() {
        let (block, after) = after.split_at(after.len().min(usize::from(length)));
        rest = after;
        let mut frame = vec![0, 0, u8::try_from(block.len()).unwrap(), 1, 5];
        frame.extend_from_slice(&stream.to_be_bytes());
        frame.extend_from_slice(block);
        stream += 2;
        match connection.receive(&mut &frame[..], 0) {
            Ok(Some(Event::Headers { stream, head, .. })) => {
                let bytes: usize = head.fields().iter().map(|f| f.name().len() + f.value().len() + 32).sum();
                assert!(bytes <= 4096);
                connection.reset(stream, quire_http2::ErrorCode::CANCEL);
            }
            Ok(_) => {}
            Err(_) => return,
        }
        let waiting = connection.output().len();
        connection.output().advance(waiting);
    }
});
