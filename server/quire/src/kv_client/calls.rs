//! The calls of `quire kv`, and their output: readable on a terminal, raw elsewhere.

use std::io::{self, IsTerminal as _, Write as _};

use quire_client::{
    Client, Code, Created, Deleted, Entry, Error, Event, Updated, Value as Found,
    cli::{Connection, Exit, fault_json, fault_text, quoted},
};
use quire_terminal::{pager::Pager, screen};
use serde_json::{Value, json};

use super::{command::Command, text::Form};
use crate::cli::KvArgs;

pub(super) struct Calls<'a> {
    client: Client,
    connection: Connection,
    args: &'a KvArgs,
    address: &'a str,
    form: Form,
}

/// Reason why a command had no effect.
enum Failure {
    Fault(Error),
    Exists,
    NoSuchKey,
    /// The server's message.
    AnotherVersion(String),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Fault(error)
    }
}

type Done = Result<(), Failure>;

impl<'a> Calls<'a> {
    /// Connects with the first call. Must run within a runtime.
    pub(super) fn new(args: &'a KvArgs, address: &'a str) -> anyhow::Result<Self> {
        let connection = Connection::from(&args.connection);
        Ok(Self { client: connection.client(address)?, connection, args, address, form: Form::new(args) })
    }

    pub(super) async fn run(&self, command: Command, key: &[u8]) -> Exit {
        let done = match command {
            Command::Get => self.get(key).await,
            Command::Scan => self.scan(key).await,
            Command::Watch => self.watch(key).await,
            Command::Delete => self.delete(key).await,
            Command::Put(value) => self.put(key, value).await,
            Command::Create(value) => self.create(key, value).await,
            Command::Update(value) => self.update(key, value).await,
        };
        match done {
            Ok(()) => Exit::Done,
            Err(failure) => self.failed(failure, key),
        }
    }

    async fn get(&self, key: &[u8]) -> Done {
        let found = self.client.retrieve(key).await?.ok_or(Failure::NoSuchKey)?;
        if self.connection.json {
            let mut json = json!({ "success": true });
            self.form.put(&mut json, "key", key);
            self.form.put(&mut json, "value", &found.value);
            (json["version"], json["time_to_live_ms"]) = (found.version.into(), time_left_ms(&found));
            say(&screen::json(&json));
        } else if self.form == Form::Text && !io::stdout().is_terminal() {
            // A closed output is no error.
            let _ = io::stdout().write_all(&found.value).and_then(|()| io::stdout().flush());
        } else {
            say(&self.form.show(&found.value));
        }
        Ok(())
    }

    async fn put(&self, key: &[u8], value: Vec<u8>) -> Done {
        self.stored(self.client.put(key, value, self.args.ttl).await?);
        Ok(())
    }

    async fn create(&self, key: &[u8], value: Vec<u8>) -> Done {
        match self.client.create(key, value, self.args.ttl).await? {
            Created::Version(version) => self.stored(version),
            _ => return Err(Failure::Exists),
        }
        Ok(())
    }

    async fn update(&self, key: &[u8], value: Vec<u8>) -> Done {
        match self.client.update(key, value, self.args.expected_version, self.args.ttl).await? {
            Updated::Version(version) => self.stored(version),
            Updated::AnotherVersion(message) => return Err(Failure::AnotherVersion(message)),
            _ => return Err(Failure::NoSuchKey),
        }
        Ok(())
    }

    async fn delete(&self, key: &[u8]) -> Done {
        let deleted = match self.client.delete(key, self.args.expected_version).await? {
            Deleted::AnotherVersion(message) => return Err(Failure::AnotherVersion(message)),
            deleted => deleted == Deleted::Done,
        };
        if self.connection.json {
            say(&screen::json(&json!({ "success": true, "deleted": deleted })));
        } else {
            say(if deleted { "deleted" } else { "there was no such key" });
        }
        Ok(())
    }

    fn stored(&self, version: u64) {
        if self.connection.json {
            say(&screen::json(&json!({ "success": true, "version": version })));
        } else {
            say(&format!("stored as version {version}"));
        }
    }

    async fn scan(&self, prefix: &[u8]) -> Done {
        let mut entries = if self.args.keys_only { self.client.scan_keys(prefix) } else { self.client.scan(prefix) };
        let mut left = self.args.limit.unwrap_or(u64::MAX);
        let mut out = Pager::new();
        let done = loop {
            if left == 0 {
                break Ok(());
            }
            match entries.try_next().await {
                Ok(Some(entry)) if writeln!(out, "{}", self.entry(&entry)).is_ok() => left -= 1,
                Ok(_) => break Ok(()),
                Err(error) => break Err(error.into()),
            }
        };
        out.finish();
        done
    }

