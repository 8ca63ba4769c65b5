//! Record queries by HTTP/1.1: pipelined requests, and their replies. The date is not checked; an entity tag is checked
//! by the content it identifies.

use std::collections::{BTreeMap, HashMap};
use std::io::Read as _;

use flate2::read::GzDecoder;
use records::Settings;

use super::NO_FILE;
use super::model::{Fault, Query, Table, json};
use crate::pipe::Driven;
use crate::random::Random;
use crate::tally::Tally;

type Headers = BTreeMap<String, String>;

/// Expected reply to a request.
struct Reply {
    request: String,
    status: u16,
    headers: Headers,
    /// Before compression; empty for HEAD.
    body: Vec<u8>,
    coding: &'static str,
    /// Key of the request, if it is answered.
    asked: Option<String>,
}

pub struct Rest<'a> {
    server: Driven<'a>,
    unread: Vec<u8>,
    /// Meaning of each entity tag: path, coding and content.
    tags: HashMap<String, (String, Vec<u8>)>,
    /// Entity tags of answered requests for this file.
    asked: HashMap<String, String>,
}

/// Form encoding; some writers encode more than others.
fn encoded(text: &str, random: &mut Random) -> String {
    let is_thorough = random.one_in(2);
    let byte = |byte: u8| match byte {
        b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' if !is_thorough => char::from(byte).to_string(),
        b' ' if !is_thorough => "+".to_owned(),
        _ if is_thorough => format!("%{byte:02x}"),
        _ => format!("%{byte:02X}"),
    };
    text.bytes().map(byte).collect()
}

/// A query string, and its refusal if that does not depend on the file.
fn query_string(query: &Query, random: &mut Random) -> (String, Option<String>) {
    let whole = "it must be a whole number from 0 to 9007199254740991";
    let mut pairs = vec![
        format!("headerKey={}", encoded(&query.column, random)),
        format!("headerValue={}", encoded(&query.value, random)),
    ];
    let mut refused = None;
    if let Some(share) = query.share {
        pairs.push(format!("result_size={}", encoded(&share.to_string(), random)));
        refused = (!share.is_finite()).then(|| format!("result_size is '{share}'; it must be a number from 0 to 1"));
    }
    if query.offset > 0 || random.one_in(4) {
        pairs.push(format!("offset={}", query.offset));
    }
    if let Some(limit) = query.limit {
        pairs.push(format!("limit={limit}"));
    }
    pairs.rotate_left(random.below(2));
    let mut wrong = |pair: &str, why: String| {
        pairs.insert(0, pair.to_owned());
        Some(why)
    };
    let names = "headerKey, headerValue, result_size, offset, limit";
    let refused = match random.below(60) {
        0 => wrong("headerkey=a", format!("there is no parameter 'headerkey'; the parameters are {names}")),
        1 => wrong("%zz=1", "a % in the query string is not followed by two hexadecimal digits".to_owned()),
        2 => wrong("offset=%ff", "the query string is not UTF-8 once it is decoded".to_owned()),
        3 => {
            pairs.retain(|pair| !pair.starts_with("limit="));
            let text = random.pick(&["", "-1", "1.0", "x", "9007199254740992"]);
            pairs.push(format!("limit={text}"));
            refused.or_else(|| Some(format!("limit is '{text}'; {whole}")))
        }
        4 => {
            pairs.push("headerValue".to_owned());
            Some("the parameter headerValue is there twice; give it once".to_owned())
        }
        5 => {
            pairs.retain(|pair| !pair.starts_with("headerKey="));
            Some("the parameter headerKey is missing; it must be a column's name".to_owned())
        }
        _ => refused,
    };
    (pairs.join("&"), refused)
}

