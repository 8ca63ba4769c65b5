//! Calls of the shopper's commands, and their answers as text and JSON.

use std::{
    cell::{Cell, RefCell},
    future::Future,
    rc::Rc,
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use quire_rpc::Status;
use quire_terminal::{screen, table};
use serde_json::{Value, json};

use super::{
    command::Call,
    connection::Connection,
    exit::Exit,
    fault::{fault_json, fault_text, quoted},
    seen::Seen,
};
use crate::{Book, Client, Error, Fault, Key, Order, Outcome, Purchase, Topic, wire::bookstore::ListTopicsRequest};

/// Time limit of a command that only reads.
const READ_TIMEOUT: Duration = Duration::from_secs(5);
/// Short, as the user waits at the prompt.
const LEARNING_TIMEOUT: Duration = Duration::from_secs(1);

/// A connection to a server, with the state of its commands.
pub(super) struct Calls {
    program: String,
    client: Client,
    connection: Connection,
    address: String,
    key: Option<Key>,
    seen: Rc<RefCell<Seen>>,
    is_interrupted: Cell<bool>,
}

/// Result of a command, as text safe for a terminal, and as JSON with ordered names.
pub(super) struct Answer {
    pub(super) exit: Exit,
    /// True if it is not an answer of the store's.
    pub(super) is_fault: bool,
    pub(super) text: String,
    pub(super) json: Value,
}

impl Answer {
    fn of(success: bool, text: String, json: Value) -> Self {
        Self { exit: if success { Exit::Done } else { Exit::Refused }, is_fault: false, text, json }
    }
}

impl Calls {
    /// Creates the calls, which connect on first use. Needs a surrounding runtime; an error is a usage error.
    pub(super) fn new(
        program: &str,
        connection: Connection,
        key: Option<Key>,
        address: &str,
        seen: Rc<RefCell<Seen>>,
    ) -> Result<Self, String> {
        let client = connection.client(address).map_err(|error| error.to_string())?;
        let (program, address) = (program.to_owned(), address.to_owned());
        Ok(Self { program, client, connection, address, key, seen, is_interrupted: Cell::new(false) })
    }

    /// True if Ctrl-C ended a call since the last time this was read.
    pub(super) fn was_interrupted(&self) -> bool {
        self.is_interrupted.take()
    }

    pub(super) async fn run(&self, call: &Call) -> Answer {
        let done = match call {
            Call::Buy(id, quantity) => return self.buy(*id, *quantity).await,
            Call::Ping => self.read(async |client| self.ping(client).await).await,
            Call::Topics(near) => self.read(async |client| self.topics(client, near).await).await,
            Call::Search(topic) => self.read(async |client| self.search(client, topic).await).await,
            Call::Lookup(id) => self.read(async |client| self.lookup(client, *id).await).await,
        };
        done.unwrap_or_else(|error| {
            let text = fault_text(&error, &self.address);
            let (json, text) = (fault_json(&error, &text), screen::line(&text).into_owned());
            Answer { exit: Exit::from(&error), is_fault: true, text, json }
        })
    }

    /// Runs a command that only reads; all its calls share its time limit.
    async fn read(&self, command: impl AsyncFnOnce(&Client) -> Result<Answer, Error>) -> Result<Answer, Error> {
        let deadline = tokio::time::Instant::now() + self.connection.timeout.unwrap_or(READ_TIMEOUT);
        let client = self.client.with_deadline(deadline);
        let interrupted = || Err(Error::Unreachable(Fault::new(&Status::cancelled(""), true)));
        self.unless_interrupted(command(&client)).await.unwrap_or_else(interrupted)
    }

    /// Result of a call; `None` if Ctrl-C ends it.
    async fn unless_interrupted<T>(&self, call: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            done = call => Some(done),
            Ok(()) = tokio::signal::ctrl_c() => {
                self.is_interrupted.set(true);
                None
            }
        }
    }

    async fn ping(&self, client: &Client) -> Result<Answer, Error> {
        let start = Instant::now();
        let message = client.ping().await?;
        let took = start.elapsed();
        let text = format!("{} ({:.2} ms)", screen::line(&message), took.as_secs_f64() * 1e3);
        let microseconds = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        Ok(Answer::of(true, text, json!({ "message": message, "microseconds": microseconds, "success": true })))
    }

    async fn search(&self, client: &Client, topic: &str) -> Result<Answer, Error> {
        let (mut books, mut token) = (Vec::new(), String::new());
        let (success, message) = loop {
            let page = client.search_page(topic, token).await?;
            books.extend(page.books.into_iter().map(Book::from));
            token = page.next_page_token;
            if token.is_empty() {
                break (page.success, page.message);
            }
        };
        self.seen.borrow_mut().books(&books);
        let listed: Vec<Value> = books.iter().map(book_json).collect();
        if !books.is_empty() {
            let json = json!({ "books": listed, "message": message, "success": success });
            return Ok(Answer::of(success, book_table(&books), json));
        }
        // A failure of this call counts as no similar topics.
        let near = client.topics_near(topic).await.unwrap_or_default();
        let names: Vec<&str> = near.iter().map(|topic| topic.name.as_str()).collect();
        let mut text = screen::line(&message).into_owned();
        if names.is_empty() {
            return Ok(Answer::of(success, text, json!({ "books": listed, "message": message, "success": success })));
        }
        let quoted: Vec<String> = names.iter().map(|name| format!("'{}'", screen::line(name))).collect();
        text = format!("{text}; near it: {}", quoted.join(", "));
        let json = json!({ "books": listed, "message": message, "near": names, "success": success });
        Ok(Answer::of(success, text, json))
    }

    async fn topics(&self, client: &Client, near: &str) -> Result<Answer, Error> {
        let topics = if near.is_empty() { client.topics().all().await? } else { client.topics_near(near).await? };
        for topic in &topics {
            self.seen.borrow_mut().topic(&topic.name);
        }
        let listed = |topic: &Topic| json!({ "books": topic.books, "name": topic.name });
        let listed: Vec<Value> = topics.iter().map(listed).collect();
        let text = match (topics.as_slice(), near) {
            ([], "") => "there are no topics".to_owned(),
            ([], near) => format!("no topic is near '{}'", screen::line(near)),
            (topics, _) => table::topics(topics.iter().map(|topic| (topic.name.clone(), topic.books.to_string()))),
        };
        Ok(Answer::of(true, text, json!({ "success": true, "topics": listed })))
    }

    /// Requests topics once, for completion: the first page, if it comes soon.
    pub(super) async fn learn_topics(&self) {
        if self.seen.borrow_mut().begin_topics() {
            let client = self.client.with_timeout(LEARNING_TIMEOUT).with_retries(0);
            if let Ok(page) = client.topics_page(ListTopicsRequest::default()).await {
                page.topics.iter().for_each(|topic| self.seen.borrow_mut().topic(&topic.name));
            }
        }
    }

    async fn lookup(&self, client: &Client, id: i32) -> Result<Answer, Error> {
        let reply = client.lookup_reply(id).await?;
        let book = reply.book.map(Book::from);
        self.seen.borrow_mut().books(book.as_slice());
        let json = json!({ "book": book.as_ref().map(book_json), "message": reply.message, "success": reply.success });
        let text = book.map_or_else(|| screen::line(&reply.message).into(), |book| book_table(&[book]));
        Ok(Answer::of(reply.success, text, json))
    }

    async fn buy(&self, id: i32, quantity: i32) -> Answer {
        let key = self.key.clone().unwrap_or_else(Key::random);
        let order = Order::of(id).quantity(quantity).key(key.clone());
        let in_doubt = AtomicBool::new(false);
        let interrupted = || {
            let fault = Fault::new(&Status::cancelled(""), true);
            let is_in_doubt = in_doubt.load(Ordering::Relaxed);
            if is_in_doubt { Ok(Purchase::unknown(key.clone(), fault)) } else { Err(Error::Unreachable(fault)) }
        };
        let bought = self.unless_interrupted(self.client.buy_noting(order, &in_doubt)).await;
        match bought.unwrap_or_else(interrupted) {
            Ok(Purchase { outcome: Outcome::Unknown(fault), .. }) => self.unknown(fault, &key, id, quantity),
            Ok(purchase) => bought_answer(&purchase),
            Err(error) => {
                let text = fault_text(&error, &self.address);
                let (fault, exit) = (fault_json(&error, &text), Exit::from(&error));
                let json = json!({
                    "key": key.as_str(),
                    "message": fault["message"],
                    "outcome": fault["outcome"],
                    "status": fault["status"],
                    "success": false,
                });
                Answer { exit, is_fault: true, text: screen::line(&text).into_owned(), json }
            }
        }
    }

    fn unknown(&self, fault: Fault, key: &Key, id: i32, quantity: i32) -> Answer {
        let error = Error::OutcomeUnknown(fault);
        let command = self.command_again(key, id, quantity);
        let text = format!(
            "it is not known whether book {id} was bought: {}\n\
             the purchase has the key {}; this asks for its outcome and buys nothing twice:\n    {command}",
            fault_text(&error, &self.address),
            screen::line(key.as_str()),
        );
        let fault = fault_json(&error, &text);
        let json = json!({
            "command": command,
            "key": key.as_str(),
            "message": text,
            "outcome": fault["outcome"],
            "status": fault["status"],
            "success": false,
        });
        Answer { exit: Exit::Unknown, is_fault: true, text, json }
    }

    /// Complete command line that repeats the purchase.
    fn command_again(&self, key: &Key, id: i32, quantity: i32) -> String {
        let (id, quantity, flags) = (id.to_string(), quantity.to_string(), self.connection.flags());
        let words =
            [["--key", key.as_str()].as_slice(), &flags.iter().map(String::as_str).collect::<Vec<_>>()].concat();
        let words = words.into_iter().chain([self.address.as_str(), "buy", &id]);
        let words = words.chain((quantity != "1").then_some(quantity.as_str()));
        format!("{} {}", self.program, quoted(words))
    }
}

