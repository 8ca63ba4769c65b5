//! The RPC game by single calls in any order, and by the lean protocol: an input is one connection with some games.
//! Each value, each sum and the code of each fault is checked by the contract's formula.

use std::collections::VecDeque;
use std::future::pending;

use quire_rpc::{Peer, Server};
use rpcgame::grpc::GameService;
use rpcgame::grpc::wire::rpc_game_server::RpcGameServer;
use rpcgame::lean::{Session, SessionLimits, TableLimits};
use rpcgame::{GameLimits, Games};
use twox_hash::XxHash3_64;

use crate::Judge;
use crate::calls::link::{Due, Link, State};
use crate::calls::message::{Message, varint};
use crate::calls::settings;
use crate::calls::unary::{begin, call, hang_up};
use crate::pipe::{Driven, Pipe};
use crate::random::Random;
use crate::tally::Tally;

/// Both checksums are computed over all bytes at the end.
#[derive(Default)]
struct Game {
    handled: u64,
    said: Vec<u8>,
    answered: Vec<u8>,
}

impl Game {
    fn value(&mut self, name: &[u8], count: u64) -> u64 {
        let value = XxHash3_64::oneshot(name).wrapping_add(count).wrapping_add(self.handled);
        self.handled += 1;
        self.said.extend(name);
        self.said.extend(count.to_le_bytes());
        self.answered.extend(value.to_le_bytes());
        value
    }

    fn sums(&self) -> [u64; 2] {
        [XxHash3_64::oneshot(&self.said), XxHash3_64::oneshot(&self.answered)]
    }
}

fn count(random: &mut Random) -> u64 {
    if random.one_in(2) { random.number() } else { random.below(1000) as u64 }
}

pub fn unary() -> Judge {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let games = Games::new(GameLimits::default());
    let server: Server = Server::builder().add_service(RpcGameServer::new(GameService::new(games))).build();
    Box::new(move |random, tally| {
        let _inside = runtime.enter();
        let pipe = Pipe::default();
        pipe.0.lock().unwrap().bytes_max = random.pick(&[100, 1_000_000]);
        let serving = server.serve_connection(pipe.clone(), Peer::default(), pending());
        let mut link = Link::new(Driven::new(pipe, serving));
        settings(&mut link, random);
        link.flush(random, tally);
        for _ in 0..=random.below(2) {
            unary_game(&mut link, random, tally);
        }
        hang_up(link, random, tally);
    })
}

/// Fields of a message, numbered from 1.
fn message(fields: &[&[u8]]) -> Message {
    (1..).zip(fields).fold(Message::default(), |message, (number, field)| message.bytes(number, field))
}

fn unary_game(link: &mut Link<'_>, random: &mut Random, tally: &mut Tally) {
    let mut game = Game::default();
    let mut calls = Vec::new();
    for serial in 1..=random.below(25) {
        let name: String = (0..random.below(25)).map(|_| random.pick(&['a', 'Z', ' ', ',', 'é', '雪', '\0'])).collect();
        let count = count(random);
        let value = game.value(name.as_bytes(), count).to_string();
        let request = message(&[serial.to_string().as_bytes(), name.as_bytes(), count.to_string().as_bytes()]);
        let reply = Ok(message(&[value.as_bytes()]));
        calls.push((serial, Some(call(random, "/RPCGame/Try", &request, &reply))));
    }
    let mut ids = vec![0; calls.len()];
    for left in (1..=calls.len()).rev() {
        let place = if random.one_in(2) { 0 } else { random.below(left) };
        let (serial, call) = calls.remove(place);
        ids[serial - 1] = begin(link, random, call.unwrap());
        // Ids after the first missing one have to wait.
        let missing = ids.iter().position(|id| *id == 0).unwrap_or(ids.len());
        for (place, id) in ids.iter().enumerate().filter(|(_, id)| **id != 0) {
            link.streams.get_mut(id).unwrap().due = if place > missing { Due::Nothing } else { Due::All };
        }
        if random.one_in(2) {
            link.flush(random, tally);
            let early = ids
                .iter()
                .enumerate()
                .any(|(place, id)| place > missing && *id != 0 && link.streams[id].state == State::Answered);
            assert!(!early, "a message is answered before one that comes first");
        }
    }
    link.flush(random, tally);
    let [client, server] = game.sums().map(|sum| format!("{sum:016x}"));
    let sums = Ok(message(&[client.as_bytes(), server.as_bytes()]));
    let done = call(random, "/RPCGame/Done", &Message::default(), &sums);
    begin(link, random, done);
    link.flush(random, tally);
}

