//! The calls behind `quire kv`, and how their answers are printed: for people on a terminal, as they are elsewhere.

use std::{
    io::{self, IsTerminal as _, Write as _},
    time::Duration,
};

use ::kv::grpc::wire::{
    CreateRequest, DeleteRequest, Entry, PutRequest, RetrieveRequest, RetrieveResponse, ScanRequest, UpdateRequest,
    WatchEvent, WatchEventKind, WatchRequest, key_range_service_client::KeyRangeServiceClient,
    key_value_service_client::KeyValueServiceClient,
};
use bytes::Bytes;
use quire_rpc::{Code, Request, client::Channel};
use serde_json::{Value, json};

use super::{command::Command, text::Form};
use crate::{
    cli::KvArgs,
    client::{
        attempts::{Failed, Kind, Retries, ask, judge},
        connection,
    },
    exit::Exit,
    pager::Pager,
    screen,
};

/// A command's longest time if none is said; longer than a journal may take to be read back.
const TIMEOUT: Duration = Duration::from_secs(5);
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);
/// A watch does not end by itself.
const WATCH_TIMEOUT: Duration = Duration::from_hours(876_000);
const CONNECT_TIMEOUT_MAX: Duration = Duration::from_secs(8);

pub(super) struct Calls<'a> {
    channel: Channel,
    pairs: KeyValueServiceClient,
    range: KeyRangeServiceClient,
    args: &'a KvArgs,
    address: &'a str,
    form: Form,
}

impl<'a> Calls<'a> {
    /// Connects with the first call. Needs a runtime around it.
    pub(super) fn new(args: &'a KvArgs, address: &'a str) -> anyhow::Result<Self> {
        let timeout = Retries::new(&args.connection, WRITE_TIMEOUT).connect_timeout(Kind::Write);
        let channel = connection::open(&args.connection, address, timeout.min(CONNECT_TIMEOUT_MAX))?;
        let (pairs, range) = (KeyValueServiceClient::new(channel.clone()), KeyRangeServiceClient::new(channel.clone()));
        Ok(Self { channel, pairs, range, args, address, form: Form::new(args) })
    }

