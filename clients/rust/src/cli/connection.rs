//! Connection options in flags.

use std::{future::pending, io, path::PathBuf, thread, time::Duration};

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
