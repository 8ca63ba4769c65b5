//! Commands of the key-value service.

use std::{
    fs::File,
    io::{self, Read},
    path::Path,
};

use anyhow::{Context as _, bail};

use super::text::Form;
use crate::cli::KvArgs;

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
pub(super) enum Command {
    Get,
    Put(Vec<u8>),
    Create(Vec<u8>),
    Update(Vec<u8>),
    Delete,
    Scan,
    Watch,
}

pub(super) fn is_command(word: &str) -> bool {
    COMMANDS.iter().any(|(name, _)| *name == word)
}

/// Parses the command and its key or prefix. A value missing from the words is read from the input.
pub(super) fn parse(words: &[&str], args: &KvArgs) -> anyhow::Result<(Command, Vec<u8>)> {
    let form = Form::new(args);
    let value = |given: Option<&&str>| match (given, &args.file) {
        (Some(_), Some(_)) => bail!("give the value as an argument or with --file, not both"),
        (Some(value), None) => form.read(value),
        (None, Some(path)) => read(path),
        (None, None) => read(Path::new("-")),
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
pub(super) fn check(command: &Command, args: &KvArgs) -> anyhow::Result<()> {
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

fn read(path: &Path) -> anyhow::Result<Vec<u8>> {
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
