//! A client and a server of the lean protocol: first connected to each other with any names, tables, windows and
//! splits, where the values must be the model's; then the client with any bytes as the server's.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rpcgame::hash;
use rpcgame::lean::{Connection, Event, Hello, Keep, Session, SessionLimits, TableLimits, VERSION};

fuzz_target!(|data: &[u8]| {
    let Some((&[names_max, bytes_max, window, cut, keep], data)) = data.split_first_chunk::<5>() else { return };
    let table = TableLimits { names_max: usize::from(names_max % 16), bytes_max: usize::from(bytes_max) * 4 };
    let window_messages = u64::from(window) + 1;
    let hello = Hello { version_min: VERSION, version_max: VERSION, window_messages, table };
    let keep = if keep & 1 == 0 { Keep::First } else { Keep::Newest };
    let (mut client, mut server) = (Connection::new(hello, keep), Session::new(SessionLimits::default()));
    // A key selects its name: some bytes of the input.
    let name = |key: usize| &data[..data.len().min(key * 3)];
    let messages: Vec<(usize, &[u8], u64)> = data
        .iter()
        .zip(0..)
        .map(|(byte, count)| (usize::from(byte % 32), name(usize::from(byte % 32)), count))
        .collect();
    let (mut sent, mut values, mut held) = (0, Vec::new(), Vec::new());
    while values.len() < messages.len() {
        sent += client.send(messages[sent..].iter().copied()).unwrap() as usize;
        let output = client.output().to_vec();
        client.advance(output.len());
        for piece in output.chunks(usize::from(cut) + 1) {
            held.extend_from_slice(piece);
            let mut rest = &held[..];
            server.receive(&mut rest).unwrap();
            held = rest.to_vec();
            client
                .receive(&mut server.output(), |event| {
                    if let Event::Values(new) = event {
                        values.extend(new.iter().map(|value| u64::from_le_bytes(*value)));
                    }
                })
                .unwrap();
            server.advance(server.output().len());
        }
    }
    for (((_, name, count), value), i) in messages.iter().zip(&values).zip(0_u64..) {
        assert_eq!(*value, hash(name).wrapping_add(*count).wrapping_add(i));
    }
    client.send(messages.iter().copied()).unwrap();
    let _ = client.receive(&mut &data[..], |_| {});
});
