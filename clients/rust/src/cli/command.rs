//! Flags and commands of shoppers.

use std::ffi::OsString;

use clap::{CommandFactory as _, Parser, Subcommand, value_parser};

use super::connection::Connection;
use crate::Key;

/// Buys books of a Quire server, and shows what it has
#[derive(Debug, Parser)]
#[command(version, args_override_self = true)]
pub(super) struct Args {
    #[command(flatten)]
    pub(super) connection: Connection,
    /// Key that makes a purchase or a reservation happen once however often it is sent; random if absent
    #[arg(long, value_name = "TEXT", value_parser = |text: &str| Key::new(text))]
    pub(super) key: Option<Key>,
    /// HOST:PORT, a host, :PORT, http://… or https://…, or several with commas between, 127.0.0.1:10086 if absent; then
    /// a command and its arguments
    #[arg(value_name = "[ADDRESS] COMMAND", allow_negative_numbers = true)]
    pub(super) words: Vec<String>,
}

/// End of `--help`, behind the list of commands.
pub(super) const AFTER_HELP: &str = "\
Without a command: a prompt on a terminal, else commands from standard input, one a line.

Exit codes: 0 done; 1 refused by the store; 2 usage; 3 unreachable, nothing was sent; 4 the outcome is unknown, and the \
message has the command that asks for it. Commands from standard input end with the highest of theirs.";

#[derive(Debug, Parser)]
#[command(no_binary_name = true, disable_help_flag = true, disable_help_subcommand = true)]
pub(super) struct Line {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Tests the connection
    Ping,
    /// The topics, or those near a [text]
    Topics {
        #[arg(allow_hyphen_values = true)]
        text: Vec<String>,
    },
    /// The books of a <topic>
    Search {
        #[arg(required = true, allow_hyphen_values = true)]
        topic: Vec<String>,
    },
    /// The book with an <id>
    Lookup {
        #[arg(value_parser = value_parser!(i32).range(1..), allow_negative_numbers = true)]
        id: i32,
    },
    /// Buys [quantity] copies of the book with an <id>; one if absent
    Buy {
        #[arg(value_parser = value_parser!(i32).range(1..), allow_negative_numbers = true)]
        id: i32,
        #[arg(default_value_t = 1, value_parser = value_parser!(i32).range(1..), allow_negative_numbers = true)]
        quantity: i32,
    },
    /// The receipt of the purchase with a <number> and a <key>; `quire receipt FILE --key KEY` checks it
    Receipt {
        #[arg(value_parser = value_parser!(i64).range(1..), allow_negative_numbers = true)]
        number: i64,
        #[arg(value_parser = |text: &str| Key::new(text), allow_hyphen_values = true)]
        key: Key,
    },
    /// Holds [quantity] copies of the book with an <id> for some [seconds]
    Reserve {
        #[arg(value_parser = value_parser!(i32).range(1..), allow_negative_numbers = true)]
        id: i32,
        #[arg(default_value_t = 1, value_parser = value_parser!(i32).range(1..), allow_negative_numbers = true)]
        quantity: i32,
        #[arg(value_parser = value_parser!(u64).range(1..), allow_negative_numbers = true)]
        seconds: Option<u64>,
    },
    /// Buys what the reservation with a <key> holds
    Confirm {
        #[arg(value_parser = |text: &str| Key::new(text), allow_hyphen_values = true)]
        key: Key,
    },
    /// Gives back what the reservation with a <key> holds
    Release {
        #[arg(value_parser = |text: &str| Key::new(text), allow_hyphen_values = true)]
        key: Key,
    },
    /// This list
    #[command(visible_alias = "?")]
    Help,
    /// Leaves
    #[command(visible_alias = "quit")]
    Exit,
}

pub(super) fn parse(words: impl IntoIterator<Item = impl Into<OsString> + Clone>) -> Result<Command, String> {
    Line::try_parse_from(words).map(|line| line.command).map_err(|error| reason(&error, "help lists the commands"))
}

pub(super) fn commands() -> String {
    Line::command().help_template("{subcommands}").render_help().to_string()
}

/// First paragraph of an error, in one line.
pub(super) fn reason(error: &clap::Error, help: &str) -> String {
    let text = error.to_string();
    let first = text.split("\n\n").next().unwrap_or_default().trim_start_matches("error: ");
    format!("{}; {help}", first.split_whitespace().collect::<Vec<_>>().join(" "))
}