    pub(super) async fn run(&self, command: Command, key: Vec<u8>) -> Exit {
        let key = Bytes::from(key);
        let time_to_live_ms = self.args.ttl.map_or(0, |ttl| u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX).max(1));
        let expected_version = self.args.expected_version;
        let write = Retries::new(&self.args.connection, WRITE_TIMEOUT);
        let value = Bytes::from;
        let done = match command {
            Command::Get => self.get(&key).await,
            Command::Scan => self.scan(&key).await,
            Command::Watch => self.watch(&key).await,
            Command::Put(given) => {
                let request = PutRequest { key: key.clone(), value: value(given), time_to_live_ms };
                let put = |time| self.range.put(within(time, request.clone()));
                ask(&self.channel, write, Kind::Write, put).await.map(|reply| self.stored(reply.version))
            }
            Command::Create(given) => {
                let request =
                    CreateRequest { key: key.clone(), value: value(given), time_to_live_ms, want_details: true };
                let create = |time| self.pairs.create(within(time, request.clone()));
                ask(&self.channel, write, Kind::Write, create).await.map(|reply| self.stored(reply.version))
            }
            Command::Update(given) => {
                let request = UpdateRequest {
                    key: key.clone(),
                    value: value(given),
                    expected_version,
                    time_to_live_ms,
                    want_details: true,
                };
                let update = |time| self.pairs.update(within(time, request.clone()));
                ask(&self.channel, write, Kind::Write, update).await.map(|reply| self.stored(reply.version))
            }
            Command::Delete => {
                let request = DeleteRequest { key: key.clone(), expected_version, want_details: true };
                let delete = |time| self.pairs.delete(within(time, request.clone()));
                ask(&self.channel, write, Kind::Write, delete).await.map(|reply| self.deleted(reply.deleted))
            }
        };
        match done {
            Ok(()) => Exit::Done,
            Err(failed) => self.failed(&failed, &key),
        }
    }

    async fn retrieve(&self, key: &Bytes) -> Result<RetrieveResponse, Failed> {
        let request = RetrieveRequest { key: key.clone(), want_details: true };
        let retries = Retries::new(&self.args.connection, TIMEOUT);
        ask(&self.channel, retries, Kind::Read, |time| self.pairs.retrieve(within(time, request.clone()))).await
    }

    async fn get(&self, key: &Bytes) -> Result<(), Failed> {
        let reply = self.retrieve(key).await?;
        if self.args.connection.json {
            let mut json = json!({ "success": true });
            self.form.put(&mut json, "key", key);
            self.form.put(&mut json, "value", &reply.value);
            let RetrieveResponse { version, time_to_live_ms, .. } = reply;
            (json["version"], json["time_to_live_ms"]) = (version.into(), time_to_live_ms.into());
            say(&screen::json(&json));
        } else if self.form == Form::Text && !io::stdout().is_terminal() {
            // A reader that has gone does not want the rest.
            let _ = io::stdout().write_all(&reply.value).and_then(|()| io::stdout().flush());
        } else {
            say(&self.form.show(&reply.value));
        }
        Ok(())
    }

    fn stored(&self, version: u64) {
        if self.args.connection.json {
            say(&screen::json(&json!({ "success": true, "version": version })));
        } else {
            say(&format!("stored as version {version}"));
        }
    }

    fn deleted(&self, deleted: bool) {
        if self.args.connection.json {
            say(&screen::json(&json!({ "success": true, "deleted": deleted })));
        } else {
            say(if deleted { "deleted" } else { "there was no such key" });
        }
    }

    async fn scan(&self, prefix: &Bytes) -> Result<(), Failed> {
        let mut left = self.args.limit.unwrap_or(u64::MAX);
        let mut start_after = None;
        let retries = Retries::new(&self.args.connection, TIMEOUT);
        let mut out = Pager::new();
        let done = loop {
            // The server's own page is bounded; what it sends beyond the limit is not shown.
            let request =
                ScanRequest { prefix: prefix.clone(), start_after, page_size: 0, keys_only: self.args.keys_only };
            let mut page =
                match ask(&self.channel, retries, Kind::Read, |time| self.range.scan(within(time, request.clone())))
                    .await
                {
                    Ok(page) => page,
                    Err(failed) => break Err(failed),
                };
            let shown = usize::try_from(left).unwrap_or(usize::MAX).min(page.entries.len());
            left -= shown as u64;
            for entry in page.entries[..shown].iter_mut().filter(|entry| entry.value_left_out) {
                // Gone meanwhile, it is shown without a value, as the page has it.
                entry.value = self.retrieve(&entry.key).await.map_or_else(|_| Bytes::new(), |found| found.value);
            }
            let written = page.entries[..shown].iter().try_for_each(|entry| writeln!(out, "{}", self.entry(entry)));
            start_after = page.next_start_after;
            if written.is_err() || left == 0 || start_after.is_none() {
                break Ok(());
            }
        };
        out.finish();
        done
    }

    fn entry(&self, entry: &Entry) -> String {
        if self.args.connection.json {
            let mut json = json!({ "version": entry.version, "time_to_live_ms": entry.time_to_live_ms });
            self.form.put(&mut json, "key", &entry.key);
            if !self.args.keys_only {
                self.form.put(&mut json, "value", &entry.value);
            }
            return screen::json(&json);
        }
        let key = self.form.show(&entry.key);
        if self.args.keys_only { key } else { format!("{key}\t{}", self.form.show(&entry.value)) }
    }

    async fn watch(&self, prefix: &Bytes) -> Result<(), Failed> {
        let request = WatchRequest { prefix: prefix.clone() };
        let retries = Retries::new(&self.args.connection, WATCH_TIMEOUT);
        let timeout = self.args.connection.timeout;
        let watch = |_| {
            let request = timeout.map_or_else(|| Request::new(request.clone()), |time| within(time, request.clone()));
            self.range.watch(request)
        };
        let mut events = ask(&self.channel, retries, Kind::Read, watch).await?;
        loop {
            match events.message().await {
                // A reader that has gone ends the watch.
                Ok(Some(event)) if say(&self.event(&event)) => {}
                Ok(_) => return Ok(()),
                // That is how long it was to last.
                Err(status) if status.code() == Code::DeadlineExceeded && timeout.is_some() => return Ok(()),
                Err(status) => return Err(Failed { exit: judge(Kind::Read, &status), status }),
            }
        }
    }

    fn event(&self, event: &WatchEvent) -> String {
        let kind = match event.kind() {
            WatchEventKind::Started => "started",
            WatchEventKind::Put => "put",
            WatchEventKind::Deleted => "deleted",
            WatchEventKind::Expired => "expired",
            WatchEventKind::Unspecified => "unspecified",
        };
        let is_put = event.kind() == WatchEventKind::Put;
        if self.args.connection.json {
            let mut json = json!({ "event": kind });
            if event.kind() != WatchEventKind::Started {
                json["version"] = event.version.into();
                self.form.put(&mut json, "key", &event.key);
            }
            if event.value_left_out {
                json["value_left_out"] = true.into();
            } else if is_put {
                self.form.put(&mut json, "value", &event.value);
            }
            return screen::json(&json);
        }
        match event.kind() {
            WatchEventKind::Started => kind.to_owned(),
            _ if is_put && !event.value_left_out => {
                format!("{kind}\t{}\t{}", self.form.show(&event.key), self.form.show(&event.value))
            }
            _ => format!("{kind}\t{}", self.form.show(&event.key)),
        }
    }

    fn failed(&self, failed: &Failed, key: &[u8]) -> Exit {
        let shown = self.form.show(key);
        let mut text = match (failed.exit, failed.status.code()) {
            (Exit::Refused, Code::NotFound) => format!("there is no key '{shown}'"),
            (Exit::Refused, Code::AlreadyExists) => {
                format!("the key '{shown}' exists; put or update replaces its value")
            }
            _ => failed.message(self.address),
        };
        let mut json = failed.json(self.address);
        if failed.exit == Exit::Unknown {
            let command = self.command_again(key);
            text = format!(
                "it is not known whether the write was done: {text}\nthis shows what the key has:\n    {command}"
            );
            json["command"] = Value::from(command);
        }
        json["message"] = text.as_str().into();
        if self.args.connection.json {
            self.form.put(&mut json, "key", key);
            say(&screen::json(&json));
        } else {
            eprintln!("{}", screen::lines(&text));
        }
        failed.exit
    }

    /// The command line that reads the key.
    fn command_again(&self, key: &[u8]) -> String {
        let flags = connection::flags(&self.args.connection);
        let key = match (self.form, std::str::from_utf8(key)) {
            (Form::Text, Ok(text)) => text.to_owned(),
            _ => self.form.show(key),
        };
        let before = ["quire", "kv"].into_iter().chain(self.form.flag()).chain(flags.iter().map(String::as_str));
        connection::quoted(before.chain([self.address, "get", "--", key.as_str()]))
    }
}

fn within<Q>(time: Duration, message: Q) -> Request<Q> {
    let mut request = Request::new(message);
    request.set_timeout(time);
    request
}

/// Whether someone reads it.
fn say(line: &str) -> bool {
    let mut out = io::stdout();
    writeln!(out, "{line}").and_then(|()| out.flush()).is_ok()
}
