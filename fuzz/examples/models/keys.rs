//! Keys and values by gRPC, in memory: an input is one connection with calls of Create, Retrieve, Update and Delete one
//! after another, while the clock goes on and other entries expire. Each answer is judged to the byte against a map.

use std::collections::BTreeMap;
use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use kv::grpc::PairsService;
use kv::grpc::wire::key_value_service_server::KeyValueServiceServer;
use kv::{Clock, KeyValue, Settings};
use quire_rpc::{Peer, Server};

use crate::Judge;
use crate::calls::link::Link;
use crate::calls::settings;
use crate::game::{begin, call, varint};
use crate::pipe::{Driven, Pipe};
use crate::random::Random;
use crate::tally::Tally;

const KEYS: usize = 12;
const BEGUN_MS: u64 = 1_000_000;
const ALREADY_EXISTS: &str = "6";
const NOT_FOUND: &str = "5";

/// A value, and when it expires.
type Entry = (Vec<u8>, Option<u64>);

struct Model {
    entries: BTreeMap<Vec<u8>, Entry>,
    now_ms: Arc<AtomicU64>,
}

fn bytes_field(number: u8, bytes: &[u8], out: &mut Vec<u8>) {
    if !bytes.is_empty() {
        out.push(number << 3 | 2);
        varint(bytes.len() as u64, out);
        out.extend(bytes);
    }
}

impl Model {
    /// A request, and what comes of it: the reply, or the number of the refusal.
    fn step(&mut self, random: &mut Random) -> (&'static str, Vec<u8>, Result<Vec<u8>, &'static str>) {
        let now_ms = self.now_ms.load(Ordering::SeqCst);
        self.entries.retain(|_, entry| entry.1.is_none_or(|at| at > now_ms));
        let number = random.below(KEYS);
        let key = vec![number as u8; number];
        let mut request = Vec::new();
        bytes_field(1, &key, &mut request);
        let method = random.pick(&["Create", "Create", "Create", "Retrieve", "Retrieve", "Update", "Update", "Delete"]);
        let is_there = self.entries.contains_key(&key);
        let is_put = match method {
            "Create" if is_there => Err(ALREADY_EXISTS),
            "Update" | "Retrieve" if !is_there => Err(NOT_FOUND),
            "Create" | "Update" => Ok(true),
            _ => Ok(false),
        };
        let mut reply = Vec::new();
        match method {
            "Retrieve" if is_there => bytes_field(1, &self.entries[&key].0, &mut reply),
            "Retrieve" => {}
            "Delete" => drop(self.entries.remove(&key)),
            _ => {
                let bytes_max = if random.one_in(20) { 20_000 } else { 100 };
                let value = random.bytes(bytes_max);
                bytes_field(2, &value, &mut request);
                let ttl_ms = if random.one_in(3) { 1 + random.below(50) as u64 } else { 0 };
                if ttl_ms > 0 {
                    request.push(if method == "Create" { 3 << 3 } else { 4 << 3 });
                    varint(ttl_ms, &mut request);
                }
                if is_put == Ok(true) {
                    self.entries.insert(key, (value, (ttl_ms > 0).then_some(now_ms + ttl_ms)));
                }
            }
        }
        (method, request, is_put.map(|_| reply))
    }
}

pub fn judge() -> Judge {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    Box::new(move |random, tally| {
        let _inside = runtime.enter();
        let now_ms = Arc::new(AtomicU64::new(BEGUN_MS));
        let kv = KeyValue::open("unused".as_ref(), Settings::default(), Clock::Manual(Arc::clone(&now_ms))).unwrap();
        let server = Server::builder().add_service(KeyValueServiceServer::new(PairsService::new(kv))).build();
        let pipe = Pipe::default();
        pipe.0.lock().unwrap().bytes_max = random.pick(&[1000, 1_000_000]);
        let serving = server.serve_connection(pipe.clone(), Peer::default(), pending());
        history(Link::new(Driven::new(pipe, serving)), &mut Model { entries: BTreeMap::new(), now_ms }, random, tally);
    })
}

fn history(mut link: Link<'_>, model: &mut Model, random: &mut Random, tally: &mut Tally) {
    settings(&mut link, random);
    link.flush(random, tally);
    for _ in 0..random.below(60) {
        let (method, request, outcome) = model.step(random);
        let path = format!("/io.grpc.KeyValueService/{method}");
        let call = call(random, &path, &request, outcome.as_deref().map_err(|code| *code));
        begin(&mut link, random, call);
        link.flush(random, tally);
        if random.one_in(4) {
            model.now_ms.fetch_add(random.below(40) as u64, Ordering::SeqCst);
        }
    }
    link.server.end();
    link.flush(random, tally);
    assert!(link.server.is_over && link.resets.is_empty() && link.goaway.is_none());
}
