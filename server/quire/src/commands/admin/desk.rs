//! Runs an operator's commands on a server and prints the answers.

use std::{
    cell::{Cell, RefCell},
    io::{self, Write as _},
    time::Duration,
};

use bookstore::domain::RESTOCK_DEFAULT;
use quire_client::{
    Book, Client, Code, Error, Items, Operator,
    cli::{Connection, Exit, fault_json, fault_text},
};
use quire_rpc::client::Channel;
use quire_terminal::{
    pager::Pager,
    screen,
    shell::{self, CANDIDATES_MAX},
};
use serde_json::{Value, json};
use tokio::runtime::Handle;

use super::verb::{self, Change, Verb};
use crate::cli::COMMANDS;

/// Books and entries that are read before they are shown as one table.
const ROWS: usize = 1000;
/// Time for a change that may concern every book.
const LONG: Duration = Duration::from_mins(10);
/// Short, as the user waits at the prompt.
const COMPLETION_TIMEOUT: Duration = Duration::from_secs(1);

pub(super) struct Desk {
    pub(super) client: Client,
    pub(super) operator: Operator,
    /// The same, for calls that take long.
    pub(super) patient: Operator,
    pub(super) connection: Connection,
    pub(super) address: String,
    pub(super) runtime: Handle,
    /// The channel of a console.
    pub(super) console: Option<Channel>,
    /// True if standard input has commands.
    pub(super) is_prompt: bool,
    /// The command as it was typed at a prompt.
    pub(super) line: RefCell<String>,
    /// True if the last command has sent its change.
    pub(super) is_sent: Cell<bool>,
    /// True if Ctrl-C ended the last command.
    pub(super) is_interrupted: Cell<bool>,
}

impl Desk {
    pub(super) fn new(client: Client, connection: Connection, address: &str, runtime: Handle) -> Result<Self, Error> {
        let patient = client.with_timeout(connection.timeout.unwrap_or(LONG)).operator(None)?;
        let (operator, address) = (client.operator(None)?, address.to_owned());
        Ok(Self {
            client,
            operator,
            patient,
            connection,
            address,
            runtime,
            console: None,
            is_prompt: false,
            line: RefCell::default(),
            is_sent: Cell::new(false),
            is_interrupted: Cell::new(false),
        })
    }

    /// Must be called just before a change is sent. Logs it if it is the console's, as a server logs calls of
    /// operators.
    pub(super) fn sends(&self) {
        self.is_sent.set(true);
        if self.console.is_some() {
            let method = self.line.borrow().clone();
            tracing::info!(target: hosting::UNBOUNDED, method, credential = "console", "an operator's action");
        }
    }

    /// Runs a command and shows its answer.
    pub(super) fn run(&self, verb: &Verb) -> Exit {
        if let Verb::Top { once } = verb {
            return self.top(*once);
        }
        self.is_sent.set(false);
        let mut out = Pager::new();
        let done = self.runtime.block_on(async {
            tokio::select! {
                biased;
                done = self.answer(verb, &mut out) => Some(done),
                Ok(()) = tokio::signal::ctrl_c() => None,
            }
        });
        out.finish();
        match done {
            Some(Ok(exit)) => exit,
            Some(Err(error)) => self.failed(verb, &error),
            None => {
                self.is_interrupted.set(true);
                self.stopped(verb)
            }
        }
    }

    /// Exit code of a command after Ctrl-C.
    fn stopped(&self, verb: &Verb) -> Exit {
        match verb {
            Verb::Tail => Exit::Done,
            Verb::Change(Change::Backup { .. }) => {
                self.complain("interrupted; no file was written");
                Exit::Refused
            }
            Verb::Change(_) if !self.is_sent.get() => {
                self.complain("interrupted; nothing was changed");
                Exit::Refused
            }
            Verb::Change(change) => {
                self.complain(&unknown("interrupted", change));
                Exit::Unknown
            }
            _ => Exit::Unreachable,
        }
    }

    async fn answer(&self, verb: &Verb, out: &mut Pager) -> anyhow::Result<Exit> {
        match verb {
            Verb::List => self.list(out).await?,
            Verb::Topics(near) => self.topics(near, out).await?,
            Verb::Log { filter, limit } => self.log(filter, *limit, out).await?,
            Verb::Tail => self.tail().await?,
            Verb::Sales(request) => self.sales(*request, out).await?,
            Verb::Export(export) => self.export(export).await?,
            Verb::Connections(most) => self.connections(*most, out).await?,
            Verb::Help => writeln!(out, "{}", shell::help(&COMMANDS))?,
            Verb::Exit | Verb::Top { .. } => {}
            Verb::Change(change) => return self.change(change, out).await,
        }
        Ok(Exit::Done)
    }

    async fn change(&self, change: &Change, out: &mut Pager) -> anyhow::Result<Exit> {
        match change {
            Change::Restock { amount, yes } => {
                self.restock(amount.unwrap_or(RESTOCK_DEFAULT.cast_signed()), *yes, out).await
            }
            Change::RestockBook { id, amount } => self.restock_book(*id, *amount, out).await,
            Change::Add(book) => self.add(book, out).await,
            Change::Edit(edit) => self.edit(edit, out).await,
            Change::Price(id, price) => self.price(*id, *price, out).await,
            Change::Import { file, yes, skip_bad } => self.import(file, *yes, *skip_bad, out).await,
            Change::Cut(connection) => self.cut(*connection, out).await,
            Change::Reload => self.reload(out).await,
            Change::Backup { file, force } => self.backup(file, *force, out).await,
        }
    }

