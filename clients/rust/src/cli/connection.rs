//! Shared by the commands of all programs for a server: flags, addresses, exit codes, faults as text, and shell
//! quoting.

use std::{
    future::pending,
    io::{self, Write as _},
    path::PathBuf,
    process::ExitCode,
    thread,
    time::Duration,
};

use quire_rpc::{
    Code,
    client::{NO_TLS, ONLY_TLS, UNTRUSTED},
};
use quire_terminal::screen;
use serde_json::{Value, json};
use tokio::runtime::{Builder, Handle};

use crate::{Client, Error};

/// Default address.
const USUAL: &str = "127.0.0.1:10086";
/// Shortest keepalive time, for commands with little time. gRPC servers treat three pings without data as a flood
/// (`too_many_pings`), so a short call sends at most one.
const KEEPALIVE_MIN: Duration = Duration::from_secs(2);
const KEEPALIVE_MAX: Duration = Duration::from_secs(10);

/// Options of a connection and its output.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Connection {
    /// Print answers as JSON, one a line
    #[arg(long)]
    pub json: bool,
    /// Longest time for a command, its retries included, as 500ms, 5s or 2min; if absent 5s, for a purchase 30s, for a
    /// watch none
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub timeout: Option<Duration>,
    /// Retries of a command when the server cannot be reached or is overloaded; 3 if absent
    #[arg(long, value_name = "TIMES", value_parser = clap::value_parser!(u32).range(..=1_000_000))]
    pub retries: Option<u32>,
    /// Token for a server that requires one; the variable hides it from other users of the machine
    #[arg(long, value_name = "TOKEN", env = "QUIRE_TOKEN", hide_env_values = true)]
    pub token: Option<String>,
    /// Certificates in PEM to trust, instead of the system's or those in the variable `SSL_CERT_FILE`
    #[arg(long, value_name = "FILE")]
    pub ca: Option<PathBuf>,
    /// Client certificate in PEM, for a server that requires one
    #[arg(long, value_name = "FILE", requires = "key_file")]
    pub certificate: Option<PathBuf>,
    /// Private key of `--certificate`
    #[arg(long, value_name = "FILE", requires = "certificate")]
    pub key_file: Option<PathBuf>,
}

impl Connection {
    /// A client that connects on first use. Needs a surrounding runtime.
    pub fn client(&self, address: &str) -> Result<Client, Error> {
        let mut builder = Client::builder(address);
        if let Some(retries) = self.retries {
            builder = builder.retries(retries);
        }
        if let Some(timeout) = self.timeout {
            // A connection that died silently is dropped in time for another attempt.
            builder = builder.timeout(timeout).keepalive((timeout / 5).clamp(KEEPALIVE_MIN, KEEPALIVE_MAX));
        }
        if let Some(token) = self.token.as_ref().filter(|token| !token.is_empty()) {
            builder = builder.token(token);
        }
        if let (Some(certificate), Some(key)) = (&self.certificate, &self.key_file) {
            builder = builder.identity(certificate, key);
        }
        if let Some(ca) = &self.ca {
            builder = builder.ca(ca);
        }
        builder.connect()
    }

    /// Flags that reach the same server.
    pub fn flags(&self) -> Vec<String> {
        let files = [("--ca", &self.ca), ("--certificate", &self.certificate), ("--key-file", &self.key_file)];
        let files = files.map(|(flag, file)| Some([flag.to_owned(), file.as_ref()?.display().to_string()]));
        let json = self.json.then(|| "--json".to_owned());
        json.into_iter().chain(files.into_iter().flatten().flatten()).collect()
    }
}

fn time(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    let time = seconds.or_else(|| humantime::parse_duration(text).ok());
    let fits = time.filter(|time| (Duration::from_millis(1)..=Duration::from_hours(24)).contains(time));
    fits.ok_or_else(|| "it must be a time from 1ms to 24h, as 500ms, 5s or 2min".to_owned())
}

/// Splits off the address, if the first word is one, from the words of the command. No command looks like an address; a
/// word that could be a host is one if a command follows.
pub fn split(words: &[String], is_command: impl Fn(&str) -> bool) -> (&str, Vec<&str>) {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let is_address = match *words.as_slice() {
        [first, ..] if is_command(first) => false,
        [first, ..] if first == "localhost" || first.contains([':', '.', '[']) => true,
        [_, second, ..] => is_command(second),
        [] | [_] => false,
    };
    if is_address { (words[0], words[1..].to_vec()) } else { (USUAL, words) }
}

/// A runtime on its own thread, so that connections are read while a prompt waits for its user.
pub fn connections() -> io::Result<Handle> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let handle = runtime.handle().clone();
    thread::Builder::new().name("connections".to_owned()).spawn(move || runtime.block_on(pending::<()>()))?;
    Ok(handle)
}

/// Exit code of a command, ordered from best to worst: a script exits with its worst result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Exit {
    /// Success.
    Done = 0,
    /// The server refused.
    Refused = 1,
    /// Invalid command line or command.
    Usage = 2,
    /// Nothing was sent, or nothing would have been changed.
    Unreachable = 3,
    /// The outcome is unknown.
    Unknown = 4,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

impl From<&Error> for Exit {
    fn from(error: &Error) -> Self {
        match error {
            Error::Argument(_) => Self::Usage,
            Error::Refused(_) => Self::Refused,
            Error::Unreachable(_) => Self::Unreachable,
            Error::OutcomeUnknown(_) => Self::Unknown,
        }
    }
}

/// Text of a fault, with what to do about it.
pub fn fault_text(error: &Error) -> String {
    match error {
        Error::Refused(fault) | Error::OutcomeUnknown(fault) => fault.to_string(),
        Error::Unreachable(fault) if fault.message.ends_with(UNTRUSTED) => {
            format!("{fault}; --ca FILE names the certificates that are")
        }
        Error::Unreachable(fault)
            if !fault.sent && ![NO_TLS, ONLY_TLS].iter().any(|it| fault.message.ends_with(it)) =>
        {
            format!("{fault}; is a server running there?")
        }
        Error::Unreachable(_) | Error::Argument(_) => error.to_string(),
    }
}

/// A fault as JSON, with its text.
pub fn fault_json(error: &Error, text: &str) -> Value {
    let outcome = match error {
        Error::OutcomeUnknown(_) => "UNKNOWN",
        Error::Unreachable(_) => "UNREACHABLE",
        Error::Argument(_) | Error::Refused(_) => "REFUSED",
    };
    let status = error.fault().map_or(Code::InvalidArgument, |fault| fault.code).name();
    json!({ "message": text, "outcome": outcome, "status": status, "success": false })
}

/// Quotes a command line for a shell. Words with terminal control characters are escaped and cannot be typed again.
pub fn quoted<'a>(words: impl IntoIterator<Item = &'a str>) -> String {
    let is_bare = |byte: u8| byte.is_ascii_alphanumeric() || b"@%_-+=:,./".contains(&byte);
    let quote = |word: &str| match word {
        word if !screen::is_plain(word) => screen::line(word).into_owned(),
        word if !word.is_empty() && word.bytes().all(is_bare) => word.to_owned(),
        word => format!("'{}'", word.replace('\'', r#"'"'"'"#)),
    };
    words.into_iter().map(quote).collect::<Vec<_>>().join(" ")
}

/// Prints a text on standard error.
pub(super) fn complain(text: &str) {
    // If no one reads it, nothing else can be done.
    let _ = writeln!(io::stderr(), "{text}");
}
