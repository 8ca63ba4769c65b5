//! Connection options in flags.

use std::{path::PathBuf, time::Duration};

use crate::{Client, Error};

/// Default address.
const USUAL: &str = "127.0.0.1:10086";
/// Longest time that a flag accepts, in seconds.
const SECONDS_MAX: f64 = 86_400.0;
/// Shortest keepalive time, for commands with little time. gRPC servers treat three pings without data as a flood
/// (`too_many_pings`), so a short call sends at most one.
const KEEPALIVE_MIN: Duration = Duration::from_secs(2);
const KEEPALIVE_MAX: Duration = Duration::from_secs(10);
/// Valid form of a time.
pub const TIME: &str = "a time from 1ms to 24h, as 500ms, 5s or 2min";

/// Options of a connection and its output.
#[derive(Clone, Debug, Default)]
pub struct Connection {
    /// Prints answers as JSON, one per line.
    pub json: bool,
    /// Time limit of a command, including retries.
    pub timeout: Option<Duration>,
    /// Number of retries; the library's default if none.
    pub retries: Option<u32>,
    /// Token to send.
    pub token: Option<String>,
    /// PEM file of trusted certificates.
    pub ca: Option<PathBuf>,
    /// PEM file of the client's certificate.
    pub certificate: Option<PathBuf>,
    /// Its private key.
    pub key_file: Option<PathBuf>,
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
        if let Some(token) = &self.token {
            if token.bytes().any(|byte| !(b' '..=b'~').contains(&byte)) {
                return Err(Error::argument("--token has characters that no token has"));
            }
            builder = builder.token(token);
        }
        match (&self.certificate, &self.key_file) {
            (Some(certificate), Some(key)) => builder = builder.identity(certificate, key),
            (None, None) => {}
            _ => return Err(Error::argument("--certificate and --key-file belong together; give both or neither")),
        }
        if let Some(ca) = &self.ca {
            builder = builder.ca(ca);
        }
        builder.connect()
    }

    /// Flags that reach the same server.
    pub fn flags(&self) -> Vec<String> {
        let files = [("--ca", &self.ca), ("--certificate", &self.certificate), ("--key-file", &self.key_file)];
        let files =
            files.iter().filter_map(|(flag, file)| Some([(*flag).to_owned(), file.as_ref()?.display().to_string()]));
        let json = self.json.then(|| "--json".to_owned());
        json.into_iter().chain(files.flatten()).collect()
    }
}

/// Parses a time: seconds, or a number with a unit.
pub fn time(text: &str) -> Option<Duration> {
    let (number, unit) = text.split_at(text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len()));
    let unit = match unit {
        "" | "s" => 1.0,
        "ms" => 0.001,
        "min" => 60.0,
        _ => return None,
    };
    let is_number = number.starts_with(|first: char| first.is_ascii_digit())
        && number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let seconds = number.parse::<f64>().ok().filter(|_| is_number)? * unit;
    (0.001..=SECONDS_MAX).contains(&seconds).then(|| Duration::from_secs_f64(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_word_is_an_address_if_it_looks_like_one_or_a_command_follows() {
        let is_command = |word: &str| ["ping", "search"].contains(&word);
        let cases = [
            ("ping", "127.0.0.1:10086", 1),
            ("books ping", "books", 1),
            ("localhost", "localhost", 0),
            (":80 ping", ":80", 1),
            ("search a.b", "127.0.0.1:10086", 2),
            ("sell 1", "127.0.0.1:10086", 2),
            ("1.2.3.4 sell 1", "1.2.3.4", 2),
        ];
        for (line, address, left) in cases {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            let (found, rest) = split(&words, is_command);
            assert_eq!((found, rest.len()), (address, left), "{line}");
        }
    }

    #[test]
    fn a_time_is_seconds_or_has_a_unit() {
        for (text, ms) in
            [("5", 5_000), ("0.5", 500), ("500ms", 500), ("2min", 120_000), ("1ms", 1), ("1440min", 86_400_000)]
        {
            assert_eq!(time(text), Some(Duration::from_millis(ms)), "{text}");
        }
        for text in ["", "0", "0.5ms", "25h", "soon", "-1", "+1", "1e3", "NaN", "5 s", "1441min", ".", "1.2.3"] {
            assert_eq!(time(text), None, "{text}");
        }
    }
}
