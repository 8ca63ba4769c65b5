//! Record queries: an input is a CSV file and a server of it, with queries by gRPC and by HTTP/1.1 on a connection
//! each, while the file is occasionally replaced. Each answer is checked to the byte against a row-by-row search, for
//! each of the server's ways to search and encode.

mod model;
mod rest;

use std::fs;
use std::future::pending;
use std::path::PathBuf;

use quire_rpc::{Peer, Server};
use records::grpc::wire::reader_service_server::ReaderServiceServer;
use records::grpc::wire::record_stream_service_server::RecordStreamServiceServer;
use records::grpc::{ReaderGrpc, StreamGrpc};
use records::rest::site;
use records::{Records, Settings};
use tokio::runtime::Runtime;

use self::model::{Fault, Found, NO_FILE, Query, Table, settings};
use self::rest::Rest;
use crate::calls::link::Link;
use crate::calls::message::Message;
use crate::calls::settings as http2_settings;
use crate::calls::unary::{Refusal, begin, call, hang_up, let_in, stream};
use crate::pipe::{Driven, Pipe};
use crate::random::Random;
use crate::tally::Tally;
use crate::{Judge, folder};

/// More than any answer of a history.
const ROOM: u32 = 30_000_000;

const INVALID: u8 = 3;
const EXHAUSTED: u8 = 8;
const NO_RECORDS: u8 = 9;

impl Fault {
    fn refusal(self) -> Refusal {
        match self {
            Self::NoFile => Refusal::new(NO_RECORDS, NO_FILE),
            Self::Invalid(why) => Refusal::new(INVALID, why),
            Self::Large(why) => Refusal::new(EXHAUSTED, why),
        }
    }
}

pub fn judge() -> Judge {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let folder = folder();
    Box::new(move |random, tally| {
        let _inside = runtime.enter();
        let path = folder.path().join("table.csv");
        let mut settings = settings(random);
        let table = (!random.one_in(20)).then(|| Table::random(random));
        if let Some(table) = &table {
            fs::write(&path, table.csv(random)).unwrap();
            settings.csv = Some(path.clone());
        }
        let records = Records::open(settings.clone()).unwrap();
        let server: Server = Server::builder()
            .add_service(ReaderServiceServer::new(ReaderGrpc::new(records.clone())))
            .add_service(RecordStreamServiceServer::new(StreamGrpc::new(records.clone())))
            .http(site(records.clone()).router)
            .build();
        let (link, rest) = (drive(&server, &runtime, random), drive(&server, &runtime, random));
        let history = History { link: Link::new(link), rest: Rest::new(rest), records, settings, table, path };
        history.play(random, tally);
    })
}

fn drive<'a>(server: &'a Server, runtime: &'a Runtime, random: &mut Random) -> Driven<'a> {
    let pipe = Pipe::default();
    pipe.0.lock().unwrap().bytes_max = random.pick(&[1000, 1_000_000]);
    let serving = server.serve_connection(pipe.clone(), Peer::default(), pending());
    Driven::with_threads(pipe, serving, runtime)
}

struct History<'a> {
    link: Link<'a>,
    rest: Rest<'a>,
    records: Records,
    settings: Settings,
    table: Option<Table>,
    path: PathBuf,
}

impl History<'_> {
    fn play(mut self, random: &mut Random, tally: &mut Tally) {
        http2_settings(&mut self.link, random);
        self.link.flush(random, tally);
        for _ in 0..random.below(30) {
            match random.below(16) {
                0..=4 => self.whole(random, tally),
                5..=7 => self.streamed(random, tally),
                8 if random.one_in(3) => self.replace(random),
                _ => self.rest.ask(self.table.as_ref(), &self.settings, random, tally),
            }
        }
        hang_up(self.link, random, tally);
        self.rest.hang_up();
    }

    /// Replaces the file, sometimes by one that cannot be loaded.
    fn replace(&mut self, random: &mut Random) {
        if self.table.is_none() {
            return self.records.reload().unwrap();
        }
        let table = Table::random(random);
        let mut file = table.csv(random);
        let is_bad = random.one_in(4);
        if is_bad {
            file.extend(random.pick(&[&b"\n\xff"[..], b"\na,b,c,d,e,f,g\n", b"\n\"\"\"\"x,\n1,2,3,4,5,6\n"]));
        } else {
            self.table = Some(table);
        }
        fs::write(&self.path, file).unwrap();
        assert_eq!(self.records.reload().is_err(), is_bad, "whether a file is refused");
        self.rest.forget();
    }

    fn request(query: &Query) -> Message {
        let request = Message::new().bytes(1, query.column.as_bytes()).bytes(2, query.value.as_bytes());
        request.optional_double(3, query.share).number(4, query.offset).number(5, query.limit.unwrap_or(0))
    }

    fn begin(&mut self, call: crate::calls::call::Call, random: &mut Random, tally: &mut Tally) {
        let id = begin(&mut self.link, random, call);
        let_in(&mut self.link, id, ROOM);
        let_in(&mut self.link, 0, ROOM);
        self.link.flush(random, tally);
    }

    /// The answer in one message.
    fn whole(&mut self, random: &mut Random, tally: &mut Tally) {
        let query = Query::random(self.table.as_ref(), random);
        let is_string = random.one_in(2);
        let at = self.settings.limits.answer_bytes;
        let reply = query.find(self.table.as_ref()).and_then(|found| {
            let reply = if is_string { found.string() } else { found.records(&found.rows) };
            found.within(reply.as_bytes().len(), at).map(|()| reply)
        });
        let path = if is_string { "/ReaderService/GetRecordString" } else { "/ReaderService/GetRecord" };
        let call = call(random, path, &Self::request(&query), &reply.map_err(Fault::refusal));
        self.begin(call, random, tally);
    }

    fn streamed(&mut self, random: &mut Random, tally: &mut Tally) {
        let query = Query::random(self.table.as_ref(), random);
        let page_rows = random.pick(&[0, 0, 1, 3, 1000]);
        let request = Self::request(&query).number(6, page_rows as u64);
        let path = "/RecordStreamService/StreamRecords";
        let found = query.find(self.table.as_ref());
        let pages = found.as_ref().map(|found| pages(found, page_rows, self.settings.limits.page_bytes));
        let call = match pages {
            Ok(pages) => stream(random, path, &request, &pages, None),
            Err(fault) => stream(random, path, &request, &[], Some(&fault.clone().refusal())),
        };
        self.begin(call, random, tally);
    }
}

/// Pages with as many rows as fit, but at least one; a message without rows if there are none.
fn pages(found: &Found<'_>, page_rows: usize, page_bytes: usize) -> Vec<Message> {
    let rows_max = if page_rows == 0 { usize::MAX } else { page_rows };
    let (mut pages, mut page, mut bytes) = (Vec::new(), Vec::new(), 0);
    for row in &found.rows {
        let row_bytes = Message::new().message(1, &found.record(row)).as_bytes().len();
        if !page.is_empty() && (page.len() == rows_max || bytes + row_bytes > page_bytes) {
            pages.push(found.records(&page));
            (page, bytes) = (Vec::new(), 0);
        }
        page.push(*row);
        bytes += row_bytes;
    }
    if !page.is_empty() || pages.is_empty() {
        pages.push(found.records(&page));
    }
    pages
}
