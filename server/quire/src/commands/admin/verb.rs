//! The operator's commands as words and flags.

use std::path::PathBuf;

use anyhow::{Context as _, bail, ensure};
use bookstore::{BookId, Cents as Price, fault::Fault, money};
use clap::ValueEnum as _;
use quire_client::{
    Cents,
    wire::bookstore::{AddBookRequest, EditBookRequest, LogRequest, SalesBy, SalesRequest},
};
use quire_terminal::shell;

use crate::cli::{By, COMMANDS, Choice, Exported, VerbArgs};

/// Flags, and the commands that use them.
const FLAGS: [(&str, &[&str]); 10] = [
    ("--book", &["export", "log", "sales"]),
    ("--from", &["export", "log", "sales"]),
    ("--to", &["export", "log", "sales"]),
    ("--by", &["export", "sales"]),
    ("--limit", &["log", "connections"]),
    ("--out", &["export"]),
    ("--yes", &["restock", "import"]),
    ("--skip-bad", &["import"]),
    ("--once", &["top"]),
    ("--force", &["backup"]),
];

/// Entries that `log` shows if no limit is given.
const RECENT: u32 = 20;

/// A parsed command.
#[derive(Debug)]
pub(super) enum Verb {
    List,
    /// Topics near a text, or all if it is empty.
    Topics(String),
    Log {
        filter: LogRequest,
        limit: u32,
    },
    Tail,
    Sales(SalesRequest),
    Export(Export),
    Top {
        once: bool,
    },
    /// At most this many.
    Connections(u32),
    Help,
    Exit,
    Change(Change),
}

/// A command that is logged as an operator's action.
#[derive(Debug)]
pub(super) enum Change {
    Restock { amount: Option<i32>, yes: bool },
    RestockBook { id: i32, amount: i32 },
    Add(AddBookRequest),
    Edit(EditBookRequest),
    Price(i32, Cents),
    Import { file: PathBuf, yes: bool, skip_bad: bool },
    Cut(u64),
    Reload,
    Backup { file: PathBuf, force: bool },
}

/// Contents of an exported file.
#[derive(Debug)]
pub(super) struct Export {
    pub what: Exported,
    pub choice: Choice,
    /// Standard output if there is none.
    pub out: Option<PathBuf>,
}

/// True if a word is the name of a command.
pub(super) fn is_command(word: &str) -> bool {
    ["?", "quit"].contains(&word) || COMMANDS.iter().any(|command| command.0 == word)
}

/// True if a command's first argument is a book's id.
pub(super) fn has_id(command: &str) -> bool {
    command == "restock" || COMMANDS.iter().any(|(name, words, _)| *name == command && words.starts_with("<id>"))
}

impl Verb {
    /// Parses words and flags; the error describes the valid form.
    pub(super) fn parse(words: &[&str], flags: &VerbArgs) -> anyhow::Result<Self> {
        check(words, flags)?;
        let VerbArgs { choice, limit, yes, skip_bad, force, .. } = flags;
        let change =
            match *words {
                ["list"] => return Ok(Self::List),
                ["topics", ..] => return Ok(Self::Topics(words[1..].join(" "))),
                ["log"] => return Ok(Self::Log { filter: entries(choice), limit: limit.unwrap_or(RECENT) }),
                ["tail"] => return Ok(Self::Tail),
                ["sales"] => return Ok(Self::Sales(sales(choice, By::Day))),
                ["export", ref what @ ..] if what.len() < 2 => {
                    return export(what.first().copied(), flags).map(Self::Export);
                }
                ["top"] => return Ok(Self::Top { once: flags.once }),
                ["connections"] => return Ok(Self::Connections(limit.unwrap_or_default())),
                ["help" | "?"] => return Ok(Self::Help),
                ["exit" | "quit"] => return Ok(Self::Exit),
                ["restock"] => Change::Restock { amount: None, yes: *yes },
                ["restock", amount] => Change::Restock { amount: Some(copies("amount", amount)?), yes: *yes },
                ["restock", book, amount] => Change::RestockBook { id: id(book)?, amount: copies("amount", amount)? },
                ["add", title, topic, stock, cents, ref book @ ..] if book.len() < 2 => Change::Add(AddBookRequest {
                    id: book.first().map(|book| id(book)).transpose()?,
                    title: title.to_owned(),
                    topic: topic.to_owned(),
                    stock: copies("stock", stock)?,
                    price_cents: price(cents)?.0,
                }),
                ["edit", book, ref fields @ ..] if !fields.is_empty() && fields.len().is_multiple_of(2) => {
                    Change::Edit(edit(id(book)?, fields)?)
                }
                ["update", book, cents] => Change::Price(id(book)?, price(cents)?),
                ["delist", book] => Change::Edit(listed(id(book)?, false)),
                ["relist", book] => Change::Edit(listed(id(book)?, true)),
                ["import", file] => Change::Import { file: file.into(), yes: *yes, skip_bad: *skip_bad },
                ["cut", connection] => Change::Cut(connection.parse().map_err(|_| {
                    Fault::invalid_word("connection", connection, "a number from the list of connections")
                })?),
                ["reload"] => Change::Reload,
                ["backup", file] => Change::Backup { file: file.into(), force: *force },
                ref wrong => return Err(misused(wrong)),
            };
        Ok(Self::Change(change))
    }
}

