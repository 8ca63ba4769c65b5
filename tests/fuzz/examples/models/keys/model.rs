//! Model of a key-value store, by its contract.

use std::collections::BTreeMap;
use std::ops::Bound;

use kv::Limits;

use crate::calls::message::Message;
use crate::calls::unary::Refusal;
use crate::random::Random;

const NOT_FOUND: u8 = 5;
const ALREADY_EXISTS: u8 = 6;
const RESOURCE_EXHAUSTED: u8 = 8;
const ABORTED: u8 = 10;

const PUT: u64 = 2;
const DELETED: u64 = 3;
const EXPIRED: u64 = 4;

/// A call's method, request and reply.
pub type Step = (&'static str, Message, Result<Message, Refusal>);

struct Entry {
    value: Vec<u8>,
    version: u64,
    expires_at_ms: Option<u64>,
}

pub struct Model {
    /// Expired entries stay until a write or a sweep finds them.
    entries: BTreeMap<Vec<u8>, Entry>,
    limits: Limits,
    last_version: u64,
    pub now_ms: u64,
    /// Keys and events for their watchers; taken after each step.
    pub events: Vec<(Vec<u8>, Message)>,
}

/// One of few, so that calls collide; some are prefixes of others.
pub fn key(random: &mut Random) -> Vec<u8> {
    if random.one_in(15) {
        return b"a longer key".to_vec();
    }
    (0..random.below(3)).map(|_| random.pick(&[b'a', 0, 0xff])).collect()
}

/// Prefix for scans and watches.
fn prefix(random: &mut Random) -> Vec<u8> {
    if random.one_in(2) { Vec::new() } else { key(random) }
}

fn limit(name: &str, at: usize, advice: &str) -> Refusal {
    Refusal::new(RESOURCE_EXHAUSTED, format!("the server's limit kv.{name} is {at}: {advice}"))
}

impl Model {
    pub fn new(limits: Limits, now_ms: u64) -> Self {
        Self { entries: BTreeMap::new(), limits, last_version: 0, now_ms, events: Vec::new() }
    }

    fn is_over(&self, entry: &Entry) -> bool {
        entry.expires_at_ms.is_some_and(|at_ms| at_ms <= self.now_ms)
    }

    fn live(&self, key: &[u8]) -> Option<&Entry> {
        self.entries.get(key).filter(|entry| !self.is_over(entry))
    }

    fn left_ms(&self, entry: &Entry) -> Option<u64> {
        entry.expires_at_ms.map(|at_ms| at_ms - self.now_ms)
    }

    fn next_version(&mut self) -> u64 {
        self.last_version += 1;
        self.last_version
    }

    fn tell(&mut self, kind: u64, key: &[u8], value: &[u8], version: u64) {
        let event = Message::new().number(1, kind).bytes(2, key).bytes(3, value).number(4, version);
        self.events.push((key.into(), event));
    }

    fn write(&mut self, key: &[u8], value: &[u8], ttl_ms: u64) -> Result<u64, Refusal> {
        let present = self.entries.get(key);
        if present.is_none() && self.entries.len() == self.limits.entries {
            return Err(limit("entries", self.limits.entries, "delete entries first; nothing is evicted"));
        }
        if present.is_some_and(|entry| self.is_over(entry)) {
            let version = self.next_version();
            self.tell(EXPIRED, key, &[], version);
        }
        let version = self.next_version();
        self.tell(PUT, key, value, version);
        let expires_at_ms = (ttl_ms > 0).then_some(self.now_ms + ttl_ms);
        self.entries.insert(key.into(), Entry { value: value.into(), version, expires_at_ms });
        Ok(version)
    }

    fn fits(&self, key: &[u8], value: &[u8]) -> Result<(), Refusal> {
        if key.len() > self.limits.key_bytes {
            return Err(limit("key_bytes", self.limits.key_bytes, "use a shorter key"));
        }
        if value.len() > self.limits.value_bytes {
            return Err(limit("value_bytes", self.limits.value_bytes, "send a smaller value"));
        }
        Ok(())
    }

    /// A random call.
    pub fn step(&mut self, random: &mut Random) -> Step {
        let method = random.pick(&["Create", "Create", "Retrieve", "Update", "Update", "Put", "Put", "Delete", "Scan"]);
        match method {
            "Retrieve" => self.retrieve(random),
            "Delete" => self.delete(random),
            "Scan" => self.scan(random),
            _ => self.store(method, random),
        }
    }

    fn store(&mut self, method: &'static str, random: &mut Random) -> Step {
        let key = key(random);
        let bytes_max = if random.one_in(20) { 20_000 } else { 100 };
        let value = random.bytes(bytes_max);
        let ttl_ms = if random.one_in(3) { 1 + random.below(50) as u64 } else { 0 };
        let wants_details = random.one_in(2);
        let expected = if method == "Update" { self.expected(&key, random) } else { None };
        let request = Message::new().bytes(1, &key).bytes(2, &value);
        let request = match method {
            "Create" => request.number(3, ttl_ms).number(4, wants_details.into()),
            "Put" => request.number(3, ttl_ms),
            _ => request.optional(3, expected).number(4, ttl_ms).number(5, wants_details.into()),
        };
        let is_there = self.live(&key).is_some();
        let done = self.fits(&key, &value).and_then(|()| match method {
            "Create" if is_there => Err(Refusal::new(ALREADY_EXISTS, "")),
            "Update" if !is_there => Err(Refusal::new(NOT_FOUND, "")),
            _ => self.is_expected(&key, expected),
        });
        let done = done.and_then(|()| self.write(&key, &value, ttl_ms));
        let is_shown = wants_details || method == "Put";
        let reply = done.map(|version| Message::new().number(1, if is_shown { version } else { 0 }));
        let path = match method {
            "Create" => "KeyValueService/Create",
            "Put" => "KeyRangeService/Put",
            _ => "KeyValueService/Update",
        };
        (path, request, reply)
    }

    /// Expected version of a conditional call: mostly the right one.
    fn expected(&self, key: &[u8], random: &mut Random) -> Option<u64> {
        let is = self.live(key).map_or(0, |entry| entry.version);
        random.pick(&[None, None, Some(is), Some(is), Some(is + 1), Some(0), Some(u64::MAX)])
    }

    fn is_expected(&self, key: &[u8], expected: Option<u64>) -> Result<(), Refusal> {
        let conflict = self.live(key).filter(|entry| expected.is_some_and(|expected| expected != entry.version));
        conflict.map_or(Ok(()), |Entry { version, .. }| {
            let why = format!("the entry has version {version}, not the expected one: read it again and decide again");
            Err(Refusal::new(ABORTED, why))
        })
    }

    fn retrieve(&self, random: &mut Random) -> Step {
        let (key, wants_details) = (key(random), random.one_in(2));
        let request = Message::new().bytes(1, &key).number(2, wants_details.into());
        let reply = self.live(&key).ok_or(Refusal::new(NOT_FOUND, "")).map(|entry| {
            let reply = Message::new().bytes(1, &entry.value);
            let details = |reply: Message| reply.number(2, entry.version).optional(3, self.left_ms(entry));
            if wants_details { details(reply) } else { reply }
        });
        ("KeyValueService/Retrieve", request, reply)
    }

    fn delete(&mut self, random: &mut Random) -> Step {
        let (key, wants_details) = (key(random), random.one_in(2));
        let expected = self.expected(&key, random);
        let request = Message::new().bytes(1, &key).optional(2, expected).number(3, wants_details.into());
        let is_there = self.live(&key).is_some();
        let done = self.fits(&key, &[]).and_then(|()| self.is_expected(&key, expected));
        if done.is_ok() && is_there {
            self.entries.remove(&key);
            let version = self.next_version();
            self.tell(DELETED, &key, &[], version);
        }
        let reply = done.map(|()| Message::new().number(1, (is_there && wants_details).into()));
        ("KeyValueService/Delete", request, reply)
    }

    fn scan(&self, random: &mut Random) -> Step {
        let (prefix, keys_only) = (prefix(random), random.one_in(3));
        let start_after = random.one_in(2).then(|| key(random));
        let page_size = random.pick(&[0, 0, 1, 2, 3, 1000, 1001]);
        let request = Message::new().bytes(1, &prefix).optional_bytes(2, start_after.as_deref());
        let request = request.number(3, page_size as u64).number(4, keys_only.into());
        let at = self.limits.page_entries;
        if page_size > at {
            return ("KeyRangeService/Scan", request, Err(limit("page_entries", at, "ask for a smaller page")));
        }
        let wanted = if page_size == 0 { at } else { page_size };
        let from = start_after.map_or(Bound::Unbounded, Bound::Excluded);
        let found = self.entries.range((from, Bound::Unbounded)).filter(|(key, _)| key.starts_with(&prefix));
        let found: Vec<_> = found.take(wanted).collect();
        let (mut reply, mut bytes, mut last, mut is_full) = (Message::new(), 0, None, false);
        for (key, entry) in found.iter().filter(|(_, entry)| !self.is_over(entry)) {
            let value = if keys_only { &[][..] } else { &entry.value };
            bytes += key.len() + value.len();
            is_full = last.is_some() && bytes > self.limits.page_bytes;
            if is_full {
                break;
            }
            last = Some(key);
            let entry =
                Message::new().bytes(1, key).bytes(2, value).number(3, entry.version).optional(4, self.left_ms(entry));
            reply = reply.message(1, &entry);
        }
        let next = if is_full { last } else { found.last().filter(|_| found.len() == wanted).map(|(key, _)| key) };
        ("KeyRangeService/Scan", request, Ok(reply.optional_bytes(2, next.map(|key| &key[..]))))
    }

    /// Prefix of a watch, and why it is refused; `watches` already exist.
    pub fn watch(&self, watches: usize, random: &mut Random) -> (Vec<u8>, Option<Refusal>) {
        let (prefix, at) = (prefix(random), self.limits.watchers.get());
        let refusal = self.fits(&prefix, &[]).err().or_else(|| {
            // A client may have three times as many as stay free.
            let advice = "end another watch first; a client gets three quarters of what others leave";
            (watches >= 3 * (at - watches)).then(|| limit("watchers", at, advice))
        });
        (prefix, refusal)
    }

    /// Removes expired entries, oldest first; returns their number.
    pub fn sweep(&mut self) -> usize {
        let over = self.entries.iter().filter(|(_, entry)| self.is_over(entry));
        let mut over: Vec<_> = over.map(|(key, entry)| (entry.expires_at_ms, entry.version, key.clone())).collect();
        over.sort_unstable();
        for (_, _, key) in &over {
            self.entries.remove(key);
            let version = self.next_version();
            self.tell(EXPIRED, key, &[], version);
        }
        over.len()
    }

    /// Messages of a snapshot: the entries, if any, and the end.
    pub fn snapshot(&self) -> Vec<Message> {
        let mut chunk = Message::new();
        for (key, entry) in self.entries.iter().filter(|(_, entry)| !self.is_over(entry)) {
            let expires_at_ms = entry.expires_at_ms.unwrap_or(0);
            let entry = Message::new().bytes(1, key).bytes(2, &entry.value).number(3, entry.version);
            chunk = chunk.message(1, &entry.number(4, expires_at_ms));
        }
        let end = Message::new().optional(2, Some(self.last_version));
        [chunk, end].into_iter().filter(|message| !message.as_bytes().is_empty()).collect()
    }
}
