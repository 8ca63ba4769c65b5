//! Flags of the command line.

use std::{env, ffi::OsString, path::PathBuf};

use super::connection::{Connection, TIME, time};
use crate::key::Key;

/// Maximum number of retries.
const RETRIES_MAX: u32 = 1_000_000;

/// A flag, and whether a value follows it.
const FLAGS: [(&str, bool); 10] = [
    ("--json", false),
    ("--timeout", true),
    ("--retries", true),
    ("--key", true),
    ("--token", true),
    ("--ca", true),
    ("--certificate", true),
    ("--key-file", true),
    ("--help", false),
    ("--version", false),
];

/// The parsed command line.
pub(super) enum Wanted {
    Help,
    Version,
    Run(Args),
}

#[derive(Default)]
pub(super) struct Args {
    pub(super) connection: Connection,
    pub(super) key: Option<Key>,
    pub(super) words: Vec<String>,
}

impl Args {
    pub(super) fn parse(words: impl IntoIterator<Item = OsString>) -> Result<Wanted, String> {
        let mut args = Self::default();
        args.connection.token = env::var("QUIRE_TOKEN").ok().filter(|token| !token.is_empty());
        let mut words = words.into_iter().map(|word| word.to_string_lossy().into_owned());
        while let Some(word) = words.next() {
            if word == "--" {
                args.words.extend(words);
                break;
            }
            let mut after = word.chars().skip(1);
            if !word.starts_with('-') || after.next().is_none_or(|second| second.is_ascii_digit()) {
                args.words.push(word);
                continue;
            }
            let (name, given) = word.split_once('=').map_or((word.as_str(), None), |(name, value)| (name, Some(value)));
            let Some((flag, wants_value)) = FLAGS.iter().find(|(flag, _)| *flag == name) else {
                return Err(format!("there is no flag '{name}'; --help lists them"));
            };
            let value = match given {
                Some(_) if !wants_value => return Err(format!("{flag} takes no value")),
                None if *wants_value => Some(words.next().ok_or_else(|| format!("{flag} wants a value"))?),
                given => given.map(str::to_owned),
            };
            match (*flag, value) {
                ("--help", _) => return Ok(Wanted::Help),
                ("--version", _) => return Ok(Wanted::Version),
                (flag, value) => args.set(flag, value.unwrap_or_default())?,
            }
        }
        Ok(Wanted::Run(args))
    }

    fn set(&mut self, flag: &str, value: String) -> Result<(), String> {
        let connection = &mut self.connection;
        match flag {
            "--json" => connection.json = true,
            "--timeout" => {
                let read = time(&value).ok_or_else(|| format!("--timeout is '{value}'; it must be {TIME}"))?;
                connection.timeout = Some(read);
            }
            "--retries" => {
                let retries = value.parse().ok().filter(|retries| *retries <= RETRIES_MAX);
                let wrong = || format!("--retries is '{value}'; it must be a whole number from 0 to {RETRIES_MAX}");
                connection.retries = Some(retries.ok_or_else(wrong)?);
            }
            "--key" => self.key = Some(Key::new(value).map_err(|error| error.to_string())?),
            "--token" => connection.token = Some(value),
            "--ca" => connection.ca = Some(PathBuf::from(value)),
            "--certificate" => connection.certificate = Some(PathBuf::from(value)),
            _ => connection.key_file = Some(PathBuf::from(value)),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Args, String> {
        match Args::parse(line.split_whitespace().map(OsString::from))? {
            Wanted::Run(args) => Ok(args),
            Wanted::Help | Wanted::Version => Err("no command".to_owned()),
        }
    }

    #[test]
    fn flags_stand_anywhere_and_what_follows_two_dashes_is_no_flag() {
        let args = parse("lookup --json -1 --timeout=2 --key --json - -- --dash").expect("arguments");
        assert_eq!(args.words, ["lookup", "-1", "-", "--dash"]);
        assert!(args.connection.json && args.key.is_some_and(|key| key.as_str() == "--json"));
    }

    #[test]
    fn a_flag_that_cannot_be_is_named_with_what_would_be_right() {
        for (line, reason) in [
            ("--jsn=1", "there is no flag '--jsn'; --help lists them"),
            ("-j", "there is no flag '-j'; --help lists them"),
            ("--json=yes", "--json takes no value"),
            ("--ca", "--ca wants a value"),
            ("--timeout soon", "--timeout is 'soon'; it must be a time from 1ms to 24h, as 500ms, 5s or 2min"),
            ("--retries=1000001", "--retries is '1000001'; it must be a whole number from 0 to 1000000"),
            ("--key=", "the idempotency key has 0 bytes; it must have 1 to 64"),
        ] {
            assert_eq!(parse(line).err().as_deref(), Some(reason), "{line}");
        }
    }
}
