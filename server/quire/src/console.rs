//! The operator's console on standard input. It calls the same actions of the store as `bookstore.Admin`.

use std::{
    any::Any,
    io::{self, Write},
    sync::Arc,
    thread,
    time::{Duration, UNIX_EPOCH},
};

use anyhow::bail;
use bookstore::{
    Actor, Bookstore, BookstoreService, Cents,
    domain::{BookId, Entry, EntryKind, RESTOCK_DEFAULT},
    fault::Fault,
    money,
    search::Topic,
    store::Page,
};
use quire_terminal::{
    pager::Pager,
    screen,
    shell::{self, CANDIDATES_MAX, Line, Shell},
    table,
};
use tokio::{runtime::Handle, sync::oneshot};

use crate::{pages::Services, telemetry};

/// Starts the console. The receiver gets a message when the operator stops the server, and none if the console ends
/// otherwise.
pub(crate) fn start(services: &Services) -> oneshot::Receiver<()> {
    let (leave, left) = oneshot::channel();
    let bookstore = services.iter().find_map(|service| (&**service as &dyn Any).downcast_ref::<BookstoreService>());
    let Some(store) = bookstore.map(|service| service.store().clone()) else { return left };
    let runtime = Handle::current();
    let started = thread::Builder::new().name("console".to_owned()).spawn(move || match talk(&store, &runtime) {
        Ok(true) => drop(leave.send(())),
        Ok(false) => tracing::debug!("standard input has ended; the server runs on"),
        Err(error) => tracing::warn!(%error, "the console has ended; the server runs on"),
    });
    if let Err(error) = started {
        tracing::warn!(%error, "there is no console");
    }
    left
}

/// Runs the console; true if the operator stops the server.
fn talk(store: &Bookstore, runtime: &Handle) -> anyhow::Result<bool> {
    let (books, waiting) = (store.clone(), runtime.clone());
    let complete = move |command: &str, typed: &str| match command {
        "update" => waiting.block_on(ids(&books, typed)),
        "topics" => waiting.block_on(topics_beginning(&books, typed)),
        _ => Vec::new(),
    };
    let mut shell = Shell::open("quire> ", &COMMANDS, "console", Box::new(complete))?;
    if let Some(printer) = shell.printer() {
        telemetry::share_terminal(printer);
    }
    loop {
        let words = match shell.read()? {
            Line::Words(words) => words,
            Line::Unusable(reason) => {
                writeln!(io::stdout(), "{reason}")?;
                continue;
            }
            Line::PipeEnded => return Ok(false),
            Line::Left => return Ok(true),
        };
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        log_action(&words);
        let mut out = Pager::new();
        let done = runtime.block_on(run(store, &words, &mut out));
        out.finish();
        match done {
            Ok(Done::Next) => {}
            Ok(Done::Exit) => return Ok(true),
            Err(error) if has_stopped_reading(&error) => {}
            Err(error) => writeln!(io::stdout(), "{}", screen::line(&format!("{error:#}")))?,
        }
    }
}

/// Logs a command that changes something, as calls of `bookstore.Admin` are logged.
fn log_action(words: &[&str]) {
    if let ["restock" | "update", ..] = words {
        let method = words.join(" ");
        tracing::info!(target: telemetry::UNBOUNDED, method, credential = "console", "an operator's action");
    }
}