const HELLO: u8 = 1;
const TRY: u8 = 2;
const DONE: u8 = 3;
const TOKEN: u8 = 4;
const WELCOME: u8 = 0x81;
const VALUES: u8 = 0x82;
const SUMS: u8 = 0x83;
const ERROR: u8 = 0xff;

fn varints(numbers: &[u64]) -> Vec<u8> {
    let mut out = Vec::new();
    numbers.iter().for_each(|number| varint(*number, &mut out));
    out
}

fn frame(kind: u8, body: &[u8]) -> Vec<u8> {
    [&(body.len() as u32).to_le_bytes()[..], &[kind], body].concat()
}

/// The table of names, as both ends keep it.
struct Table {
    names_max: u64,
    bytes_max: u64,
    names: VecDeque<Vec<u8>>,
    /// Number of the oldest name.
    oldest: u64,
}

impl Table {
    fn can_hold(&self, name: &[u8]) -> bool {
        self.names_max > 0 && name.len() as u64 + 32 <= self.bytes_max
    }

    fn insert(&mut self, name: &[u8]) {
        let costs = |names: &VecDeque<Vec<u8>>| names.iter().map(|name| name.len() as u64 + 32).sum::<u64>();
        let cost = name.len() as u64 + 32;
        while self.names.len() as u64 >= self.names_max || costs(&self.names) + cost > self.bytes_max {
            self.names.pop_front();
            self.oldest += 1;
        }
        self.names.push_back(name.into());
    }

    fn slots(&self) -> Vec<u64> {
        (self.oldest..).take(self.names.len()).map(|number| number % self.names_max).collect()
    }
}

struct Lean {
    session: Session,
    held: Vec<u8>,
}

impl Lean {
    /// Sends bytes in pieces; returns the server's output.
    fn exchange(&mut self, random: &mut Random, mut bytes: &[u8]) -> Vec<u8> {
        let mut said = Vec::new();
        while !bytes.is_empty() {
            let (piece, rest) =
                bytes.split_at(if random.one_in(2) { bytes.len() } else { 1 + random.below(bytes.len()) });
            bytes = rest;
            self.held.extend(piece);
            loop {
                let mut rest = &self.held[..];
                let is_over = self.session.receive(&mut rest).is_err();
                self.held = rest.to_vec();
                if self.session.output().is_empty() {
                    break;
                }
                while !self.session.output().is_empty() {
                    let length = self.session.output().len();
                    let taken = if random.one_in(2) { length } else { 1 + random.below(length) };
                    said.extend(&self.session.output()[..taken]);
                    self.session.advance(taken);
                }
                if is_over {
                    return said;
                }
            }
        }
        said
    }
}

pub fn lean() -> Judge {
    Box::new(|random, tally| {
        let names_max = random.below(6);
        let bytes_max = random.pick(&[0, 40, 100, 300, 10_000]);
        let limits = SessionLimits {
            window_messages: 1 + random.below(40) as u64,
            frame_bytes_max: 3000,
            name_bytes_max: 60,
            table: TableLimits { names_max, bytes_max },
        };
        let asked = [1 + random.below(60) as u64, random.below(8) as u64, random.below(400) as u64];
        let granted =
            [limits.window_messages.min(asked[0]), asked[1].min(names_max as u64), asked[2].min(bytes_max as u64)];
        let mut lean = Lean { session: Session::new(limits), held: Vec::new() };
        let hello =
            [&b"quire-lean"[..], &varints(&[random.below(2) as u64, 1 + random.below(9) as u64]), &varints(&asked)]
                .concat();
        let token = if random.one_in(3) { frame(TOKEN, b"a token") } else { Vec::new() };
        let said = lean.exchange(random, &[token, frame(HELLO, &hello)].concat());
        let welcome = [varints(&[1]), varints(&granted), varints(&[3000, 60])].concat();
        assert_eq!(said, frame(WELCOME, &welcome), "a WELCOME");
        tally.add("lean WELCOME", 1);
        let mut table = Table { names_max: granted[1], bytes_max: granted[2], names: VecDeque::new(), oldest: 0 };
        for _ in 0..=random.below(2) {
            let mut game = Game::default();
            for _ in 0..random.below(8) {
                tries(&mut lean, &mut table, &mut game, granted[0], random, tally);
            }
            if random.one_in(4) {
                return fault(&mut lean, &table, &game, granted[0], random, tally);
            }
            // The client's own sums make no difference.
            let theirs = if random.one_in(2) { game.sums() } else { [1, 2] };
            let end = |sums: [u64; 2]| [varints(&[game.handled]), sums.map(u64::to_le_bytes).concat()].concat();
            let said = lean.exchange(random, &frame(DONE, &end(theirs)));
            assert_eq!(said, frame(SUMS, &end(game.sums())), "the SUMS");
            tally.add("lean SUMS", 1);
        }
    })
}