fn bought_answer(purchase: &Purchase) -> Answer {
    let number = purchase.entry_number;
    let success = matches!(purchase.outcome, Outcome::Bought { .. });
    let json = json!({
        "key": purchase.key.as_str(),
        "message": purchase.message,
        "outcome": purchase.named.as_str_name(),
        "purchase_number": number,
        "replayed": purchase.is_replay,
        "stock_left": purchase.stock_left,
        "success": success,
    });
    let numbered = if success { format!(" (purchase {number})") } else { String::new() };
    let replayed = if purchase.is_replay { "; this key was sent before, nothing was bought again" } else { "" };
    Answer::of(success, format!("{}{numbered}{replayed}", screen::line(&purchase.message)), json)
}

fn book_json(book: &Book) -> Value {
    json!({
        "id": book.id,
        "price_cents": book.price.0,
        "stock": book.stock,
        "title": book.title,
        "topic": book.topic,
    })
}

fn book_table(books: &[Book]) -> String {
    let row = |book: &Book| {
        [book.id.to_string(), book.title.clone(), book.topic.clone(), book.stock.to_string(), book.price.to_string()]
    };
    let heads = [("id", true), ("title", false), ("topic", false), ("stock", true), ("price", true)];
    table::render(heads, books.iter().map(row))
}
