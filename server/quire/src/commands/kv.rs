//! `quire kv`: one call to the key-value service, for shells and scripts.

use std::{
    fmt::Write as _,
    fs::File,
    io::{self, IsTerminal as _, Read, Write as _},
    path::Path,
    process::ExitCode,
};

use anyhow::{Context as _, bail};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use quire_client::{
    Client, Code, Created, Deleted, Entry, Error, Event, Updated, Value as Found,
    cli::{Connection, Exit, fault_json, fault_text, quoted, split},
};
use quire_terminal::{pager::Pager, screen};
use serde_json::{Value, json};
use tokio::runtime::Builder;

use crate::cli::KvArgs;

/// `quire kv`.
pub(crate) fn command(args: &KvArgs) -> ExitCode {
    let exit = run(args).unwrap_or_else(|error| {
        eprintln!("quire: {}", screen::line(&format!("{error:#}")));
        Exit::Usage
    });
    exit.into()
}

/// An error means exit code 2.
fn run(args: &KvArgs) -> anyhow::Result<Exit> {
    let (address, words) = split(&args.words, is_command);
    let (command, key) = parse(&words, args)?;
    check(&command, args)?;
    let runtime = Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async { Ok(Calls::new(args, address)?.run(command, &key).await) })
}

/// The commands and their arguments.
const COMMANDS: [(&str, &str); 7] = [
    ("get", "KEY"),
    ("put", "KEY [VALUE]"),
    ("create", "KEY [VALUE]"),
    ("update", "KEY [VALUE]"),
    ("delete", "KEY"),
    ("scan", "[PREFIX]"),
    ("watch", "[PREFIX]"),
];

/// Size limit of a value from a file; a server's own limit is far lower.
const VALUE_BYTES_MAX: u64 = 1 << 30;

#[derive(Debug, PartialEq, Eq)]
enum Command {
    Get,
    Put(Vec<u8>),
    Create(Vec<u8>),
    Update(Vec<u8>),
    Delete,
    Scan,
    Watch,
}

fn is_command(word: &str) -> bool {
    COMMANDS.iter().any(|(name, _)| *name == word)
}

/// Parses the command and its key or prefix. A value missing from the words is read from the input.
fn parse(words: &[&str], args: &KvArgs) -> anyhow::Result<(Command, Vec<u8>)> {
    let form = Form::new(args);
    let value = |given: Option<&&str>| match (given, &args.file) {
        (Some(_), Some(_)) => bail!("give the value as an argument or with --file, not both"),
        (Some(value), None) => form.read(value),
        (None, Some(path)) => read_file(path),
        (None, None) => read_file(Path::new("-")),
    };
    let (command, key) = match *words {
        ["get", key] => (Command::Get, key),
        ["put", key, ref rest @ ..] if rest.len() < 2 => (Command::Put(value(rest.first())?), key),
        ["create", key, ref rest @ ..] if rest.len() < 2 => (Command::Create(value(rest.first())?), key),
        ["update", key, ref rest @ ..] if rest.len() < 2 => (Command::Update(value(rest.first())?), key),
        ["delete", key] => (Command::Delete, key),
        ["scan", ref rest @ ..] if rest.len() < 2 => (Command::Scan, rest.first().copied().unwrap_or_default()),
        ["watch", ref rest @ ..] if rest.len() < 2 => (Command::Watch, rest.first().copied().unwrap_or_default()),
        [name, ..] => match COMMANDS.iter().find(|command| command.0 == name) {
            Some((name, arguments)) => bail!("usage: {name} {arguments}"),
            None => bail!("there is no command '{}'; see quire kv --help", name.escape_debug()),
        },
        [] => bail!("name a command; see quire kv --help"),
    };
    Ok((command, form.read(key)?))
}

/// Rejects flags that the command does not use.
fn check(command: &Command, args: &KvArgs) -> anyhow::Result<()> {
    let is_put = matches!(command, Command::Put(_) | Command::Create(_) | Command::Update(_));
    let is_scan = *command == Command::Scan;
    let flags = [
        ("--file", args.file.is_some(), is_put, "put, create and update"),
        ("--ttl", args.ttl.is_some(), is_put, "put, create and update"),
        (
            "--expected-version",
            args.expected_version.is_some(),
            matches!(command, Command::Update(_) | Command::Delete),
            "update and delete",
        ),
        ("--limit", args.limit.is_some(), is_scan, "scan"),
        ("--keys-only", args.keys_only, is_scan, "scan"),
    ];
    match flags.iter().find(|(_, given, fits, _)| *given && !fits) {
        Some((flag, .., commands)) => bail!("{flag} is for {commands}; leave it out"),
        None => Ok(()),
    }
}

fn read_file(path: &Path) -> anyhow::Result<Vec<u8>> {
    let mut value = Vec::new();
    let read = |source: &mut dyn Read, value: &mut Vec<u8>| source.take(VALUE_BYTES_MAX + 1).read_to_end(value);
    let done = if path == Path::new("-") {
        read(&mut io::stdin(), &mut value)
    } else {
        File::open(path).and_then(|mut file| read(&mut file, &mut value))
    };
    done.with_context(|| format!("cannot read the value from {}", path.display()))?;
    if value.len() as u64 > VALUE_BYTES_MAX {
        bail!("the value in {} is too long; it must be at most {VALUE_BYTES_MAX} bytes", path.display());
    }
    Ok(value)
}

/// Notation of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Text,
    Hex,
    Base64,
}

