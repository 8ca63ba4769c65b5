//! The bookstore by gRPC, on a file that its worker writes: an input is a connection with concurrent orders and
//! requests of shoppers and operators; sometimes the store is reopened in the middle. Each answer is checked to the
//! byte. Inputs share a store; each begins by resetting it, and has keys of its own.

mod model;
mod pages;

use std::future::pending;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bookstore::grpc::wire::admin_server::AdminServer;
use bookstore::grpc::wire::book_store_server::BookStoreServer;
use bookstore::grpc::{AdminService, ShopService};
use bookstore::metrics::Metrics;
use bookstore::{Bookstore, Settings, exchange};
use quire_rpc::{Peer, Server};
use tempfile::TempDir;
use tokio::runtime::Runtime;

use self::model::{Model, PAGE_MAX, QUANTITY_MAX, Reply, TIME_BYTES};
use crate::calls::call::Call;
use crate::calls::link::{Due, Link, RST_STREAM, State};
use crate::calls::message::Message;
use crate::calls::settings as http2_settings;
use crate::calls::unary::{begin, call, hang_up, let_in, stream};
use crate::pipe::{Driven, Pipe};
use crate::random::Random;
use crate::tally::Tally;
use crate::{Judge, folder};

/// Inputs per file, so that it stays small.
const INPUTS_MAX: usize = 2000;
const ROOM: u32 = 100_000;
const SHOP: &str = "/bookstore.BookStore";
const ADMIN: &str = "/bookstore.Admin";

fn settings() -> Settings {
    let mut settings = Settings::default();
    settings.limits.page_size = PAGE_MAX.into();
    settings.limits.quantity = (QUANTITY_MAX as usize).into();
    // So that moves of keys and slices of restocks come often.
    (settings.keys_in_memory, settings.restock_slice) = (100, 3);
    settings
}

struct Shop {
    folder: TempDir,
    store: Bookstore,
    server: Server,
    model: Model,
    inputs: usize,
}

fn server(store: &Bookstore) -> Server {
    let shop = BookStoreServer::new(ShopService::new(store.clone()));
    Server::builder().add_service(shop).add_service(AdminServer::new(AdminService::new(store.clone()))).build()
}

fn open(folder: &TempDir) -> Bookstore {
    Bookstore::open(&folder.path().join("books.db"), settings(), Metrics::default()).unwrap()
}

impl Shop {
    fn new() -> Self {
        let folder = folder();
        let options = exchange::Options { progress: &mut |_| {}, skip_bad: None, sample: true };
        let path = folder.path().join("books.db");
        exchange::import(&path, model::catalogue().as_bytes(), &settings(), options).unwrap();
        let store = open(&folder);
        Self { server: server(&store), store, folder, model: Model::new(), inputs: 0 }
    }

    fn open_again(&mut self) {
        assert!(self.store.close(Duration::from_secs(30)), "the store does not close");
        self.store = open(&self.folder);
        self.server = server(&self.store);
    }
}

fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64
}

pub fn judge() -> Judge {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let begun_ms = now_ms();
    let mut shop = Shop::new();
    Box::new(move |random, tally| {
        let _inside = runtime.enter();
        if shop.inputs == INPUTS_MAX {
            shop = Shop::new();
        }
        shop.inputs += 1;
        let mut orders = Orders { series: random.number(), earlier: Vec::new() };
        // Its inputs depend on earlier runs, and it must not affect anything else.
        let mut other = Random::new(0);
        History::begin(&shop.server, &mut shop.model, &runtime, begun_ms, &mut other, tally).reset(&mut other, tally);
        let parts = if random.one_in(100) { 2 } else { 1 };
        for part in 0..parts {
            if part > 0 {
                shop.open_again();
            }
            let history = History::begin(&shop.server, &mut shop.model, &runtime, begun_ms, random, tally);
            history.play(&mut orders, random, tally);
        }
    })
}

/// Orders by key.
struct Orders {
    /// Prefix of each key, unique to this input.
    series: u64,
    earlier: Vec<(i64, Option<i64>, Vec<u8>)>,
}

impl Orders {
    fn key(&self, random: &mut Random) -> Vec<u8> {
        let length = random.pick(&[0, 0, 9, 9, 20, 64, 65]);
        let mut key = self.series.to_be_bytes().to_vec();
        key.resize(length.max(8), random.below(3) as u8);
        if length == 0 { Vec::new() } else { key }
    }