    fn entry(&self, entry: &Entry) -> String {
        if self.connection.json {
            let time_left = entry.time_left.map(|left| left.as_millis());
            let mut json = json!({ "version": entry.version, "time_to_live_ms": time_left });
            self.form.put(&mut json, "key", &entry.key);
            if !self.args.keys_only {
                self.form.put(&mut json, "value", &entry.value);
            }
            return screen::json(&json);
        }
        let key = self.form.show(&entry.key);
        if self.args.keys_only { key } else { format!("{key}\t{}", self.form.show(&entry.value)) }
    }

    async fn watch(&self, prefix: &[u8]) -> Done {
        let is_over = |error: &Error| {
            let code = error.fault().map(|fault| fault.code);
            self.connection.timeout.is_some() && code == Some(Code::DeadlineExceeded)
        };
        let mut events = self.client.watch(prefix).await?;
        loop {
            match events.try_next().await {
                // A closed output ends the watch.
                Ok(Some(event)) if say(&self.event(&event)) => {}
                Ok(_) => return Ok(()),
                // The requested duration is over.
                Err(error) if is_over(&error) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn event(&self, event: &Event) -> String {
        let (kind, key, value, version) = match event {
            Event::Started => ("started", None, None, None),
            Event::Put { key, value, version } => ("put", Some(key), value.as_ref(), Some(*version)),
            Event::Deleted { key, version } => ("deleted", Some(key), None, Some(*version)),
            Event::Expired { key, version } => ("expired", Some(key), None, Some(*version)),
            _ => ("unspecified", None, None, None),
        };
        if self.connection.json {
            let mut json = json!({ "event": kind });
            if let Some((key, version)) = key.zip(version) {
                json["version"] = version.into();
                self.form.put(&mut json, "key", key);
            }
            match value {
                Some(value) => self.form.put(&mut json, "value", value),
                None if kind == "put" => json["value_left_out"] = true.into(),
                None => {}
            }
            return screen::json(&json);
        }
        let shown = key.into_iter().chain(value).map(|bytes| self.form.show(bytes));
        std::iter::once(kind.to_owned()).chain(shown).collect::<Vec<_>>().join("\t")
    }

    fn failed(&self, failure: Failure, key: &[u8]) -> Exit {
        let shown = self.form.show(key);
        let refused = |status: &str, text: String| {
            let json = json!({ "success": false, "outcome": "REFUSED", "status": status, "message": text });
            (Exit::Refused, text, json)
        };
        let (exit, text, mut json) = match failure {
            Failure::Exists => {
                let text = format!("the key '{shown}' exists; put or update replaces its value");
                refused(Code::AlreadyExists.name(), text)
            }
            Failure::NoSuchKey => refused(Code::NotFound.name(), format!("there is no key '{shown}'")),
            Failure::AnotherVersion(message) => refused(Code::Aborted.name(), message),
            Failure::Fault(error) => {
                let mut text = fault_text(&error, self.address);
                let command = matches!(error, Error::OutcomeUnknown(_)).then(|| self.command_again(key));
                if let Some(command) = &command {
                    text = format!(
                        "it is not known whether the write was done: {text}\nthis shows what the key has:\n    {command}"
                    );
                }
                let mut json = fault_json(&error, &text);
                if let Some(command) = command {
                    json["command"] = Value::from(command);
                }
                (Exit::from(&error), text, json)
            }
        };
        if self.connection.json {
            self.form.put(&mut json, "key", key);
            say(&screen::json(&json));
        } else {
            eprintln!("{}", screen::lines(&text));
        }
        exit
    }

    /// Command line that reads the key.
    fn command_again(&self, key: &[u8]) -> String {
        let flags = self.connection.flags();
        let key = match (self.form, std::str::from_utf8(key)) {
            (Form::Text, Ok(text)) => text.to_owned(),
            _ => self.form.show(key),
        };
        let before = ["quire", "kv"].into_iter().chain(self.form.flag()).chain(flags.iter().map(String::as_str));
        quoted(before.chain([self.address, "get", "--", key.as_str()]))
    }
}

fn time_left_ms(found: &Found) -> Value {
    json!(found.time_left.map(|left| left.as_millis()))
}

/// Prints a line; false if the output is closed.
fn say(line: &str) -> bool {
    let mut out = io::stdout();
    writeln!(out, "{line}").and_then(|()| out.flush()).is_ok()
}