fn one(table: &mut Table, random: &mut Random, body: &mut Vec<u8>) -> (Vec<u8>, u64) {
    let count = count(random);
    let slots = table.slots();
    let name = if !slots.is_empty() && random.one_in(2) {
        let place = random.below(slots.len());
        varint(slots[place] + 2, body);
        table.names[place].clone()
    } else {
        let name = random.bytes(60);
        let is_kept = table.can_hold(&name) && random.one_in(2);
        body.extend([u8::from(is_kept), name.len() as u8]);
        body.extend(&name);
        if is_kept {
            table.insert(&name);
        }
        name
    };
    body.extend(count.to_le_bytes());
    (name, count)
}

/// Some message frames in one read, within the window.
fn tries(lean: &mut Lean, table: &mut Table, game: &mut Game, window: u64, random: &mut Random, tally: &mut Tally) {
    let (mut sent, mut expected, mut left) = (Vec::new(), Vec::new(), window);
    for _ in 0..=random.below(2) {
        let messages = random.below(left.min(30) as usize + 1) as u64;
        left -= messages;
        let (mut body, mut values) = (varints(&[game.handled + 1, messages]), varints(&[game.handled + 1, messages]));
        for _ in 0..messages {
            let (name, count) = one(table, random, &mut body);
            values.extend(game.value(&name, count).to_le_bytes());
        }
        sent.extend(frame(TRY, &body));
        expected.extend(frame(VALUES, &values));
        tally.add("lean value", messages);
    }
    assert_eq!(lean.exchange(random, &sent), expected, "VALUES");
}

fn fault(lean: &mut Lean, table: &Table, game: &Game, window: u64, random: &mut Random, tally: &mut Tally) {
    let next = game.handled + 1;
    let literal = |kept: u8, length: usize| {
        let name = vec![b'n'; length];
        [varints(&[next, 1]), vec![kept], varints(&[length as u64]), name, vec![0; 8]].concat()
    };
    let empty = (0..table.names_max + 3).find(|slot| !table.slots().contains(slot)).unwrap();
    let too_many = [varints(&[next, window + 1]), [&[0, 0][..], &[0; 8]].concat().repeat(window as usize + 1)].concat();
    let faults = [
        (1, frame(9, &[])),
        (1, frame(HELLO, b"quire-lean")),
        (1, frame(TOKEN, b"late")),
        (1, frame(TRY, &varints(&[next, 1]))),
        (1, frame(TRY, &[literal(0, 3), vec![0]].concat())),
        (1, frame(TRY, &literal(0, 3)[..12])),
        (1, frame(DONE, &[0; 18])),
        (3, vec![0xb9, 0x0b, 0, 0, TRY]),
        (3, frame(TRY, &literal(0, 61))),
        (4, frame(TRY, &varints(&[next + 1, 0]))),
        (4, frame(TRY, &varints(&[game.handled, 0]))),
        (5, frame(TRY, &[varints(&[next, 1, empty + 2]), vec![0; 8]].concat())),
        (6, frame(TRY, &too_many)),
    ];
    let (code, bytes) = &faults[random.below(faults.len())];
    let said = lean.exchange(random, bytes);
    assert_eq!((said[4], said[5]), (ERROR, *code), "{:?} to {bytes:?}", said.escape_ascii().to_string());
    assert_eq!(u32::from_le_bytes(said[..4].try_into().unwrap()) as usize, said.len() - 5, "one frame");
    tally.add("lean ERROR", 1);
}