    fn next(&mut self, model: &Model, random: &mut Random) -> (i64, Option<i64>, Vec<u8>) {
        if !self.earlier.is_empty() && random.one_in(4) {
            return self.earlier[random.below(self.earlier.len())].clone();
        }
        let book = book(model, random);
        let quantity = random.pick(&[None, None, Some(1), Some(2), Some(7), Some(30)]);
        let odd =
            random.pick(&[Some(0), Some(-1), Some(QUANTITY_MAX), Some(QUANTITY_MAX + 1), Some(i64::from(i32::MIN))]);
        let order = (book, if random.one_in(20) { odd } else { quantity }, self.key(random));
        self.earlier.push(order.clone());
        order
    }
}

/// One of few, mostly.
fn book(model: &Model, random: &mut Random) -> i64 {
    let ids = model.ids();
    match random.below(12) {
        0 => random.pick(&[3, 53_478, 2_147_483_646, 0, -1, i64::from(i32::MIN)]),
        1..=4 => random.pick(&ids),
        _ => random.pick(&ids[..3]),
    }
}

/// Varint form of `int32` and `int64`.
fn signed(number: i64) -> u64 {
    number.cast_unsigned()
}

struct History<'a> {
    link: Link<'a>,
    model: &'a mut Model,
    begun_ms: u64,
    /// A stream that follows the log, and the last entry sent on it.
    tail: Option<(u32, usize)>,
    /// Times of entries in pending answers: stream, position and number.
    times: Vec<(u32, usize, usize)>,
}

impl<'a> History<'a> {
    fn begin(
        server: &'a Server,
        model: &'a mut Model,
        runtime: &'a Runtime,
        begun_ms: u64,
        random: &mut Random,
        tally: &mut Tally,
    ) -> Self {
        let pipe = Pipe::default();
        pipe.0.lock().unwrap().bytes_max = random.pick(&[1000, 1_000_000]);
        let serving = server.serve_connection(pipe.clone(), Peer::default(), pending());
        let link = Link::new(Driven::with_threads(pipe, serving, runtime));
        let mut history = Self { link, model, begun_ms, tail: None, times: Vec::new() };
        http2_settings(&mut history.link, random);
        history.link.flush(random, tally);
        history
    }

    /// Resets stocks to zero, and prices to one value.
    fn reset(mut self, random: &mut Random, tally: &mut Tally) {
        for id in self.model.ids() {
            while self.model.stock(id) > 0 {
                self.buy(id, Some(self.model.stock(id).min(QUANTITY_MAX)), &[], random);
            }
            self.set_price(id, Some(1234), random);
        }
        self.flush(random, tally);
        self.model.tokens.clear();
        hang_up(self.link, random, tally);
    }

    fn play(mut self, orders: &mut Orders, random: &mut Random, tally: &mut Tally) {
        for _ in 0..random.below(12) {
            match random.below(12) {
                0..=4 => {
                    // The store decides them in order of arrival.
                    for _ in 0..=random.below(6) {
                        let (id, quantity, key) = orders.next(self.model, random);
                        self.buy(id, quantity, &key, random);
                    }
                    if random.one_in(4) {
                        let cents = random.pick(&[Some(0), Some(1), Some(1999), Some(100_000_000_000), None, Some(-1)]);
                        self.set_price(book(self.model, random), cents, random);
                    }
                    self.flush(random, tally);
                }
                5..=6 => self.restock(random, tally),
                7 => self.look(random, tally),
                8 => self.search(random, tally),
                9 => self.topics(random, tally),
                10 => self.log(random, tally),
                _ => self.follow(random, tally),
            }
        }
        self.end_tail();
        hang_up(self.link, random, tally);
    }

    fn call(&mut self, path: &str, request: &Message, reply: &Reply, random: &mut Random) -> u32 {
        let call = call(random, path, request, reply);
        self.begin_call(call, random)
    }

    fn begin_call(&mut self, call: Call, random: &mut Random) -> u32 {
        let id = begin(&mut self.link, random, call);
        let_in(&mut self.link, id, ROOM);
        let_in(&mut self.link, 0, ROOM);
        id
    }

