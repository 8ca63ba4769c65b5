//! What a shopper can type.

use anyhow::{Context, bail};
use bookstore::domain::BookId;

use crate::shell;

/// The commands, as `help` shows them.
pub(super) const COMMANDS: [shell::Help; 7] = [
    ("ping", "", "tests the connection"),
    ("topics", "[text]", "the topics, or those near a text"),
    ("search", "<topic>", "books of a topic"),
    ("lookup", "<id>", "one book"),
    ("buy", "<id> [quantity]", "buys one copy, or as many as you say"),
    ("help", "", "this list; ? as well"),
    ("exit", "", "leaves; quit as well"),
];

/// A line that was understood.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Command {
    Call(Call),
    Help,
    Exit,
}

/// A command that the server answers.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Call {
    Ping,
    /// Near a text, or all if it is empty.
    Topics(String),
    Search(String),
    Lookup(BookId),
    Buy(BookId, i32),
}

/// Whether a word is the name of a command.
pub(super) fn is_command(word: &str) -> bool {
    ["?", "quit"].contains(&word) || COMMANDS.iter().any(|command| command.0 == word)
}

impl Command {
    pub(super) fn parse(words: &[&str]) -> anyhow::Result<Self> {
        let call = match *words {
            ["ping"] => Call::Ping,
            ["topics", ..] => Call::Topics(words[1..].join(" ")),
            ["search", _, ..] => Call::Search(words[1..].join(" ")),
            ["lookup", id] => Call::Lookup(BookId::parse(id)?),
            ["buy", id] => Call::Buy(BookId::parse(id)?, 1),
            ["buy", id, quantity] => Call::Buy(BookId::parse(id)?, copies(quantity)?),
            ["help" | "?"] => return Ok(Self::Help),
            ["exit" | "quit"] => return Ok(Self::Exit),
            [name, ..] => match COMMANDS.iter().find(|command| command.0 == name) {
                Some((_, arguments, _)) => bail!("usage: {}", format!("{name} {arguments}").trim_end()),
                None => bail!("there is no command '{}'; help lists them", name.escape_debug()),
            },
            [] => bail!("name a command; help lists them"),
        };
        Ok(Self::Call(call))
    }
}

fn copies(text: &str) -> anyhow::Result<i32> {
    let wanted = || format!("quantity is '{}'; it must be a whole number from 1", text.escape_debug());
    let quantity: i32 = text.parse().with_context(wanted)?;
    if quantity < 1 {
        bail!(wanted());
    }
    Ok(quantity)
}

#[cfg(test)]
mod tests {
    use super::{Call, Command};

    fn parse(line: &str) -> Result<Command, String> {
        Command::parse(&line.split(' ').collect::<Vec<_>>()).map_err(|error| error.to_string())
    }

    #[test]
    fn a_topic_may_have_spaces() {
        assert_eq!(parse("search college life"), Ok(Command::Call(Call::Search("college life".to_owned()))));
    }

    #[test]
    fn what_cannot_be_is_named() {
        let cases = [
            ("fetch 1", "there is no command 'fetch'; help lists them"),
            ("buy", "usage: buy <id> [quantity]"),
            ("lookup", "usage: lookup <id>"),
            ("search", "usage: search <topic>"),
            ("ping now", "usage: ping"),
            ("lookup abc", "id is abc; it must be a whole number from 1 to 2147483647"),
            ("buy -3", "id is -3; it must be a whole number from 1 to 2147483647"),
            ("buy 2147483648", "id is 2147483648; it must be a whole number from 1 to 2147483647"),
            ("buy 1 0", "quantity is '0'; it must be a whole number from 1"),
        ];
        for (line, reason) in cases {
            assert_eq!(parse(line), Err(reason.to_owned()), "{line}");
        }
    }
}