/// Error for words that are no command, or not in its form.
fn misused(words: &[&str]) -> anyhow::Error {
    let name = match words.first().copied().unwrap_or_default() {
        "?" => "help",
        "quit" => "exit",
        name => name,
    };
    match COMMANDS.iter().find(|command| command.0 == name) {
        Some((name, arguments, _)) => anyhow::anyhow!("usage: {}", shell::usage(name, arguments)),
        None => anyhow::anyhow!("there is no command '{}'; help lists them", name.escape_debug()),
    }
}

/// Refuses flags that the command does not use.
fn check(words: &[&str], flags: &VerbArgs) -> anyhow::Result<()> {
    let Choice { book, from, to, by } = &flags.choice;
    let given = [
        book.is_some(),
        from.is_some(),
        to.is_some(),
        by.is_some(),
        flags.limit.is_some(),
        flags.out.is_some(),
        flags.yes,
        flags.skip_bad,
        flags.once,
        flags.force,
    ];
    let command = words.first().copied().unwrap_or_default();
    let wrong = FLAGS.iter().zip(given).find(|((_, commands), given)| *given && !commands.contains(&command));
    match wrong {
        Some(((flag, commands), _)) => bail!("{flag} is for {}; leave it out", commands.join(", ")),
        None => Ok(()),
    }
}

fn export(what: Option<&str>, flags: &VerbArgs) -> anyhow::Result<Export> {
    let what = match what {
        None => Exported::Books,
        Some(word) => {
            let known = Exported::from_str(word, false).ok();
            known.with_context(|| {
                format!("'{}' cannot be exported; it must be books, log or sales", word.escape_debug())
            })?
        }
    };
    Export::new(what, &flags.choice, flags.out.clone())
}

impl Export {
    /// Refuses a choice that the export does not have.
    pub(super) fn new(what: Exported, choice: &Choice, out: Option<PathBuf>) -> anyhow::Result<Self> {
        let Choice { book, from, to, by } = choice;
        if what == Exported::Books && (book.is_some() || from.is_some() || to.is_some()) {
            bail!("--book, --from and --to are for export log and export sales; leave them out");
        }
        if what != Exported::Sales && by.is_some() {
            bail!("--by is for export sales; leave it out");
        }
        Ok(Self { what, choice: choice.clone(), out })
    }
}

/// The entries of a choice.
pub(super) fn entries(choice: &Choice) -> LogRequest {
    let Choice { book, from, to, .. } = choice;
    LogRequest { from_ms: *from, to_ms: *to, book_id: *book, ..LogRequest::default() }
}

/// The sales of a choice, with the sums that are made if it names none.
pub(super) fn sales(choice: &Choice, usual: By) -> SalesRequest {
    let by = match choice.by.unwrap_or(usual) {
        By::Day => SalesBy::Day,
        By::Book => SalesBy::Book,
        By::Both => SalesBy::DayAndBook,
    };
    SalesRequest { from_ms: choice.from, to_ms: choice.to, by: by.into(), book_id: choice.book }
}

fn edit(id: i32, fields: &[&str]) -> anyhow::Result<EditBookRequest> {
    let mut edit = EditBookRequest { id, ..EditBookRequest::default() };
    for pair in fields.chunks_exact(2) {
        let is_twice = match *pair {
            ["title", value] => edit.title.replace(value.to_owned()).is_some(),
            ["topic", value] => edit.topic.replace(value.to_owned()).is_some(),
            ["price", value] => edit.price_cents.replace(price(value)?.0).is_some(),
            _ => bail!("'{}' cannot be edited; it must be title, topic or price", pair[0].escape_debug()),
        };
        ensure!(!is_twice, "{} is given twice", pair[0]);
    }
    Ok(edit)
}

fn listed(id: i32, listed: bool) -> EditBookRequest {
    EditBookRequest { id, listed: Some(listed), ..EditBookRequest::default() }
}

fn id(word: &str) -> Result<i32, Fault> {
    Ok(BookId::parse(word)?.get())
}

fn copies(name: &'static str, word: &str) -> Result<i32, Fault> {
    let copies = word.parse().ok().filter(|copies| *copies >= 0);
    copies.ok_or_else(|| Fault::invalid_word(name, word, "a whole number from 0 to 2147483647"))
}

fn price(word: &str) -> Result<Cents, Fault> {
    let price = Price::parse(word).ok_or_else(|| Fault::invalid_word("price", word, money::WANTED))?;
    Ok(Cents(price.get()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_is_parsed_in_its_own_form_and_refused_in_others() {
        let parse = |line: &str| Verb::parse(&line.split(' ').collect::<Vec<_>>(), &VerbArgs::default());
        let forms = "list|topics a b|restock|restock 5|restock 7 5|add T t 5 1.50|add T t 5 1.50 9|edit 7 title T price 2|\
                     update 7 2|delist 7|relist 7|import f|export|export log|log|tail|sales|top|connections|cut 3|backup f|help|exit";
        for line in forms.split('|') {
            assert!(parse(line).is_ok(), "{line}: {:?}", parse(line));
        }
        for (name, words, _) in COMMANDS {
            let line = format!("{name} a b c d e f g h");
            if name != "topics" && name != "edit" {
                assert_eq!(
                    parse(&line).expect_err(name).to_string(),
                    format!("usage: {name} {words}").trim_end(),
                    "{line}"
                );
            }
        }
        assert_eq!(
            parse("edit 7 stock 5").expect_err("no field").to_string(),
            "'stock' cannot be edited; it must be title, topic or price"
        );
        assert_eq!(parse("edit 7 price 1 price 2").expect_err("twice").to_string(), "price is given twice");
        assert!(has_id("update") && has_id("delist") && has_id("restock") && !has_id("cut"));
    }
}