impl Form {
    fn new(args: &KvArgs) -> Self {
        match (args.hex, args.base64) {
            (true, _) => Self::Hex,
            (_, true) => Self::Base64,
            _ => Self::Text,
        }
    }

    /// The flag that selects it.
    fn flag(self) -> Option<&'static str> {
        match self {
            Self::Text => None,
            Self::Hex => Some("--hex"),
            Self::Base64 => Some("--base64"),
        }
    }

    /// Parses an argument.
    fn read(self, text: &str) -> anyhow::Result<Vec<u8>> {
        let shown = screen::line(text);
        match self {
            Self::Text => Ok(text.into()),
            Self::Hex => from_hex(text)
                .with_context(|| format!("'{shown}' is no hexadecimal; it must be two of 0-9 and a-f for each byte")),
            Self::Base64 => STANDARD.decode(text).with_context(|| format!("'{shown}' is no base64, with its padding")),
        }
    }

    /// One line for any terminal. In text, bytes that are not UTF-8 and characters that act on a terminal are escaped.
    fn show(self, bytes: &[u8]) -> String {
        let mut out = String::with_capacity(bytes.len() * 2);
        match self {
            Self::Hex => hex(bytes, "", &mut out),
            Self::Base64 => STANDARD.encode_string(bytes, &mut out),
            Self::Text => {
                for chunk in bytes.utf8_chunks() {
                    out.push_str(&screen::line(chunk.valid()));
                    hex(chunk.invalid(), "\\x", &mut out);
                }
            }
        }
        out
    }

    /// Adds bytes to a JSON object: as text if possible, otherwise under a name with the encoding.
    fn put(self, json: &mut Value, name: &str, bytes: &[u8]) {
        match (self, std::str::from_utf8(bytes)) {
            (Self::Text, Ok(text)) => json[name] = text.into(),
            (Self::Hex, _) => json[format!("{name}_hex")] = self.show(bytes).into(),
            (Self::Text | Self::Base64, _) => json[format!("{name}_base64")] = Self::Base64.show(bytes).into(),
        }
    }
}

fn hex(bytes: &[u8], before: &str, out: &mut String) {
    for byte in bytes {
        let _ = write!(out, "{before}{byte:02x}");
    }
}

fn from_hex(text: &str) -> anyhow::Result<Vec<u8>> {
    if !text.len().is_multiple_of(2) || !text.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        bail!("it has {} characters", text.chars().count());
    }
    (0..text.len()).step_by(2).map(|at| Ok(u8::from_str_radix(&text[at..at + 2], 16)?)).collect()
}

struct Calls<'a> {
    client: Client,
    connection: &'a Connection,
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
    fn new(args: &'a KvArgs, address: &'a str) -> anyhow::Result<Self> {
        let connection = &args.connection;
        Ok(Self { client: connection.client(address)?, connection, args, address, form: Form::new(args) })
    }

    async fn run(&self, command: Command, key: &[u8]) -> Exit {
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
        let found = self.client.get(key).await?.ok_or(Failure::NoSuchKey)?;
        if self.connection.json {
            let mut json = json!({ "success": true });
            self.form.put(&mut json, "key", key);
            self.form.put(&mut json, "value", &found.value);
            (json["version"], json["time_to_live_ms"]) = (found.version.into(), time_left_ms(&found));
            print_line(&screen::json(&json));
        } else if self.form == Form::Text && !io::stdout().is_terminal() {
            // A closed output is no error.
            let _ = io::stdout().write_all(&found.value).and_then(|()| io::stdout().flush());
        } else {
            print_line(&self.form.show(&found.value));
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
            print_line(&screen::json(&json!({ "success": true, "deleted": deleted })));
        } else {
            print_line(if deleted { "deleted" } else { "there was no such key" });
        }
        Ok(())
    }

    fn stored(&self, version: u64) {
        if self.connection.json {
            print_line(&screen::json(&json!({ "success": true, "version": version })));
        } else {
            print_line(&format!("stored as version {version}"));
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
                Ok(Some(event)) if print_line(&self.event(&event)) => {}
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
                let is_unknown = matches!(error, Error::OutcomeUnknown(_));
                let mut text = fault_text(&error);
                if is_unknown {
                    text = format!("it is not known whether the write was done: {text}");
                }
                let mut json = fault_json(&error, &text);
                if is_unknown {
                    let command = self.command_again(key);
                    text = format!("{text}\nthis shows what the key has:\n    {command}");
                    json["command"] = command.into();
                }
                (Exit::from(&error), text, json)
            }
        };
        if self.connection.json {
            self.form.put(&mut json, "key", key);
            print_line(&screen::json(&json));
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
fn print_line(line: &str) -> bool {
    let mut out = io::stdout();
    writeln!(out, "{line}").and_then(|()| out.flush()).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_bytes_can_be_given_and_shown() {
        let bytes: Vec<u8> = (0..=255).collect();
        for form in [Form::Hex, Form::Base64] {
            assert_eq!(form.read(&form.show(&bytes)).expect("what was shown"), bytes);
        }
        assert_eq!(Form::Text.show(b"a\x1b[2J\xff\xc2\x9b\tb"), "a\\u{1b}[2J\\xff\\u{9b}\\tb");
        assert_eq!(Form::Hex.read("00Ff").expect("bytes"), [0, 255]);
        for (form, text) in [(Form::Hex, "0"), (Form::Hex, "0g"), (Form::Hex, "äö"), (Form::Base64, "a")] {
            assert!(form.read(text).is_err(), "{text}");
        }
    }
}
