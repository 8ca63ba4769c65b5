//! `quire receipt`: checks a receipt without the server that gave it.

use std::{
    fs::{self, File},
    io::{self, Read, Write as _},
    path::Path,
    process::ExitCode,
    time::{Duration, UNIX_EPOCH},
};

use anyhow::Context as _;
use bookstore::{
    Cents,
    domain::EntryKind,
    receipts::{Checked, NoteError, ReceiptError, Verifier, check},
};
use quire_terminal::screen;
use serde_json::{Value, json};

use crate::cli::ReceiptArgs;

const UNPROVEN: u8 = 1;
const USAGE: u8 = 2;

/// The most bytes of a receipt; those of a shop have some 2,000.
const BYTES_MAX: u64 = 1 << 20;

/// `quire receipt`.
pub(crate) fn command(args: &ReceiptArgs) -> ExitCode {
    let (receipt, key, witnesses) = match read(args) {
        Ok(read) => read,
        Err(error) => return failed(&format!("{error:#}"), USAGE),
    };
    let checked = match check(&receipt, &key, &witnesses) {
        Ok(checked) => checked,
        Err(error @ ReceiptError::Witness(_)) => return failed(&error.to_string(), UNPROVEN),
        Err(error) => return failed(&format!("this receipt proves nothing: {error}"), UNPROVEN),
    };
    let shown = if args.json { as_json(&checked).to_string() } else { in_words(&checked) };
    // A closed output is no error.
    let _ = writeln!(io::stdout(), "{shown}");
    ExitCode::SUCCESS
}

/// The receipt, the log's key and those of the witnesses.
fn read(args: &ReceiptArgs) -> anyhow::Result<(String, Verifier, Vec<Verifier>)> {
    let key = key("--key", &args.key, Verifier::parse)?;
    let witnesses = args.witness.iter().map(|given| self::key("--witness", given, Verifier::parse_witness));
    Ok((text(&args.file)?, key, witnesses.collect::<Result<_, _>>()?))
}

fn failed(text: &str, code: u8) -> ExitCode {
    eprintln!("quire: {}", screen::line(text));
    code.into()
}

fn text(path: &Path) -> anyhow::Result<String> {
    let mut text = String::new();
    let from: Box<dyn Read> = if path == Path::new("-") {
        Box::new(io::stdin().lock())
    } else {
        Box::new(File::open(path).with_context(|| format!("cannot read {}", path.display()))?)
    };
    let read = from.take(BYTES_MAX).read_to_string(&mut text);
    read.with_context(|| format!("{} is not the text of a receipt", path.display()))?;
    Ok(text)
}

/// The key itself, or that in a file.
fn key(flag: &str, given: &str, parse: fn(&str) -> Result<Verifier, NoteError>) -> anyhow::Result<Verifier> {
    let key = fs::read_to_string(given).unwrap_or_else(|_| given.to_owned());
    parse(&key).with_context(|| format!("{flag} is neither a file nor a public key: '{given}'"))
}

fn time(checked: &Checked) -> String {
    let since = Duration::from_millis(u64::try_from(checked.time_ms).unwrap_or_default());
    UNIX_EPOCH.checked_add(since).map_or_else(String::new, |time| humantime::format_rfc3339_millis(time).to_string())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}

fn in_words(checked: &Checked) -> String {
    let Checked { origin, log_size, number, book, .. } = checked;
    let kind = checked.kind.map_or("a kind of a later release", EntryKind::name);
    let mut lines = vec![
        format!("the log {} has this entry, signed when it had {log_size}", screen::line(origin)),
        format!("number    {number}"),
        format!("time      {}", time(checked)),
        format!("kind      {kind}"),
        format!("book      {book}"),
    ];
    let is_price = checked.kind == Some(EntryKind::Price);
    let amount = |amount: i64| match Cents::new(amount).filter(|_| is_price) {
        Some(cents) => cents.to_string(),
        None => amount.to_string(),
    };
    let what = if is_price { "price    " } else { "stock    " };
    lines.extend(checked.quantity.map(|copies| format!("copies    {copies}")));
    match (checked.before, checked.after) {
        (Some(before), Some(after)) => lines.push(format!("{what} {} to {}", amount(before), amount(after))),
        (before, after) => lines.extend(before.or(after).map(|one| format!("{what} {}", amount(one)))),
    }
    lines.extend(checked.key_sha256.map(|key| format!("key       SHA-256 {}", hex(&key))));
    lines.extend(checked.actor.as_ref().map(|actor| format!("actor     {}", screen::line(actor))));
    lines.join("\n")
}

fn as_json(checked: &Checked) -> Value {
    json!({
        "origin": checked.origin,
        "log_size": checked.log_size,
        "number": checked.number,
        "time": time(checked),
        "kind": checked.kind.map(EntryKind::name),
        "book": checked.book,
        "quantity": checked.quantity,
        "before": checked.before,
        "after": checked.after,
        "key_sha256": checked.key_sha256.map(|key| hex(&key)),
        "actor": checked.actor,
    })
}
