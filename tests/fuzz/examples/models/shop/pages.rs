//! Paged answers: searches, topics, the catalogue and the log. A page's token is read from the page before.

use super::model::{PAGE_MAX, Reply, invalid, limit};
use super::{ADMIN, History, SHOP, signed};
use crate::calls::message::Message;
use crate::calls::unary::stream;
use crate::random::Random;
use crate::tally::Tally;

/// Size of a search token: a sum and an id. A topics token is a sum and a topic.
const SEARCH_TOKEN_BYTES: usize = 16;
const SUM_BYTES: usize = 8;
const ANY_TOKEN: &str = "empty, or next_page_token of the page before";

fn page_size_refused(size: i64) -> Option<Reply> {
    match size {
        ..0 => Some(Err(invalid("page_size", size, "0 for the default, or a positive number"))),
        _ if size > PAGE_MAX as i64 => Some(Err(limit("limits.page_size", PAGE_MAX, "ask for a smaller page"))),
        _ => None,
    }
}

fn size_of(size: i64) -> usize {
    if size == 0 { PAGE_MAX } else { size as usize }
}

impl History<'_> {
    fn topic(&self, random: &mut Random) -> String {
        let known: Vec<&str> = self.model.topics().into_keys().collect();
        match random.below(6) {
            0 => random.pick(&["", "A", "college", "college life ", "雪"]).to_owned(),
            1 => "é".repeat(random.pick(&[127, 128, 129])),
            _ => random.pick(&known).to_owned(),
        }
    }

    /// A token's field; its first bytes are unknown until they have been read.
    fn token(&self, message: Message, field: u8, question: &str, place: &str, bytes: usize) -> Message {
        match self.model.tokens.get(&(question.to_owned(), place.to_owned())) {
            Some(token) => message.bytes(field, token.as_bytes()),
            None => {
                let known = if bytes == SUM_BYTES { place.as_bytes() } else { &[] };
                let head = [field << 3 | 2, (bytes + known.len()) as u8];
                message.unknown(&head, bytes).raw(known)
            }
        }
    }

    /// Reads and returns a token at the end of the answer.
    fn learn_token(&mut self, id: u32, question: &str, place: &str, bytes: usize) -> String {
        let body = &self.link.streams[&id].call.answer.body;
        let length = if bytes == SUM_BYTES { bytes + place.len() } else { bytes };
        let token = String::from_utf8(body[body.len() - length..].to_vec()).unwrap();
        let sum = token.bytes().take(bytes).all(|byte| byte.is_ascii_hexdigit());
        assert!(sum, "a token: {token}");
        self.model.tokens.insert((question.to_owned(), place.to_owned()), token.clone());
        token
    }

    pub(super) fn search(&mut self, random: &mut Random, tally: &mut Tally) {
        let topic = self.topic(random);
        let size = random.pick(&[0, 0, 1, 2, 3, 5, 6, -1]);
        let path = format!("{SHOP}/Search");
        let ids = self.model.of_topic(&topic);
        let (mut after, mut token) = (0, String::new());
        loop {
            let request = Message::new().bytes(1, topic.as_bytes()).number(2, signed(size)).bytes(3, token.as_bytes());
            if topic.len() > 256 {
                let reply = Err(limit("limits.topic_bytes", 256, "name a shorter topic"));
                self.call(&path, &request, &reply, random);
                return self.flush(random, tally);
            }
            if let Some(refused) = page_size_refused(size) {
                self.call(&path, &request, &refused, random);
                return self.flush(random, tally);
            }
            let left: Vec<i64> = ids.iter().copied().filter(|id| *id > after).collect();
            let is_whole = size == 0 && token.is_empty();
            let page = &left[..if is_whole { left.len() } else { size_of(size).min(left.len()) }];
            let last = page.last().filter(|_| page.len() < left.len()).copied();
            let reply = self.list(&topic, page, last);
            let id = self.call(&path, &request, &Ok(reply), random);
            self.flush(random, tally);
            let Some(last) = last else { break };
            token = self.learn_token(id, &topic, &last.to_string(), SEARCH_TOKEN_BYTES);
            after = last;
        }
        if random.one_in(2) {
            self.wrong_token(&topic, random, tally);
        } else {
            self.search_stream(&topic, random, tally);
        }
    }

    /// A `BookListReply`; `last` is the last book of the page if others follow.
    fn list(&self, topic: &str, page: &[i64], last: Option<i64>) -> Message {
        let told = if page.is_empty() { format!("no book has the topic '{topic}'") } else { String::new() };
        let reply = Message::new().number(1, 1).bytes(2, told.as_bytes());
        let reply = page.iter().fold(reply, |reply, id| reply.message(3, &self.model.book(*id)));
        match last {
            Some(last) => self.token(reply, 4, topic, &last.to_string(), SEARCH_TOKEN_BYTES),
            None => reply,
        }
    }

    /// An invalid token, or another topic's.
    fn wrong_token(&mut self, topic: &str, random: &mut Random, tally: &mut Tally) {
        let others = self.model.tokens.iter().filter(|((question, _), _)| !question.is_empty() && question != topic);
        let other = others.min().map(|(_, token)| token.clone());
        let token = random.pick(&["7", "next", "0000000000000000", "00000000FFFFFFFF"]).to_owned();
        let token = other.filter(|_| random.one_in(2)).unwrap_or(token);
        let request = Message::new().bytes(1, topic.as_bytes()).bytes(3, token.as_bytes());
        let reply = Err(invalid("page_token", token, &format!("{ANY_TOKEN}, with the same topic")));
        self.call(&format!("{SHOP}/Search"), &request, &reply, random);
        self.flush(random, tally);
    }

    fn search_stream(&mut self, topic: &str, random: &mut Random, tally: &mut Tally) {
        let (size, ids) = (random.pick(&[0, 1, 2, 5]), self.model.of_topic(topic));
        let mut pages: Vec<&[i64]> = ids.chunks(size_of(size)).collect();
        if pages.is_empty() {
            pages.push(&[]);
        }
        let all = ids.last();
        let last = |page: &[i64]| page.last().filter(|last| Some(*last) != all).copied();
        let replies: Vec<Message> = pages.iter().map(|page| self.list(topic, page, last(page))).collect();
        let request = Message::new().bytes(1, topic.as_bytes()).number(2, size as u64);
        let call = stream(random, &format!("{SHOP}/SearchStream"), &request, &replies, None);
        self.begin_call(call, random);
        self.flush(random, tally);
    }

    pub(super) fn topics(&mut self, random: &mut Random, tally: &mut Tally) {
        let path = format!("{SHOP}/ListTopics");
        let size = random.pick(&[0, 1, 2, 4, 5, 6, -1]);
        let topics: Vec<(&str, u64)> = self.model.topics().into_iter().collect();
        let (mut begin, mut token) = (0, String::new());
        loop {
            let request = Message::new().number(1, signed(size)).bytes(2, token.as_bytes());
            if let Some(refused) = page_size_refused(size) {
                self.call(&path, &request, &refused, random);
                break;
            }
            let end = topics.len().min(begin + size_of(size));
            let shown = topics[begin..end].iter().fold(Message::new(), |reply, (name, books)| {
                reply.message(1, &Message::new().bytes(1, name.as_bytes()).number(2, *books))
            });
            let is_last = end == topics.len();
            let (last, _) = topics[end - 1];
            let reply = if is_last { shown } else { self.token(shown, 2, "", last, SUM_BYTES) };
            let id = self.call(&path, &request, &Ok(reply), random);
            self.flush(random, tally);
            if is_last {
                break;
            }
            token = self.learn_token(id, "", last, SUM_BYTES);
            begin = end;
        }
        // The topic itself is nearest to a text.
        let (name, books) = random.pick(&topics);
        let request = Message::new().number(1, 1);
        let reply = Message::new().message(1, &Message::new().bytes(1, name.as_bytes()).number(2, books));
        self.call(&path, &request.clone().bytes(3, name.as_bytes()), &Ok(reply), random);
        let reply = Err(invalid("page_token", "x", ANY_TOKEN));
        self.call(&path, &request.clone().bytes(2, b"x"), &reply, random);
        let reply = Err(invalid("page_token", "x", "empty with near, which has one page"));
        self.call(&path, &request.bytes(2, b"x").bytes(3, b"a"), &reply, random);
        self.flush(random, tally);
    }

    /// Pages of the log, or of the catalogue.
    pub(super) fn log(&mut self, random: &mut Random, tally: &mut Tally) {
        let is_log = random.one_in(2);
        let path = format!("{ADMIN}/{}", if is_log { "Log" } else { "List" });
        let size = random.pick(&[0, 1, 3, 4, 6, -1]);
        let mut token = String::new();
        for _ in 0..=random.below(5) {
            let request = Message::new().number(1, signed(size)).bytes(2, token.as_bytes());
            if let Some(refused) = page_size_refused(size) {
                self.call(&path, &request, &refused, random);
                break;
            }
            let from: Option<usize> = token.parse().ok();
            let page: Vec<usize> = if is_log {
                (1..from.unwrap_or(self.model.last_number() + 1)).rev().take(size_of(size)).collect()
            } else {
                let ids = self.model.ids().into_iter().map(|id| id as usize);
                ids.filter(|id| *id > from.unwrap_or(0)).take(size_of(size)).collect()
            };
            let item = |number: &usize| {
                if is_log { self.model.entry(*number) } else { self.model.book(*number as i64) }
            };
            let reply = page.iter().fold(Message::new(), |reply, number| reply.message(1, &item(number)));
            let last = page.last().filter(|_| page.len() == size_of(size));
            token = last.map(ToString::to_string).unwrap_or_default();
            let id = self.call(&path, &request, &Ok(reply.bytes(2, token.as_bytes())), random);
            if is_log {
                self.expect_times(id, &page);
            }
            self.flush(random, tally);
            if token.is_empty() {
                break;
            }
        }
        let wrong = random.pick(&["x", "0", "-1", "99999999999999999999"]);
        let request = Message::new().bytes(2, wrong.as_bytes());
        self.call(&path, &request, &Err(invalid("page_token", wrong, ANY_TOKEN)), random);
        self.flush(random, tally);
    }
}
