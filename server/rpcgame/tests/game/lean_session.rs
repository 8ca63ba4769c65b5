//! The lean protocol without sockets: both ends connected, bytes split anywhere, and each fault by its code.

use proptest::prelude::*;
use rpcgame::lean::{Connection, Event, Fault, FaultCode, Hello, Keep, Session, SessionLimits, TableLimits, VERSION};
use rpcgame::{Sums, hash};

const HELLO: Hello = Hello {
    version_min: VERSION,
    version_max: VERSION,
    window_messages: 100,
    table: TableLimits { names_max: 8, bytes_max: 1000 },
};

/// Moves one end's output to the other, `cut` bytes at a time.
struct Wire {
    held: Vec<u8>,
    cut: usize,
}

impl Wire {
    fn new(cut: usize) -> Self {
        Self { held: Vec::new(), cut: cut.max(1) }
    }

    fn carry(&mut self, output: &[u8], mut receive: impl FnMut(&mut &[u8])) {
        for piece in output.chunks(self.cut) {
            self.held.extend_from_slice(piece);
            let mut rest = &self.held[..];
            receive(&mut rest);
            let left = rest.len();
            self.held.drain(..self.held.len() - left);
        }
    }
}

/// Plays a game between both ends; returns the values, and the server's sums.
fn play(hello: Hello, keep: Keep, messages: &[(usize, Vec<u8>, u64)], cut: usize) -> (Vec<u64>, Sums) {
    let limits = SessionLimits { name_bytes_max: 10_000, ..SessionLimits::default() };
    let (mut client, mut server) = (Connection::new(hello, keep), Session::new(limits));
    let (mut up, mut down) = (Wire::new(cut), Wire::new(cut));
    let (mut values, mut sums, mut sent) = (Vec::new(), None, 0);
    let mut is_done = false;
    while sums.is_none() {
        let left = messages[sent..].iter().map(|(key, name, count)| (*key, &name[..], *count));
        sent += usize::try_from(client.send(left).unwrap()).unwrap();
        if sent == messages.len() && client.welcome().is_some() && client.unanswered() == 0 && !is_done {
            is_done = true;
            client.done(Sums { client: 0, server: 0 });
        }
        let output = client.output().to_vec();
        client.advance(output.len());
        up.carry(&output, |input| {
            server.receive(input).unwrap();
            let output = server.output().to_vec();
            server.advance(output.len());
            down.carry(&output, |input| {
                let events = client.receive(input, |event| match event {
                    Event::Welcome(_) => {}
                    Event::Values(new) => values.extend(new.iter().map(|value| u64::from_le_bytes(*value))),
                    Event::Sums { messages: handled, sums: theirs } => {
                        assert_eq!(handled, messages.len() as u64);
                        sums = Some(theirs);
                    }
                });
                events.unwrap();
            });
        });
    }
    (values, sums.unwrap())
}

/// Expected values and sums.
fn model(messages: &[(usize, Vec<u8>, u64)]) -> (Vec<u64>, Sums) {
    let values = messages.iter().zip(0..).map(|((_, name, count), i)| hash(name).wrapping_add(*count).wrapping_add(i));
    let values: Vec<u64> = values.collect();
    let said: Vec<u8> =
        messages.iter().flat_map(|(_, name, count)| [name, &count.to_le_bytes()[..]].concat()).collect();
    let answered: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    (values, Sums { client: hash(&said), server: hash(&answered) })
}

