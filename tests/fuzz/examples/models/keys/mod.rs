//! Keys and values by gRPC, in memory: an input is one connection with sequential calls and some concurrent watches,
//! while the clock advances and entries expire. Each answer and each event is checked to the byte against a map.

mod model;

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use kv::grpc::wire::key_admin_service_server::KeyAdminServiceServer;
use kv::grpc::wire::key_range_service_server::KeyRangeServiceServer;
use kv::grpc::wire::key_value_service_server::KeyValueServiceServer;
use kv::grpc::{AdminService, PairsService, RangeService};
use kv::{Clock, KeyValue, Limits, Settings, StoreKind};
use quire_rpc::{Peer, Server};
use tokio::runtime::Runtime;

use self::model::Model;
use crate::Judge;
use crate::calls::call::Call;
use crate::calls::link::{Due, Link, RST_STREAM, State};
use crate::calls::message::Message;
use crate::calls::settings;
use crate::calls::unary::{begin, call, hang_up, let_in, stream};
use crate::pipe::{Driven, Pipe};
use crate::random::Random;
use crate::tally::Tally;

const BEGUN_MS: u64 = 1_000_000;
/// More than a step's answers, including those of watches.
const ROOM: u32 = 300_000;

fn limits(random: &mut Random) -> Limits {
    let usual = Settings::default().limits;
    Limits {
        key_bytes: random.pick(&[usual.key_bytes, 10]),
        value_bytes: random.pick(&[usual.value_bytes, 50]),
        entries: random.pick(&[usual.entries, 5]),
        page_entries: random.pick(&[1000, 1000, 2]),
        page_bytes: random.pick(&[usual.page_bytes, 200, 1]),
        watchers: random.pick(&[usual.watchers.get(), 4, 0]).into(),
        ..usual
    }
}

pub fn judge() -> Judge {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    Box::new(move |random, tally| {
        let _inside = runtime.enter();
        let now_ms = Arc::new(AtomicU64::new(BEGUN_MS));
        let limits = limits(random);
        let store = random.pick(&[StoreKind::Concurrent, StoreKind::Mutex]);
        let settings = Settings { store, limits: limits.clone(), ..Settings::default() };
        let kv = KeyValue::open("unused".as_ref(), settings, Clock::Manual(Arc::clone(&now_ms))).unwrap();
        let server: Server = Server::builder()
            .add_service(KeyValueServiceServer::new(PairsService::new(kv.clone())))
            .add_service(KeyRangeServiceServer::new(RangeService::new(kv.clone())))
            .add_service(KeyAdminServiceServer::new(AdminService::new(kv.clone())))
            .build();
        let pipe = Pipe::default();
        pipe.0.lock().unwrap().bytes_max = random.pick(&[1000, 1_000_000]);
        let serving = server.serve_connection(pipe.clone(), Peer::default(), pending());
        let link = Link::new(Driven::with_threads(pipe, serving, &runtime));
        let history = History { link, model: Model::new(limits, BEGUN_MS), kv, now_ms, watches: Vec::new() };
        history.play(&runtime, random, tally);
    })
}

struct History<'a> {
    link: Link<'a>,
    model: Model,
    kv: KeyValue,
    now_ms: Arc<AtomicU64>,
    /// Streams of open watches, with their prefixes.
    watches: Vec<(u32, Vec<u8>)>,
}

impl History<'_> {
    fn play(mut self, runtime: &Runtime, random: &mut Random, tally: &mut Tally) {
        settings(&mut self.link, random);
        self.link.flush(random, tally);
        for _ in 0..random.below(60) {
            match random.below(20) {
                0 => self.watch(random),
                1 => self.end_watch(random),
                2 => {
                    assert_eq!(runtime.block_on(self.kv.sweep()), self.model.sweep(), "swept entries");
                }
                3 if random.one_in(3) => {
                    let path = "/io.grpc.KeyAdminService/Snapshot";
                    let call = stream(random, path, &Message::new(), &self.model.snapshot(), None);
                    self.begin(call, random);
                }
                _ => {
                    let (path, request, reply) = self.model.step(random);
                    let call = call(random, &format!("/io.grpc.{path}"), &request, &reply);
                    self.begin(call, random);
                }
            }
            self.flush(random, tally);
            if random.one_in(4) {
                self.model.now_ms += random.below(40) as u64;
                self.now_ms.store(self.model.now_ms, Ordering::SeqCst);
            }
        }
        self.kv.end_watches();
        for (id, _) in &self.watches {
            self.link.streams.get_mut(id).unwrap().due = Due::All;
            let_in(&mut self.link, *id, ROOM);
        }
        self.link.flush(random, tally);
        hang_up(self.link, random, tally);
    }

    fn begin(&mut self, call: Call, random: &mut Random) -> u32 {
        let id = begin(&mut self.link, random, call);
        let_in(&mut self.link, id, ROOM);
        id
    }

    /// Runs the calls that were begun, and adds the expected events to the watches' streams. Some get no window for a
    /// while.
    fn flush(&mut self, random: &mut Random, tally: &mut Tally) {
        for (key, event) in std::mem::take(&mut self.model.events) {
            for (id, _) in self.watches.iter().filter(|(_, prefix)| key.starts_with(prefix)) {
                self.link.streams.get_mut(id).unwrap().call.answer.go_on(&event);
                tally.add("event of a watch", 1);
            }
        }
        let_in(&mut self.link, 0, ROOM);
        for (id, _) in &self.watches {
            if random.one_in(2) {
                let_in(&mut self.link, *id, ROOM);
            }
        }
        self.link.flush(random, tally);
    }

    fn watch(&mut self, random: &mut Random) {
        let (prefix, refusal) = self.model.watch(self.watches.len(), random);
        let request = Message::new().bytes(1, &prefix);
        let started: &[Message] = if refusal.is_none() { &[Message::new().number(1, 1)] } else { &[] };
        let call = stream(random, "/io.grpc.KeyRangeService/Watch", &request, started, refusal.as_ref());
        let id = self.begin(call, random);
        if refusal.is_none() {
            self.link.streams.get_mut(&id).unwrap().due = Due::Body;
            self.watches.push((id, prefix));
        }
    }

    fn end_watch(&mut self, random: &mut Random) {
        if self.watches.is_empty() {
            return;
        }
        let (id, _) = self.watches.remove(random.below(self.watches.len()));
        self.link.put(RST_STREAM, 0, id, &8_u32.to_be_bytes());
        self.link.streams.get_mut(&id).unwrap().state = State::Resetting;
    }
}