/// True if the operator left the pager.
fn has_stopped_reading(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

/// The commands, as `help` shows them.
const COMMANDS: [shell::Help; 7] = [
    ("list", "", "every book"),
    ("topics", "[text]", "every topic and how many books it has, or the topics near a text"),
    ("restock", "[amount]", "raises every book's stock to amount, 20 if absent; a book above it keeps its stock"),
    ("update", "<id> <price>", "sets a price"),
    ("log", "", "recent transactions, newest last"),
    ("help", "", "this list; ? as well"),
    ("exit", "", "drains and stops the server; quit as well"),
];

/// Number of entries that `log` shows.
const RECENT: usize = 20;

/// Outcome of a command: the console continues or ends.
enum Done {
    Next,
    Exit,
}

/// Runs the command of one line.
async fn run(store: &Bookstore, words: &[&str], out: &mut impl Write) -> anyhow::Result<Done> {
    match *words {
        [] => {}
        ["list"] => list(store, out).await?,
        ["topics"] => topics(store, out)?,
        ["topics", ..] => topics_near(store, &words[1..].join(" "), out).await?,
        ["restock"] => restock(store, RESTOCK_DEFAULT.into(), out).await?,
        ["restock", amount] => {
            let copies = amount.parse::<i32>().ok().filter(|copies| *copies >= 0);
            let wrong = || Fault::invalid_word("amount", amount, "a whole number from 0 to 2147483647");
            restock(store, copies.ok_or_else(wrong)?.into(), out).await?;
        }
        ["update", id, price] => update(store, id, price, out).await?,
        ["log"] => log(store, out).await?,
        ["help" | "?"] => writeln!(out, "{}", shell::help(&COMMANDS))?,
        ["exit" | "quit"] => return Ok(Done::Exit),
        [name, ..] => match COMMANDS.iter().find(|command| command.0 == name) {
            Some((_, arguments, _)) => bail!("usage: {}", shell::usage(name, arguments)),
            None => bail!("there is no command '{}'; help lists them", name.escape_debug()),
        },
    }
    Ok(Done::Next)
}

async fn list(store: &Bookstore, out: &mut impl Write) -> anyhow::Result<()> {
    let mut after = None;
    loop {
        let page = store.list_all(after, 0).await?;
        let rows = page.items.iter().map(|book| {
            let (stock, price) = (book.stock().to_string(), book.price().to_string());
            [book.id().to_string(), book.title().to_owned(), book.topic().to_owned(), stock, price]
        });
        let columns = [("id", true), ("title", false), ("topic", false), ("stock", true), ("price", true)];
        writeln!(out, "{}", table::render(columns, rows))?;
        after = page.next;
        if after.is_none() {
            return Ok(());
        }
    }
}

fn topics(store: &Bookstore, out: &mut impl Write) -> anyhow::Result<()> {
    let mut after: Option<Arc<str>> = None;
    loop {
        let page = store.topics(after.as_deref(), 0)?;
        writeln!(out, "{}", topic_table(&page.items))?;
        after = page.next;
        if after.is_none() {
            return Ok(());
        }
    }
}

async fn topics_near(store: &Bookstore, text: &str, out: &mut impl Write) -> anyhow::Result<()> {
    let found = store.topics_near(text, 0).await?;
    match found.as_slice() {
        [] => writeln!(out, "no topic is near '{}'", screen::line(text))?,
        found => writeln!(out, "{}", topic_table(found))?,
    }
    Ok(())
}

fn topic_table(topics: &[Topic]) -> String {
    table::topics(topics.iter().map(|topic| (topic.name.as_ref().to_owned(), topic.books.to_string())))
}

async fn restock(store: &Bookstore, amount: i64, out: &mut impl Write) -> anyhow::Result<()> {
    let done = store.restock(amount, Actor::console()).await?;
    let books = if done.books_raised == 1 { "book" } else { "books" };
    Ok(writeln!(out, "{} {books} raised to {amount}", done.books_raised)?)
}

async fn update(store: &Bookstore, id: &str, price: &str, out: &mut impl Write) -> anyhow::Result<()> {
    let id = BookId::parse(id)?;
    let price = Cents::parse(price).ok_or_else(|| Fault::invalid_word("price", price, money::WANTED))?;
    match store.update_price(id, price.get(), Actor::console()).await? {
        Some(change) => Ok(writeln!(out, "book {id} costs {} now, {} before", change.after, change.before)?),
        None => bail!("there is no book {id}; list shows them all"),
    }
}

async fn log(store: &Bookstore, out: &mut impl Write) -> anyhow::Result<()> {
    let page = store.log(Page::Before(i64::MAX), RECENT).await?;
    let columns = [
        ("number", true),
        ("time", false),
        ("what", false),
        ("book", true),
        ("quantity", true),
        ("before", true),
        ("after", true),
    ];
    Ok(writeln!(out, "{}", table::render(columns, page.items.iter().rev().map(row)))?)
}

fn row(entry: &Entry) -> [String; 7] {
    let amount = |value: Option<i64>| match (value, entry.kind) {
        (None, _) => String::new(),
        (Some(cents), EntryKind::Price) => Cents::new(cents).unwrap_or_default().to_string(),
        (Some(copies), _) => copies.to_string(),
    };
    [
        entry.number.to_string(),
        timestamp(entry.time_ms),
        entry.kind.name().to_owned(),
        entry.book.to_string(),
        entry.quantity.map(|copies| copies.to_string()).unwrap_or_default(),
        amount(entry.before),
        amount(entry.after),
    ]
}

/// In RFC 3339.
fn timestamp(time_ms: i64) -> String {
    let since = Duration::from_millis(u64::try_from(time_ms).unwrap_or(0));
    UNIX_EPOCH.checked_add(since).map_or_else(String::new, |time| humantime::format_rfc3339_millis(time).to_string())
}

/// Ids with the typed prefix, for completion.
async fn ids(store: &Bookstore, typed: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut first = if typed.is_empty() { Some(1) } else { typed.parse::<i32>().ok().filter(|first| *first > 0) };
    // For each number of digits, ids with this prefix are contiguous.
    while let Some(id) = first.filter(|_| found.len() < CANDIDATES_MAX) {
        let Ok(page) = store.list_all(BookId::new(id - 1), 0).await else { break };
        found.extend(page.items.iter().map(|book| book.id().to_string()).take_while(|id| id.starts_with(typed)));
        first = id.checked_mul(10).filter(|_| !typed.is_empty());
    }
    found
}

/// Topics with the typed prefix, for completion.
async fn topics_beginning(store: &Bookstore, typed: &str) -> Vec<String> {
    let found = match typed {
        "" => store.topics(None, 0).map(|page| page.items),
        _ => store.topics_near(typed, CANDIDATES_MAX).await,
    };
    let names = found.unwrap_or_default().into_iter().map(|topic| topic.name.as_ref().to_owned());
    names.filter(|name| name.starts_with(typed)).take(CANDIDATES_MAX).collect()
}