    fn buy(&mut self, id: i64, quantity: Option<i64>, key: &[u8], random: &mut Random) {
        let request = Message::new().number(1, signed(id)).optional(2, quantity.map(signed)).bytes(3, key);
        let reply = self.model.buy(id, quantity, key);
        self.call(&format!("{SHOP}/Buy"), &request, &reply, random);
    }

    fn set_price(&mut self, id: i64, cents: Option<i64>, random: &mut Random) {
        let request = Message::new().number(1, signed(id)).optional(2, cents.map(signed));
        let reply = self.model.set_price(id, cents);
        self.call(&format!("{ADMIN}/UpdatePrice"), &request, &reply, random);
    }

    fn restock(&mut self, random: &mut Random, tally: &mut Tally) {
        let amounts = [None, Some(0), Some(1), Some(5), Some(5), Some(40), Some(-1)];
        let amount = if random.one_in(30) { Some(i64::from(i32::MAX)) } else { random.pick(&amounts) };
        let reply = self.model.restock(amount);
        self.call(&format!("{ADMIN}/Restock"), &Message::new().optional(1, amount.map(signed)), &reply, random);
        self.flush(random, tally);
    }

    /// Lookups, and a greeting.
    fn look(&mut self, random: &mut Random, tally: &mut Tally) {
        let name = random.pick(&["", "world", "雪\n"]);
        let greeted = format!("Hello {name}!");
        let reply = Ok(Message::new().bytes(1, greeted.as_bytes()));
        self.call(&format!("{SHOP}/Hello"), &Message::new().bytes(1, name.as_bytes()), &reply, random);
        for _ in 0..=random.below(4) {
            let id = book(self.model, random);
            let reply = self.model.lookup(id);
            self.call(&format!("{SHOP}/Lookup"), &Message::new().number(1, signed(id)), &reply, random);
        }
        self.flush(random, tally);
    }

    /// Follows the log, or stops following it.
    fn follow(&mut self, random: &mut Random, tally: &mut Tally) {
        if self.tail.is_some() {
            self.end_tail();
            return self.flush(random, tally);
        }
        let last = self.model.last_number();
        let after = random.one_in(2).then(|| last.saturating_sub(random.below(12)));
        let request = Message::new().optional(1, after.map(|after| after as u64));
        let call = stream(random, &format!("{ADMIN}/TailLog"), &request, &[], None);
        let id = self.begin_call(call, random);
        self.link.streams.get_mut(&id).unwrap().due = Due::Body;
        self.tail = Some((id, after.unwrap_or(last)));
        self.flush(random, tally);
    }

    fn end_tail(&mut self) {
        if let Some((id, _)) = self.tail.take() {
            self.link.put(RST_STREAM, 0, id, &8_u32.to_be_bytes());
            self.link.streams.get_mut(&id).unwrap().state = State::Resetting;
        }
    }

    /// Adds entries to a stream's expected answer; those with unknown times are last in it.
    fn expect_times(&mut self, id: u32, entries: &[usize]) {
        let timeless = self.model.timeless(entries);
        let unknown = &self.link.streams[&id].call.answer.unknown;
        let places = unknown.range(unknown.len() - timeless.len() * TIME_BYTES..).step_by(TIME_BYTES);
        self.times.extend(places.zip(timeless).map(|(place, number)| (id, *place, number)));
    }

    /// Runs the calls that were begun. A stream that follows the log gets new entries.
    fn flush(&mut self, random: &mut Random, tally: &mut Tally) {
        if let Some((id, told)) = self.tail {
            let new: Vec<usize> = (told + 1..=self.model.last_number()).collect();
            let stream = self.link.streams.get_mut(&id).unwrap();
            new.iter().for_each(|number| stream.call.answer.go_on(&self.model.entry(*number)));
            self.expect_times(id, &new);
            self.tail = Some((id, self.model.last_number()));
            let_in(&mut self.link, id, ROOM);
            let_in(&mut self.link, 0, ROOM);
            tally.add("entry of a log that is followed", new.len() as u64);
        }
        self.link.flush(random, tally);
        let between = [self.begun_ms, now_ms()];
        for (id, place, number) in self.times.drain(..) {
            let body = &self.link.streams[&id].call.answer.body;
            self.model.learn(number, &body[place..place + TIME_BYTES], between);
        }
    }
}
