//! Commands of shoppers.

use quire_terminal::shell;

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

/// A parsed line.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Command {
    Call(Call),
    Help,
    Exit,
}

/// A command that needs the server.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Call {
    Ping,
    /// Topics near a text, or all if it is empty.
    Topics(String),
    Search(String),
    Lookup(i32),
    Buy(i32, i32),
}

/// True if a word is the name of a command.
pub(super) fn is_command(word: &str) -> bool {
    ["?", "quit"].contains(&word) || COMMANDS.iter().any(|command| command.0 == word)
}

impl Command {
    /// Parses words, at least one; the error describes the valid form.
    pub(super) fn parse(words: &[&str]) -> Result<Self, String> {
        let call = match *words {
            ["ping"] => Call::Ping,
            ["topics", ..] => Call::Topics(words[1..].join(" ")),
            ["search", _, ..] => Call::Search(words[1..].join(" ")),
            ["lookup", text] => Call::Lookup(id(text)?),
            ["buy", text] => Call::Buy(id(text)?, 1),
            ["buy", text, quantity] => Call::Buy(id(text)?, copies(quantity)?),
            ["help" | "?"] => return Ok(Self::Help),
            ["exit" | "quit"] => return Ok(Self::Exit),
            [name, ..] => {
                let name = match name {
                    "?" => "help",
                    "quit" => "exit",
                    name => name,
                };
                return Err(match COMMANDS.iter().find(|command| command.0 == name) {
                    Some((_, arguments, _)) => format!("usage: {}", shell::usage(name, arguments)),
                    None => format!("there is no command '{name}'; help lists them"),
                });
            }
            [] => return Err("there is no command ''; help lists them".to_owned()),
        };
        Ok(Self::Call(call))
    }
}

fn id(text: &str) -> Result<i32, String> {
    whole(text).ok_or_else(|| format!("id is '{text}'; it must be a whole number from 1 to {}", i32::MAX))
}

fn copies(text: &str) -> Result<i32, String> {
    whole(text).ok_or_else(|| format!("quantity is '{text}'; it must be a whole number from 1"))
}

fn whole(text: &str) -> Option<i32> {
    text.parse().ok().filter(|number| *number > 0)
}

#[cfg(test)]
mod tests {
    use super::{Call, Command};

    fn parse(line: &str) -> Result<Command, String> {
        Command::parse(&line.split(' ').collect::<Vec<_>>())
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
            ("quit now", "usage: exit"),
            ("lookup abc", "id is 'abc'; it must be a whole number from 1 to 2147483647"),
            ("buy -3", "id is '-3'; it must be a whole number from 1 to 2147483647"),
            ("buy 2147483648", "id is '2147483648'; it must be a whole number from 1 to 2147483647"),
            ("buy 1 0", "quantity is '0'; it must be a whole number from 1"),
        ];
        for (line, reason) in cases {
            assert_eq!(parse(line), Err(reason.to_owned()), "{line}");
        }
        assert_eq!(parse("buy +7 +2"), Ok(Command::Call(Call::Buy(7, 2))));
    }
}