fn headers(of: &[(&str, &str)]) -> Headers {
    of.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn refusal(request: String, status: u16, why: &str) -> Reply {
    let body = format!("{{\"error\":{}}}", json(why)).into_bytes();
    let headers = headers(&[("content-type", "application/json"), ("content-length", &body.len().to_string())]);
    Reply { request, status, headers, body, coding: "", asked: None }
}

impl<'a> Rest<'a> {
    pub fn new(server: Driven<'a>) -> Self {
        Self { server, unread: Vec::new(), tags: HashMap::new(), asked: HashMap::new() }
    }

    /// Forgets entity tags, as the file was replaced.
    pub fn forget(&mut self) {
        self.asked.clear();
    }

    pub fn hang_up(mut self) {
        self.server.end();
        let rest = self.server.settle();
        assert!(rest.is_empty() && self.unread.is_empty() && self.server.is_over, "more than the replies");
    }

    /// Sends some requests and checks the replies.
    pub fn ask(&mut self, table: Option<&Table>, settings: &Settings, random: &mut Random, tally: &mut Tally) {
        let replies: Vec<Reply> = (0..=random.below(3)).map(|_| self.next(table, settings, random)).collect();
        let mut requests: Vec<u8> = replies.iter().flat_map(|reply| reply.request.bytes()).collect();
        while !requests.is_empty() {
            let count = if random.one_in(2) { requests.len() } else { 1 + random.below(requests.len()) };
            self.server.send(&requests[..count]);
            requests.drain(..count);
            self.unread.extend(self.server.settle());
        }
        for reply in replies {
            self.judge(&reply, settings);
            tally.add(format!("HTTP/1.1 {}", reply.status), 1);
        }
    }

    fn next(&self, table: Option<&Table>, settings: &Settings, random: &mut Random) -> Reply {
        let method = random.pick(&["GET", "GET", "GET", "HEAD"]);
        let path = random.pick(&["/search", "/search_string"]);
        match random.below(40) {
            0 => {
                let request = "GET /nothing HTTP/1.1\r\nhost: h\r\n\r\n".to_owned();
                let headers = headers(&[("content-length", "0")]);
                return Reply { request, status: 404, headers, body: Vec::new(), coding: "", asked: None };
            }
            1 => {
                let request = format!("POST {path} HTTP/1.1\r\nhost: h\r\ncontent-length: 0\r\n\r\n");
                let headers = headers(&[("content-length", "0"), ("allow", "GET,HEAD")]);
                return Reply { request, status: 405, headers, body: Vec::new(), coding: "", asked: None };
            }
            _ => {}
        }
        let mut query = Query::random(table, random);
        if random.one_in(20) {
            query.limit = Some(0);
        }
        let (text, refused) = query_string(&query, random);
        let accepts = random.pick(&["", "", "identity", "gzip", "gzip;q=0.5, zstd", "zstd"]);
        let mut request = format!("{method} {path}?{text} HTTP/1.1\r\nhost: h\r\n");
        if !accepts.is_empty() {
            request += &format!("accept-encoding: {accepts}\r\n");
        }
        let mut reply = match refused {
            Some(why) => refusal(request, 400, &why),
            None => self.answer(request, path, &query, accepts, table, settings, random),
        };
        reply.request += "\r\n";
        if method == "HEAD" {
            reply.body.clear();
        }
        reply
    }

    #[expect(clippy::too_many_arguments, reason = "all that an answer depends on")]
    fn answer(
        &self,
        mut request: String,
        path: &str,
        query: &Query,
        accepts: &str,
        table: Option<&Table>,
        settings: &Settings,
        random: &mut Random,
    ) -> Reply {
        let is_object = path == "/search";
        let found = query.find(table).and_then(|found| {
            let body = if is_object { found.json() } else { found.lines() };
            found.within(body.len(), settings.limits.answer_bytes).map(|()| (found, body.into_bytes()))
        });
        let (found, body) = match found {
            Ok(found) => found,
            Err(Fault::NoFile) => return refusal(request, 503, NO_FILE),
            Err(Fault::Invalid(why)) => return refusal(request, 400, &why),
            Err(Fault::Large(why)) => return refusal(request, 413, &why),
        };
        let is_packed = settings.compress && body.len() >= settings.limits.compress_bytes_min;
        let coding = match accepts {
            "gzip" if is_packed => "gzip",
            "zstd" | "gzip;q=0.5, zstd" if is_packed => "zstd",
            _ => "",
        };
        let (rows, matching) = (found.rows.len().to_string(), found.matching.to_string());
        let mut headers = headers(&[
            ("vary", "accept-encoding"),
            ("cache-control", "no-cache"),
            ("num-record", &rows),
            ("num-matching", &matching),
        ]);
        let asked = format!("{path} {query:?} {coding}");
        let known = self.asked.get(&asked).filter(|_| random.one_in(2));
        let tag = random.pick(&["", "", "\"other\"", "*"]);
        let tag = known.map_or(tag, |tag| tag);
        if !tag.is_empty() {
            let weak = if tag != "*" && random.one_in(2) { "W/" } else { "" };
            request += &format!("if-none-match: \"x\", {weak}{tag}\r\n");
        }
        if known.is_some() || tag == "*" {
            return Reply { request, status: 304, headers, body: Vec::new(), coding: "", asked: Some(asked) };
        }
        let content_type = if is_object { "application/json" } else { "text/plain; charset=utf-8" };
        headers.insert("content-type".to_owned(), content_type.to_owned());
        match coding {
            "" => headers.insert("content-length".to_owned(), body.len().to_string()),
            coding => headers.insert("content-encoding".to_owned(), coding.to_owned()),
        };
        Reply { request, status: 200, headers, body, coding, asked: Some(asked) }
    }

    /// Next bytes of the connection, up to this end.
    fn read(&mut self, end: impl Fn(&[u8]) -> Option<usize>) -> Vec<u8> {
        loop {
            if let Some(count) = end(&self.unread) {
                return self.unread.drain(..count).collect();
            }
            self.server.wait();
            let more = self.server.settle();
            self.unread.extend(more);
        }
    }

    fn judge(&mut self, expected: &Reply, settings: &Settings) {
        let head = self.read(|bytes| bytes.windows(4).position(|four| four == b"\r\n\r\n").map(|place| place + 4));
        let head = String::from_utf8(head).unwrap();
        let told = || format!("to {:?} came {head:?}", expected.request);
        let mut lines = head.trim_end().split("\r\n");
        let status = lines.next().unwrap().split(' ').nth(1).unwrap();
        assert_eq!(status, expected.status.to_string(), "{}", told());
        let mut headers: Headers = Headers::new();
        for line in lines {
            let (name, value) = line.split_once(": ").unwrap();
            assert!(headers.insert(name.to_owned(), value.to_owned()).is_none(), "{}", told());
        }
        assert!(headers.remove("date").is_some(), "{}", told());
        let tag = headers.remove("etag");
        let length = headers.get("content-length").map_or(0, |length| length.parse().unwrap());
        if !expected.coding.is_empty() {
            headers.remove("content-length");
        }
        assert_eq!(headers, expected.headers, "{}", told());
        let is_bare = expected.request.starts_with("HEAD") || expected.status == 304;
        let body = self.read(|bytes| if is_bare { Some(0) } else { (bytes.len() >= length).then_some(length) });
        let body = match expected.coding {
            _ if is_bare => Vec::new(),
            "gzip" => {
                let mut plain = Vec::new();
                GzDecoder::new(&body[..]).read_to_end(&mut plain).unwrap();
                plain
            }
            "zstd" => zstd::decode_all(&body[..]).unwrap(),
            _ => body,
        };
        assert!(body == expected.body, "{}: {} not {}", told(), body.escape_ascii(), expected.body.escape_ascii());
        assert_eq!(tag.is_some(), expected.asked.is_some(), "{}", told());
        if let Some((asked, tag)) = expected.asked.as_ref().zip(tag) {
            self.judge_tag(asked, tag, (!is_bare).then_some(body), settings);
        }
    }

    /// Checks that a request has one tag, and a tag has one content.
    fn judge_tag(&mut self, asked: &str, tag: String, body: Option<Vec<u8>>, settings: &Settings) {
        let known = self.asked.entry(asked.to_owned()).or_insert_with(|| tag.clone());
        assert_eq!(*known, tag, "the tag of {asked}");
        let kind = asked.split(' ').next().unwrap().to_owned() + asked.rsplit(' ').next().unwrap();
        if let Some(body) = body {
            let known = self.tags.entry(tag).or_insert_with(|| (kind.clone(), body.clone()));
            assert!(*known == (kind, body), "what the tag of {asked} stands for, {:?}", settings.encode);
        }
    }
}