    /// Shows the items page by page; without any, an empty page.
    pub(super) async fn pages<T>(
        &self,
        mut items: Items<T>,
        mut show: impl FnMut(&[T]) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let (mut page, mut is_first) = (Vec::new(), true);
        while let Some(item) = items.try_next().await? {
            page.push(item);
            if page.len() == ROWS {
                show(&page)?;
                page.clear();
                is_first = false;
            }
        }
        if page.is_empty() && !is_first { Ok(()) } else { show(&page) }
    }

    /// Writes items as a table, or each as a line of JSON.
    pub(super) fn write<T>(
        &self,
        out: &mut Pager,
        items: &[T],
        json: impl Fn(&T) -> Value,
        table: impl Fn(&[T]) -> String,
    ) -> anyhow::Result<()> {
        if !self.connection.json {
            return Ok(writeln!(out, "{}", table(items))?);
        }
        items.iter().try_for_each(|item| Ok(writeln!(out, "{}", screen::json(&json(item)))?))
    }

    /// Shows that a command is done.
    pub(super) fn done(&self, out: &mut Pager, text: &str, mut json: Value) -> anyhow::Result<Exit> {
        json["success"] = true.into();
        self.write(out, &[()], |()| json.clone(), |_| screen::line(text).into_owned())?;
        Ok(Exit::Done)
    }

    /// Prints a refusal by the server, or the user's no at a question.
    pub(super) fn refused(&self, out: &mut Pager, text: &str) -> anyhow::Result<Exit> {
        let json = json!({ "success": false, "message": text });
        self.write(out, &[()], |()| json.clone(), |_| screen::line(text).into_owned())?;
        Ok(Exit::Refused)
    }

    fn failed(&self, verb: &Verb, error: &anyhow::Error) -> Exit {
        if error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe) {
            // The reader has seen enough.
            return Exit::Done;
        }
        let (exit, text, json) = if let Some(error) = error.downcast_ref::<Error>() {
            let mut text = fault_text(error);
            if let (Error::OutcomeUnknown(_), Verb::Change(change)) = (error, verb) {
                text = unknown(&text, change);
            }
            (Exit::from(error), text.clone(), fault_json(error, &text))
        } else {
            let text = format!("{error:#}");
            (Exit::Usage, text.clone(), json!({ "message": text, "success": false }))
        };
        if self.connection.json {
            // A closed output is no error.
            let _ = print_line(&screen::json(&json));
        } else {
            self.complain(&text);
        }
        exit
    }

    /// Shows an error. The server's log is on standard error, so a console's errors are in its output.
    pub(super) fn complain(&self, text: &str) {
        let text = screen::line(text);
        // If no one reads it, nothing else can be done.
        let _ = if self.console.is_some() { print_line(&text) } else { writeln!(io::stderr(), "{text}") };
    }

    /// Completions of an argument: ids and topics of the catalogue.
    pub(super) async fn complete(&self, command: &str, typed: &str) -> Vec<String> {
        let page = u32::try_from(CANDIDATES_MAX).unwrap_or(u32::MAX);
        let client = self.client.with_timeout(COMPLETION_TIMEOUT).with_retries(0).with_page_size(page);
        let found = match command {
            "topics" => topics_beginning(&client, typed).await,
            command if verb::has_id(command) => ids_beginning(&client, typed).await,
            _ => Ok(Vec::new()),
        };
        found.unwrap_or_default()
    }
}

/// Text for a change that may have been made.
fn unknown(cause: &str, change: &Change) -> String {
    let shows = match change {
        Change::Cut(_) => "connections shows whether it is open",
        Change::Reload => "the server's log shows it",
        _ => "the log shows it",
    };
    format!("it is not known whether this was done: {cause}; {shows}")
}

pub(super) fn write_line(out: &mut Pager, text: &str) -> anyhow::Result<()> {
    Ok(writeln!(out, "{}", screen::line(text))?)
}

pub(super) fn is_late(error: &Error) -> bool {
    error.fault().is_some_and(|fault| fault.code == Code::DeadlineExceeded)
}

/// Ids with the typed prefix. For each number of digits, they are contiguous.
async fn ids_beginning(client: &Client, typed: &str) -> Result<Vec<String>, Error> {
    let operator = client.operator(None)?;
    let mut found = Vec::new();
    let mut first = if typed.is_empty() { Some(1) } else { typed.parse::<i32>().ok().filter(|first| *first > 0) };
    while let Some(id) = first.filter(|_| found.len() < CANDIDATES_MAX) {
        let mut books = operator.list_after(id - 1);
        while found.len() < CANDIDATES_MAX
            && let Some(Book { id, .. }) = books.try_next().await?
            && id.to_string().starts_with(typed)
        {
            found.push(id.to_string());
        }
        first = id.checked_mul(10).filter(|_| !typed.is_empty());
    }
    Ok(found)
}

async fn topics_beginning(client: &Client, typed: &str) -> Result<Vec<String>, Error> {
    if !typed.is_empty() {
        let names = client.topics_near(typed).await?.into_iter().map(|topic| topic.name);
        return Ok(names.filter(|name| name.starts_with(typed)).collect());
    }
    let (mut topics, mut names) = (client.topics(), Vec::new());
    while names.len() < CANDIDATES_MAX
        && let Some(topic) = topics.try_next().await?
    {
        names.push(topic.name);
    }
    Ok(names)
}

pub(super) fn print_line(line: &str) -> io::Result<()> {
    let mut out = io::stdout();
    writeln!(out, "{line}")?;
    out.flush()
}
