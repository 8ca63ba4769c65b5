//! The operator's commands on the command line and at a prompt: their help and flags.

use std::{path::PathBuf, time::UNIX_EPOCH};

use clap::{Args, Parser, ValueEnum};
use quire_terminal::shell;

/// The commands, as `help` shows them.
pub(crate) const COMMANDS: [shell::Help; 20] = [
    ("list", "", "every book"),
    ("topics", "[text]", "every topic and how many books it has, or the topics near a text"),
    ("restock", "[amount] | <id> <amount>", "raises every book below amount to it, 20 if absent; or one book"),
    ("add", "<title> <topic> <stock> <price> [id]", "adds a book"),
    ("edit", "<id> title|topic|price <value> ...", "changes a book"),
    ("update", "<id> <price>", "sets a price"),
    ("delist", "<id>", "takes a book out of the shop; its log stays"),
    ("relist", "<id>", "brings it back"),
    ("import", "<file> [--yes] [--skip-bad]", "adds and changes books as in a CSV file; shows the changes first"),
    (
        "export",
        "[books|log|sales] [--out FILE]",
        "CSV, or JSON with --json; of the log and sales also --book, --from, --to",
    ),
    ("log", "[--limit NUMBER]", "recent transactions, newest last; also --book, --from, --to"),
    ("tail", "", "transactions from now on, as they come"),
    ("sales", "[--by day|book|both]", "copies and money; also --book, --from, --to"),
    ("top", "[--once]", "purchases, failures, levels and times, live; in the console of quire serve, once"),
    ("connections", "[--limit NUMBER]", "open connections, those that moved most bytes first"),
    ("cut", "<connection>", "ends a connection with its calls"),
    ("reload", "", "reads the settings and files again, as a SIGHUP does"),
    ("backup", "<file> [--force]", "writes the data folder's contents, as quire restore reads them"),
    ("help", "", "this list; ? as well"),
    ("exit", "", "leaves; from the console of quire serve, drains and stops the server; quit as well"),
];

/// The end of `quire admin --help`.
pub(super) fn help() -> String {
    format!(
        "Commands; without one there is a prompt on a terminal, else commands come from standard input, one a line:\n{}\n\n\
         Exit codes: 0 done; 1 refused by the server; 2 usage; 3 unreachable, nothing was sent; 4 the outcome of a change is \
         unknown: the log shows it. Commands from standard input end with the highest of theirs.",
        shell::help(&COMMANDS)
    )
}

/// Entries of the log, or sales, that a command is about.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Choice {
    /// Of this book alone
    #[arg(long, value_name = "ID", value_parser = clap::value_parser!(i32).range(1..))]
    pub book: Option<i32>,
    /// From this day or time on, in UTC, as 2026-01-31 or 2026-01-31T08:00:00Z
    #[arg(long, value_name = "TIME", value_parser = since)]
    pub from: Option<i64>,
    /// To the end of this day, or before this time
    #[arg(long, value_name = "TIME", value_parser = until)]
    pub to: Option<i64>,
    /// Sums of sales
    #[arg(long, value_name = "WHAT", value_enum)]
    pub by: Option<By>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum By {
    /// Of each day
    Day,
    /// Of each book
    Book,
    /// Of each book on each day
    Both,
}

/// An operator's command with its flags.
#[derive(Debug, Default, Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag")]
pub(crate) struct VerbArgs {
    #[command(flatten)]
    pub choice: Choice,
    /// Most entries of the log [default: 20], or connections [default: 100], to show
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..))]
    pub limit: Option<u32>,
    /// The file to write, instead of standard output
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Do it without asking
    #[arg(long)]
    pub yes: bool,
    /// Leave bad rows of an import out, instead of importing nothing
    #[arg(long)]
    pub skip_bad: bool,
    /// Show one sample of the figures and stop
    #[arg(long)]
    pub once: bool,
    /// Replace the file if it exists
    #[arg(long)]
    pub force: bool,
    /// ADDRESS (as for `quire client`; may be left out), then COMMAND and its arguments
    #[arg(value_name = "ADDRESS COMMAND", allow_negative_numbers = true)]
    pub words: Vec<String>,
}

/// An operator's command typed at a prompt.
#[derive(Debug, Parser)]
#[command(no_binary_name = true, disable_help_flag = true)]
pub(crate) struct VerbLine {
    #[command(flatten)]
    pub verb: VerbArgs,
}

/// Milliseconds of a day.
const DAY_MS: i64 = 86_400_000;

/// Parses the beginning of a time: a day's first moment.
fn since(text: &str) -> Result<i64, String> {
    moment(text).map(|(time_ms, _)| time_ms)
}

/// Parses the end of a time: a day counts to its end.
fn until(text: &str) -> Result<i64, String> {
    moment(text).map(|(time_ms, is_day)| if is_day { time_ms + DAY_MS } else { time_ms })
}

/// A moment in milliseconds since 1970, and whether a day was meant.
fn moment(text: &str) -> Result<(i64, bool), String> {
    let is_day = text.len() == "2026-01-31".len();
    let whole = if is_day { format!("{text}T00:00:00Z") } else { text.to_owned() };
    let since = humantime::parse_rfc3339_weak(&whole).ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    let ms = since.and_then(|since| i64::try_from(since.as_millis()).ok());
    ms.map(|ms| (ms, is_day))
        .ok_or_else(|| "it must be a day or a time in UTC, as 2026-01-31 or 2026-01-31T08:00:00Z".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_begins_at_midnight_and_counts_to_its_end() {
        assert_eq!(since("1970-01-02"), Ok(DAY_MS));
        assert_eq!(until("1970-01-02"), Ok(2 * DAY_MS));
        assert_eq!(until("1970-01-02T00:00:01.5Z"), Ok(DAY_MS + 1500));
        for wrong in ["", "1970-13-01", "yesterday", "1969-12-31", "01/02/1970"] {
            assert!(since(wrong).is_err(), "{wrong}");
        }
    }
}