fn messages() -> impl Strategy<Value = Vec<(usize, Vec<u8>, u64)>> {
    let names = prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 1..20);
    names.prop_flat_map(|names| {
        let keys = prop::collection::vec((0..names.len(), any::<u64>()), 0..200);
        keys.prop_map(move |keys| keys.into_iter().map(|(key, count)| (key, names[key].clone(), count)).collect())
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_game_comes_through_whatever_the_table_the_window_and_the_cut(
        messages in messages(),
        names_max in 0..12_usize,
        bytes_max in 0..2000_usize,
        window_messages in 1..300_u64,
        cut in 1..5000_usize,
        newest: bool,
    ) {
        let hello = Hello { window_messages, table: TableLimits { names_max, bytes_max }, ..HELLO };
        let keep = if newest { Keep::Newest } else { Keep::First };
        prop_assert_eq!(play(hello, keep, &messages, cut), model(&messages));
    }

    #[test]
    fn any_bytes_are_frames_or_a_fault_for_both_ends(bytes: Vec<u8>, after_hello: bool) {
        let mut server = Session::new(SessionLimits::default());
        let mut client = Connection::new(HELLO, Keep::First);
        if after_hello {
            let output = client.output().to_vec();
            server.receive(&mut &output[..]).unwrap();
            let welcome = server.output().to_vec();
            server.advance(welcome.len());
            client.receive(&mut &welcome[..], |_| {}).unwrap();
        }
        let _ = server.receive(&mut &bytes[..]);
        let _ = client.receive(&mut &bytes[..], |_| {});
    }
}

#[test]
fn a_game_comes_through_byte_by_byte() {
    let messages: Vec<(usize, Vec<u8>, u64)> =
        (0..50).map(|number| (number % 9, vec![b'n'; number % 9 * 40], number as u64)).collect();
    for cut in 1..40 {
        assert_eq!(play(HELLO, Keep::Newest, &messages, cut), model(&messages), "{cut} bytes at a time");
    }
}

fn frame(kind: u8, body: &[u8]) -> Vec<u8> {
    [&u32::try_from(body.len()).unwrap().to_le_bytes()[..], &[kind], body].concat()
}

/// A session with a window of 4, names of 8 bytes, frames of 64 and a table of 2 names; HELLO is done.
fn session() -> Session {
    let table = TableLimits { names_max: 2, bytes_max: 80 };
    let limits = SessionLimits { window_messages: 4, frame_bytes_max: 64, name_bytes_max: 8, table };
    let mut session = Session::new(limits);
    session.receive(&mut Connection::new(HELLO, Keep::First).output()).unwrap();
    session.advance(session.output().len());
    session
}

/// A message with a literal name that is not kept.
fn literal(name: &[u8]) -> Vec<u8> {
    [&[0, u8::try_from(name.len()).unwrap()], name, &[0; 8]].concat()
}

#[track_caller]
fn fault(session: &mut Session, bytes: &[u8]) -> Fault {
    let fault = session.receive(&mut &bytes[..]).expect_err("a fault");
    let mut client = Connection::new(HELLO, Keep::First);
    let told = client.receive(&mut session.output(), |_| {}).expect_err("the client is told");
    assert_eq!((told.code, &told.text), (fault.code, &fault.text));
    assert!(session.receive(&mut &frame(2, &[])[..]).is_err(), "nothing more is taken");
    fault
}

#[test]
fn a_first_frame_that_is_no_hello_is_a_fault() {
    let limits = SessionLimits::default;
    for bytes in [&b"GET / HTTP/1.1\r\n\r\n"[..], &frame(2, &[1, 0]), &frame(1, b"quire-lane"), &frame(1, b"")] {
        let fault = fault(&mut Session::new(limits()), bytes);
        assert!([FaultCode::Malformed, FaultCode::Limit].contains(&fault.code), "{fault}");
    }
}

#[test]
fn a_version_that_no_side_speaks_is_a_fault_that_names_both() {
    let mut hello = b"quire-lean".to_vec();
    hello.extend([2, 9, 4, 0, 0]);
    let fault = fault(&mut Session::new(SessionLimits::default()), &frame(1, &hello));
    assert_eq!(fault.code, FaultCode::Version);
    assert_eq!(fault.text, "the client speaks versions 2 to 9: this server speaks 1");
}

#[test]
fn limits_are_agreed_on_as_the_smaller_of_both() {
    let mut session = session();
    let mut client = Connection::new(HELLO, Keep::First);
    session = {
        drop(session);
        let table = TableLimits { names_max: 2, bytes_max: 4000 };
        Session::new(SessionLimits { window_messages: 4, table, ..SessionLimits::default() })
    };
    session.receive(&mut client.output()).unwrap();
    client.receive(&mut session.output(), |_| {}).unwrap();
    let welcome = client.welcome().unwrap();
    assert_eq!((welcome.window_messages, welcome.table), (4, TableLimits { names_max: 2, bytes_max: 1000 }));
}

#[test]
fn each_fault_has_its_code() {
    let long = [&[1, 1, 0, 9][..], &[b'n'; 9], &[0; 8]].concat();
    let too_many = [&[1, 5][..], &literal(b"").repeat(5)].concat();
    let cases: [(&str, Vec<u8>, FaultCode); 11] = [
        ("a frame too long", [65, 0, 0, 0, 2].to_vec(), FaultCode::Limit),
        ("a name too long", frame(2, &long), FaultCode::Limit),
        ("a second HELLO", frame(1, b"quire-lean\x01\x01\x04\x00\x00"), FaultCode::Malformed),
        ("a kind that does not exist", frame(9, b""), FaultCode::Malformed),
        ("a frame of the server's", frame(0x82, b""), FaultCode::Malformed),
        ("a serial that is not the next", frame(2, &[&[2, 1][..], &literal(b"")].concat()), FaultCode::Serial),
        ("more than the window", frame(2, &too_many), FaultCode::Window),
        ("a slot that is empty", frame(2, &[&[1, 1, 2][..], &[0; 8]].concat()), FaultCode::Reference),
        ("a slot beyond the table", frame(2, &[&[1, 1, 9][..], &[0; 8]].concat()), FaultCode::Reference),
        ("a frame that ends early", frame(2, &[1, 1, 0, 3, b'a']), FaultCode::Malformed),
        ("a frame that goes on", frame(2, &[&[1, 1][..], &literal(b""), b"x"].concat()), FaultCode::Malformed),
    ];
    for (what, bytes, code) in cases {
        let fault = fault(&mut session(), &bytes);
        assert_eq!(fault.code, code, "{what}: {fault}");
    }
}

#[test]
fn a_name_that_the_table_cannot_hold_cannot_be_kept() {
    let table = TableLimits { names_max: 2, bytes_max: 33 };
    let mut session = Session::new(SessionLimits { table, ..SessionLimits::default() });
    session.receive(&mut Connection::new(HELLO, Keep::First).output()).unwrap();
    session.advance(session.output().len());
    let kept = [&[1, 1, 1, 2][..], b"ab", &[0; 8]].concat();
    assert_eq!(fault(&mut session, &frame(2, &kept)).code, FaultCode::Limit);
}

#[test]
fn a_client_that_takes_no_values_is_not_read_from() {
    let mut session = session();
    let message = |serial| frame(2, &[&[serial, 1][..], &literal(b"name")].concat());
    session.receive(&mut &message(1)[..]).unwrap();
    let second = message(2);
    let mut input = &second[..];
    session.receive(&mut input).unwrap();
    assert_eq!(input.len(), second.len(), "nothing was taken");
    session.advance(session.output().len());
    session.receive(&mut input).unwrap();
    assert!(input.is_empty());
    // The window starts from zero once the values are written.
    session.advance(session.output().len());
    for serial in 3..20 {
        session.receive(&mut &message(serial)[..]).unwrap();
        session.advance(session.output().len());
    }
}

#[test]
fn a_session_holds_no_more_than_its_table_and_its_window() {
    let table = TableLimits { names_max: 100, bytes_max: 10_000 };
    let window_messages = 50;
    let limits = SessionLimits { window_messages, frame_bytes_max: 64 << 10, name_bytes_max: 1000, table };
    let mut server = Session::new(limits);
    let hello = Hello { window_messages: 1000, table: TableLimits { names_max: 1 << 20, bytes_max: 1 << 30 }, ..HELLO };
    let mut client = Connection::new(hello, Keep::Newest);
    let names: Vec<Vec<u8>> = (0..1000_u32).map(|number| number.to_le_bytes().repeat(200)).collect();
    let mut sent = 0;
    while sent < names.len() {
        let left = names[sent..].iter().enumerate().map(|(place, name)| (sent + place, &name[..], 0));
        sent += usize::try_from(client.send(left).unwrap()).unwrap();
        let output = client.output().to_vec();
        client.advance(output.len());
        server.receive(&mut &output[..]).unwrap();
        assert!(server.held_bytes() <= 10_000 + 2 * (8 * 50 + 100), "{}", server.held_bytes());
        client.receive(&mut server.output(), |_| {}).unwrap();
        server.advance(server.output().len());
    }
}

#[test]
fn a_server_that_grants_more_than_was_asked_for_is_refused() {
    let mut client = Connection::new(HELLO, Keep::First);
    // Version 1, a window of 101, no table, frames of 2 MiB, names of 1 KiB.
    let welcome = frame(0x81, &[1, 101, 0, 0, 0x80, 0x80, 0x80, 1, 0x80, 8]);
    assert_eq!(client.receive(&mut &welcome[..], |_| {}).unwrap_err().code, FaultCode::Malformed);
}

#[test]
fn bytes_are_those_of_the_documentation() {
    let mut client = Connection::new(HELLO, Keep::First);
    assert_eq!(client.output(), [&[16, 0, 0, 0, 1][..], b"quire-lean", &[1, 1, 100, 8, 0xe8, 7]].concat());
    let mut server = Session::new(SessionLimits::default());
    server.receive(&mut client.output()).unwrap();
    client.advance(client.output().len());
    client.receive(&mut server.output(), |_| {}).unwrap();
    server.advance(server.output().len());
    client.send([(0, &b"reef"[..], 5), (0, b"reef", 7)].into_iter()).unwrap();
    let literal = [&[1, 4][..], b"reef", &[5, 0, 0, 0, 0, 0, 0, 0]].concat();
    let frame = [&[0x19, 0, 0, 0, 2, 1, 2][..], &literal, &[2, 7, 0, 0, 0, 0, 0, 0, 0]].concat();
    assert_eq!(client.output(), frame);
}
