//! Calls of the shopper's commands, and their answers as text and JSON.

use std::{
    cell::Cell,
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use quire_rpc::Code;
use quire_terminal::{pager, screen, table};
use serde_json::{Value, json};

use super::{
    command::{Command, Copies, Named},
    connection::{Connection, Exit, complain, fault_json, fault_text, quoted},
};
use crate::{
    Book, Client, Error, Fault, Key, Order, Outcome, Purchase, Reservation, Reserved, wire::bookstore::BuyOutcome,
};

/// Time limit of a command that only reads.
const READ_TIMEOUT: Duration = Duration::from_secs(5);

/// A connection to a server, with the state of its commands.
pub(super) struct Calls {
    program: &'static str,
    client: Client,
    connection: Connection,
    address: String,
    key: Option<Key>,
    is_interrupted: Cell<bool>,
}

/// Answer of the store: whether it did what was asked, as text safe for a terminal, and as JSON.
type Answer = (bool, String, Value);

impl Calls {
    /// Creates the calls, which connect on first use. Needs a surrounding runtime; an error is a usage error.
    pub(super) fn new(
        program: &'static str,
        connection: Connection,
        key: Option<Key>,
        address: &str,
    ) -> Result<Self, Error> {
        let (client, address) = (connection.client(address)?, address.to_owned());
        Ok(Self { program, client, connection, address, key, is_interrupted: Cell::default() })
    }

    /// True if Ctrl-C ended a call since the last time this was read.
    pub(super) fn was_interrupted(&self) -> bool {
        self.is_interrupted.take()
    }

    /// Runs a command that needs the server, typed as `words`, and prints its answer.
    pub(super) async fn run(&self, command: &Command, words: &[String]) -> Exit {
        let key = match command {
            Command::Buy(_) | Command::Reserve { .. } => Some(self.key.clone().unwrap_or_else(Key::random)),
            Command::Confirm(Named { key }) | Command::Release(Named { key }) => Some(key.clone()),
            _ => None,
        };
        let in_doubt = AtomicBool::new(false);
        let call = async {
            match &key {
                Some(key) => self.once(command, key, &in_doubt).await,
                None => self.read(command).await,
            }
        };
        let done = tokio::select! {
            biased;
            done = call => done,
            Ok(()) = tokio::signal::ctrl_c() => {
                self.is_interrupted.set(true);
                let (is_unknown, address) = (in_doubt.load(Ordering::Relaxed), &self.address);
                let done = if key.is_none() || is_unknown { "" } else { ", and nothing was done" };
                let message = format!("{address} did not answer: interrupted{done}");
                let fault = Fault { code: Code::Cancelled, message, sent: true, cause: None };
                Err(if is_unknown { Error::OutcomeUnknown(fault) } else { Error::Unreachable(fault) })
            }
        };
        match done {
            Ok((success, text, json)) => {
                pager::print(&if self.connection.json { screen::json(&json) } else { text });
                if success { Exit::Done } else { Exit::Refused }
            }
            Err(error) => self.failed(&error, words, key.as_ref()),
        }
    }

    /// A command that only reads; all its calls share its time limit.
    async fn read(&self, command: &Command) -> Result<Answer, Error> {
        let deadline = tokio::time::Instant::now() + self.connection.timeout.unwrap_or(READ_TIMEOUT);
        let client = self.client.with_deadline(deadline);
        match command {
            Command::Receipt { number, named } => receipt(&client, *number, &named.key).await,
            Command::Topics { text } => topics(&client, &text.join(" ")).await,
            Command::Search { topic } => search(&client, &topic.join(" ")).await,
            Command::Lookup { id } => lookup(&client, *id).await,
            _ => ping(&client).await,
        }
    }

    /// A command that its key makes happen once; `in_doubt` is true while it may have been done.
    async fn once(&self, command: &Command, key: &Key, in_doubt: &AtomicBool) -> Result<Answer, Error> {
        let order = |copies: &Copies| Order::of(copies.id).quantity(copies.quantity).key(key.clone());
        match command {
            Command::Buy(copies) => bought(&self.client.buy_noting(order(copies), in_doubt).await?),
            Command::Reserve { copies, seconds } => {
                let time = seconds.map(Duration::from_secs);
                reserved(&self.client.reserve_noting(order(copies), time, in_doubt).await?)
            }
            command => {
                let is_bought = matches!(command, Command::Confirm(_));
                reserved(&self.client.settle_noting(key, is_bought, in_doubt).await?)
            }
        }
    }

    /// Prints a failed call's error; if the outcome is unknown and the call has a key, also the command that shows it.
    fn failed(&self, error: &Error, words: &[String], key: Option<&Key>) -> Exit {
        let exit = Exit::from(error);
        let words = words.splitn(2, |word| word == "--").collect::<Vec<_>>().concat();
        let mut message = fault_text(error);
        if exit == Exit::Unknown {
            message = format!("it is not known whether '{}' was done: {message}", words.join(" "));
        }
        let mut json = fault_json(error, &message);
        let mut text = screen::line(&message).into_owned();
        if let Some(key) = key {
            json["key"] = key.as_str().into();
        }
        if let Some(key) = key.filter(|_| exit == Exit::Unknown) {
            let again = self.again(&words, key.as_str());
            text = format!("{text}\nthis asks, and does nothing twice:\n    {again}");
            json["command"] = again.into();
        }
        if self.connection.json {
            pager::print(&screen::json(&json));
        } else {
            complain(&text);
        }
        exit
    }

    /// Complete command line that repeats a command with its key, which may look like a flag.
    fn again(&self, words: &[String], key: &str) -> String {
        let (name, arguments) = words.split_at(words.len().min(1));
        let key = match &*name.concat() {
            "confirm" | "release" => Vec::new(),
            _ if key.starts_with('-') => vec![format!("--key={key}")],
            _ => vec!["--key".to_owned(), key.to_owned()],
        };
        let end = arguments.iter().take(1).filter(|word| word.starts_with('-')).map(|_| "--".to_owned()).collect();
        let line = [key, self.connection.flags(), vec![self.address.clone()], name.to_vec(), end, arguments.to_vec()];
        format!("{} {}", self.program, quoted(line.concat().iter().map(String::as_str)))
    }
}

async fn search(client: &Client, topic: &str) -> Result<Answer, Error> {
    let (mut books, mut token) = (Vec::new(), String::new());
    let (success, message) = loop {
        let page = client.search_page(topic, token).await?;
        books.extend(page.books.into_iter().map(Book::from));
        token = page.next_page_token;
        if token.is_empty() {
            break (page.success, page.message);
        }
    };
    let listed: Vec<Value> = books.iter().map(book_json).collect();
    let mut json = json!({ "books": listed, "message": message, "success": success });
    if !books.is_empty() {
        return Ok((success, book_table(&books), json));
    }
    let mut text = screen::line(&message).into_owned();
    // A failure of this call counts as no similar topics.
    let near = client.topics_near(topic).await.unwrap_or_default();
    if !near.is_empty() {
        let quoted = near.iter().map(|topic| format!("'{}'", screen::line(&topic.name))).collect::<Vec<_>>();
        text = format!("{text}; near it: {}", quoted.join(", "));
        json["near"] = near.into_iter().map(|topic| topic.name).collect();
    }
    Ok((success, text, json))
}

async fn topics(client: &Client, near: &str) -> Result<Answer, Error> {
    let topics = if near.is_empty() { client.topics().all().await? } else { client.topics_near(near).await? };
    let listed: Vec<Value> = topics.iter().map(|topic| json!({ "books": topic.books, "name": topic.name })).collect();
    let text = match (topics.is_empty(), near) {
        (true, "") => "there are no topics".to_owned(),
        (true, near) => format!("no topic is near '{}'", screen::line(near)),
        (false, _) => table::topics(topics.into_iter().map(|topic| (topic.name, topic.books.to_string()))),
    };
    Ok((true, text, json!({ "success": true, "topics": listed })))
}

async fn lookup(client: &Client, id: i32) -> Result<Answer, Error> {
    let reply = client.lookup_reply(id).await?;
    let book = reply.book.map(Book::from);
    let json = json!({ "book": book.as_ref().map(book_json), "message": reply.message, "success": reply.success });
    let text = book.map_or_else(|| screen::line(&reply.message).into(), |book| book_table(&[book]));
    Ok((reply.success, text, json))
}

async fn ping(client: &Client) -> Result<Answer, Error> {
    let start = Instant::now();
    let message = client.ping().await?;
    let took = start.elapsed();
    let text = format!("{} ({:.2} ms)", screen::line(&message), took.as_secs_f64() * 1e3);
    let microseconds = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
    Ok((true, text, json!({ "message": message, "microseconds": microseconds, "success": true })))
}

async fn receipt(client: &Client, number: i64, key: &Key) -> Result<Answer, Error> {
    let reply = client.receipt_reply(number, key).await?;
    let (receipt, log_key) = reply.success.then_some((&reply.receipt, &reply.log_key)).unzip();
    let json = json!({ "log_key": log_key, "message": reply.message, "receipt": receipt, "success": reply.success });
    let text = receipt.map_or_else(|| screen::line(&reply.message).into(), |text| screen::lines(text.trim_end()));
    Ok((reply.success, text, json))
}

fn bought(purchase: &Purchase) -> Result<Answer, Error> {
    let text = screen::line(&purchase.message);
    let (named, number) = match &purchase.outcome {
        Outcome::Unknown(fault) => return Err(Error::OutcomeUnknown(fault.clone())),
        Outcome::Bought { number } => (BuyOutcome::Bought, *number),
        Outcome::SoldOut => (BuyOutcome::SoldOut, 0),
        Outcome::TooFew => (BuyOutcome::TooFew, 0),
        Outcome::NoSuchBook => (BuyOutcome::NoSuchBook, 0),
        Outcome::NotBought => (BuyOutcome::Unspecified, 0),
    };
    let success = named == BuyOutcome::Bought;
    let numbered = if number > 0 { format!(" (purchase {number})") } else { String::new() };
    let replayed = if purchase.replayed { "; the answer to an earlier call" } else { "" };
    let json = json!({
        "key": purchase.key.as_str(),
        "message": purchase.message,
        "outcome": named.as_str_name(),
        "purchase_number": number,
        "replayed": purchase.replayed,
        "stock_left": purchase.stock_left,
        "success": success,
    });
    Ok((success, format!("{text}{numbered}{replayed}"), json))
}

fn reserved(reservation: &Reservation) -> Result<Answer, Error> {
    let (text, key) = (screen::line(&reservation.message), reservation.key.as_str());
    let held = match &reservation.outcome {
        Reserved::Unknown(fault) => return Err(Error::OutcomeUnknown(fault.clone())),
        Reserved::Held => format!(" (key {})", screen::line(key)),
        _ => String::new(),
    };
    let is_repeated = reservation.replayed && reservation.outcome != Reserved::Expired;
    let replayed = if is_repeated { "; the answer to an earlier call" } else { "" };
    let json = json!({
        "id": reservation.id,
        "key": key,
        "message": reservation.message,
        "number": reservation.number,
        "outcome": reservation.named.as_str_name(),
        "quantity": reservation.quantity,
        "replayed": reservation.replayed,
        "stock_left": reservation.stock_left,
        "success": reservation.success,
        "until_ms": reservation.until_ms,
    });
    Ok((reservation.success, format!("{text}{held}{replayed}"), json))
}

fn book_json(book: &Book) -> Value {
    let Book { id, title, topic, stock, held, price, .. } = book;
    json!({ "held": held, "id": id, "price_cents": price.0, "stock": stock, "title": title, "topic": topic })
}

fn book_table(books: &[Book]) -> String {
    let row = |book: &Book| {
        [book.id.to_string(), book.title.clone(), book.topic.clone(), book.stock.to_string(), book.price.to_string()]
    };
    let heads = [("id", true), ("title", false), ("topic", false), ("stock", true), ("price", true)];
    table::render(heads, books.iter().map(row))
}
