//! Calls of the shopper's commands, and their answers as text and JSON.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeSet,
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use quire_rpc::Status;
use quire_terminal::{pager, screen, shell::CANDIDATES_MAX, table};
use serde_json::{Value, json};

use super::{
    command::Command,
    connection::Connection,
    fault::{Exit, complain, fault_json, fault_text, quoted},
};
use crate::{
    Book, Client, Error, Fault, Key, Order, Outcome, Purchase, Reservation, Reserved,
    wire::bookstore::ListTopicsRequest,
};

/// Time limit of a command that only reads.
const READ_TIMEOUT: Duration = Duration::from_secs(5);
/// Short, as the user waits at the prompt.
const LEARNING_TIMEOUT: Duration = Duration::from_secs(1);
/// Maximum number of words for completion.
const KNOWN_MAX: usize = 20_000;

/// A connection to a server, with the state of its commands.
pub(super) struct Calls {
    program: &'static str,
    client: Client,
    connection: Connection,
    address: String,
    key: Option<Key>,
    /// Ids and topics of answers.
    known: RefCell<BTreeSet<String>>,
    has_asked_topics: Cell<bool>,
    is_interrupted: Cell<bool>,
}

/// Result of a command, as text safe for a terminal, and as JSON.
pub(super) struct Answer {
    exit: Exit,
    /// True if it is not an answer of the store's.
    is_fault: bool,
    text: String,
    json: Value,
}

/// A call whose outcome may be unknown, as text.
struct Doubt {
    /// In doubt, as in "book 7 was bought".
    what: String,
    noun: &'static str,
    /// As in "buys nothing twice".
    verb: &'static str,
    /// The key, unless the command has it as an argument.
    flags: Vec<String>,
    /// The command and its arguments.
    words: Vec<String>,
}

impl Answer {
    fn of(success: bool, text: String, json: Value) -> Self {
        Self { exit: if success { Exit::Done } else { Exit::Refused }, is_fault: false, text, json }
    }

    fn fault(error: &Error, text: &str) -> Self {
        let json = fault_json(error, text);
        Self { exit: Exit::from(error), is_fault: true, text: screen::line(text).into_owned(), json }
    }

    pub(super) fn show(&self, as_json: bool) -> Exit {
        match (as_json, self.is_fault) {
            (true, _) => pager::print(&screen::json(&self.json)),
            (false, false) => pager::print(&self.text),
            (false, true) => complain(&self.text),
        }
        self.exit
    }
}

impl Calls {
    /// Creates the calls, which connect on first use. Needs a surrounding runtime; an error is a usage error.
    pub(super) fn new(
        program: &'static str,
        connection: Connection,
        key: Option<Key>,
        address: &str,
    ) -> Result<Self, Error> {
        let (client, address) = (connection.client(address)?, address.to_owned());
        let (known, has_asked_topics, is_interrupted) = Default::default();
        Ok(Self { program, client, connection, address, key, known, has_asked_topics, is_interrupted })
    }

    /// True if Ctrl-C ended a call since the last time this was read.
    pub(super) fn was_interrupted(&self) -> bool {
        self.is_interrupted.take()
    }

    pub(super) fn is_json(&self) -> bool {
        self.connection.json
    }

    /// Runs a command that needs the server; all calls of one that only reads share its time limit.
    pub(super) async fn run(&self, command: &Command) -> Answer {
        let deadline = tokio::time::Instant::now() + self.connection.timeout.unwrap_or(READ_TIMEOUT);
        let client = self.client.with_deadline(deadline);
        let call = async {
            match command {
                Command::Buy { id, quantity } => Ok(self.buy(*id, *quantity).await),
                Command::Reserve { id, quantity, seconds } => Ok(self.reserve(*id, *quantity, *seconds).await),
                Command::Confirm { key } => Ok(self.settle(key, true).await),
                Command::Release { key } => Ok(self.settle(key, false).await),
                Command::Receipt { number, key } => receipt(&client, *number, key).await,
                Command::Topics { text } => self.topics(&client, &text.join(" ")).await,
                Command::Search { topic } => self.search(&client, &topic.join(" ")).await,
                Command::Lookup { id } => self.lookup(&client, *id).await,
                Command::Ping | Command::Help | Command::Exit => ping(&client).await,
            }
        };
        let interrupted = || Err(Error::Unreachable(interrupted()));
        let done = match command {
            Command::Buy { .. } | Command::Reserve { .. } | Command::Confirm { .. } | Command::Release { .. } => {
                call.await
            }
            _ => self.unless_interrupted(call).await.unwrap_or_else(interrupted),
        };
        done.unwrap_or_else(|error| Answer::fault(&error, &fault_text(&error, &self.address)))
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
        let listed: Vec<Value> = books.iter().map(book_json).collect();
        let mut json = json!({ "books": listed, "message": message, "success": success });
        if !books.is_empty() {
            self.learn(books.iter().flat_map(|book| [book.id.to_string(), book.topic.clone()]));
            return Ok(Answer::of(success, book_table(&books), json));
        }
        let mut text = screen::line(&message).into_owned();
        // A failure of this call counts as no similar topics.
        let near = client.topics_near(topic).await.unwrap_or_default();
        if !near.is_empty() {
            let names: Vec<&str> = near.iter().map(|topic| topic.name.as_str()).collect();
            let quoted: Vec<String> = names.iter().map(|name| format!("'{}'", screen::line(name))).collect();
            text = format!("{text}; near it: {}", quoted.join(", "));
            json["near"] = names.into();
        }
        Ok(Answer::of(success, text, json))
    }

    async fn topics(&self, client: &Client, near: &str) -> Result<Answer, Error> {
        let topics = if near.is_empty() { client.topics().all().await? } else { client.topics_near(near).await? };
        self.learn(topics.iter().map(|topic| topic.name.clone()));
        let listed: Vec<Value> =
            topics.iter().map(|topic| json!({ "books": topic.books, "name": topic.name })).collect();
        let text = match (topics.is_empty(), near) {
            (true, "") => "there are no topics".to_owned(),
            (true, near) => format!("no topic is near '{}'", screen::line(near)),
            (false, _) => table::topics(topics.into_iter().map(|topic| (topic.name, topic.books.to_string()))),
        };
        Ok(Answer::of(true, text, json!({ "success": true, "topics": listed })))
    }

    async fn lookup(&self, client: &Client, id: i32) -> Result<Answer, Error> {
        let reply = client.lookup_reply(id).await?;
        let book = reply.book.map(Book::from);
        self.learn(book.iter().map(|book| book.id.to_string()));
        let json = json!({ "book": book.as_ref().map(book_json), "message": reply.message, "success": reply.success });
        let text = book.map_or_else(|| screen::line(&reply.message).into(), |book| book_table(&[book]));
        Ok(Answer::of(reply.success, text, json))
    }

    async fn buy(&self, id: i32, quantity: i32) -> Answer {
        let key = self.key.clone().unwrap_or_else(Key::random);
        let in_doubt = AtomicBool::new(false);
        let order = Order::of(id).quantity(quantity).key(key.clone());
        let call = async {
            match self.client.buy_noting(order, &in_doubt).await? {
                Purchase { outcome: Outcome::Unknown(fault), .. } => Err(Error::OutcomeUnknown(fault)),
                purchase => Ok(bought(&purchase)),
            }
        };
        let mut words = vec!["buy".to_owned(), id.to_string()];
        words.extend((quantity != 1).then(|| quantity.to_string()));
        let doubt = Doubt {
            what: format!("book {id} was bought"),
            noun: "purchase",
            verb: "buys",
            flags: flagged(&key),
            words,
        };
        self.once(call, &in_doubt, &key, doubt).await
    }

    async fn reserve(&self, id: i32, quantity: i32, seconds: Option<u64>) -> Answer {
        let key = self.key.clone().unwrap_or_else(Key::random);
        let in_doubt = AtomicBool::new(false);
        let order = Order::of(id).quantity(quantity).key(key.clone());
        let time = seconds.map(Duration::from_secs);
        let call = async { reserved(&self.client.reserve_noting(order, time, &in_doubt).await?) };
        let mut words = vec!["reserve".to_owned(), id.to_string()];
        words.extend((quantity != 1 || seconds.is_some()).then(|| quantity.to_string()));
        words.extend(seconds.map(|seconds| seconds.to_string()));
        let doubt = Doubt {
            what: format!("book {id} was reserved"),
            noun: "reservation",
            verb: "reserves",
            flags: flagged(&key),
            words,
        };
        self.once(call, &in_doubt, &key, doubt).await
    }

    /// Confirms or releases a reservation.
    async fn settle(&self, key: &Key, is_bought: bool) -> Answer {
        let in_doubt = AtomicBool::new(false);
        let call = async { reserved(&self.client.settle_noting(key, is_bought, &in_doubt).await?) };
        let (command, verb) = if is_bought { ("confirm", "buys") } else { ("release", "releases") };
        let what = format!("the reservation was {command}{}", if is_bought { "ed" } else { "d" });
        let words = vec![command.to_owned(), key.as_str().to_owned()];
        self.once(call, &in_doubt, key, Doubt { what, noun: "reservation", verb, flags: Vec::new(), words }).await
    }

    /// Answer to a call that its key makes happen once; if its outcome is unknown, with the command that repeats it.
    async fn once(
        &self,
        call: impl Future<Output = Result<Answer, Error>>,
        in_doubt: &AtomicBool,
        key: &Key,
        doubt: Doubt,
    ) -> Answer {
        let error = match self.unless_interrupted(call).await {
            Some(Ok(answer)) => return answer,
            Some(Err(error)) => error,
            None if in_doubt.load(Ordering::Relaxed) => Error::OutcomeUnknown(interrupted()),
            None => Error::Unreachable(interrupted()),
        };
        let text = fault_text(&error, &self.address);
        let mut answer = Answer::fault(&error, &text);
        if answer.exit == Exit::Unknown {
            let command = self.command_again(&doubt.flags, &doubt.words);
            let Doubt { what, noun, verb, .. } = doubt;
            answer.text = format!(
                "it is not known whether {what}: {}\n\
                 the {noun} has the key {}; this asks for its outcome and {verb} nothing twice:\n    {command}",
                answer.text,
                screen::line(key.as_str()),
            );
            answer.json["message"] = answer.text.as_str().into();
            answer.json["command"] = command.into();
        }
        answer.json["key"] = key.as_str().into();
        answer
    }

    /// Complete command line that repeats `words`, with these flags before those of the connection.
    fn command_again(&self, flags: &[String], words: &[String]) -> String {
        let (connection, address) = (self.connection.flags(), [self.address.clone()]);
        let all = [flags, &connection, &address, words].concat();
        format!("{} {}", self.program, quoted(all.iter().map(String::as_str)))
    }

    /// Completions of `typed` as the argument of a command. Topics are fetched once.
    pub(super) async fn complete(&self, command: &str, typed: &str) -> Vec<String> {
        let wants_id = matches!(command, "lookup" | "buy" | "reserve");
        if !wants_id && !matches!(command, "search" | "topics") {
            return Vec::new();
        }
        if !wants_id && !self.has_asked_topics.replace(true) {
            let client = self.client.with_timeout(LEARNING_TIMEOUT).with_retries(0);
            let page = client.topics_page(ListTopicsRequest::default()).await.unwrap_or_default();
            self.learn(page.topics.into_iter().map(|topic| topic.name));
        }
        let known = self.known.borrow();
        let fitting = known.range(typed.to_owned()..).take_while(|word| word.starts_with(typed));
        let fitting = fitting.filter(|word| word.parse::<i32>().is_ok() == wants_id);
        fitting.take(CANDIDATES_MAX).cloned().collect()
    }

    fn learn(&self, words: impl Iterator<Item = String>) {
        let mut known = self.known.borrow_mut();
        let room = KNOWN_MAX.saturating_sub(known.len());
        known.extend(words.take(room));
    }
}

fn flagged(key: &Key) -> Vec<String> {
    vec!["--key".to_owned(), key.as_str().to_owned()]
}

fn interrupted() -> Fault {
    Fault::new(&Status::cancelled(""), true)
}

async fn ping(client: &Client) -> Result<Answer, Error> {
    let start = Instant::now();
    let message = client.ping().await?;
    let took = start.elapsed();
    let text = format!("{} ({:.2} ms)", screen::line(&message), took.as_secs_f64() * 1e3);
    let microseconds = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
    Ok(Answer::of(true, text, json!({ "message": message, "microseconds": microseconds, "success": true })))
}

fn bought(purchase: &Purchase) -> Answer {
    let success = matches!(purchase.outcome, Outcome::Bought { .. });
    let json = json!({
        "key": purchase.key.as_str(),
        "message": purchase.message,
        "outcome": purchase.named.as_str_name(),
        "purchase_number": purchase.entry_number,
        "replayed": purchase.is_replay,
        "stock_left": purchase.stock_left,
        "success": success,
    });
    let numbered = if success { format!(" (purchase {})", purchase.entry_number) } else { String::new() };
    let replayed = if purchase.is_replay { "; this key was sent before, nothing was bought again" } else { "" };
    Answer::of(success, format!("{}{numbered}{replayed}", screen::line(&purchase.message)), json)
}

fn reserved(reservation: &Reservation) -> Result<Answer, Error> {
    if let Reserved::Unknown(fault) = &reservation.outcome {
        return Err(Error::OutcomeUnknown(fault.clone()));
    }
    let key = reservation.key.as_str();
    let json = json!({
        "id": reservation.id,
        "key": key,
        "message": reservation.message,
        "number": reservation.number,
        "outcome": reservation.named.as_str_name(),
        "quantity": reservation.quantity,
        "replayed": reservation.is_replay,
        "stock_left": reservation.stock_left,
        "success": reservation.success,
        "until_ms": reservation.until_ms,
    });
    let held =
        if reservation.outcome == Reserved::Held { format!(" (key {})", screen::line(key)) } else { String::new() };
    let is_repeated = reservation.is_replay && reservation.outcome != Reserved::Expired;
    let replayed = if is_repeated { "; an earlier call did it" } else { "" };
    Ok(Answer::of(reservation.success, format!("{}{held}{replayed}", screen::line(&reservation.message)), json))
}

async fn receipt(client: &Client, number: i64, key: &Key) -> Result<Answer, Error> {
    let reply = client.receipt_reply(number, key).await?;
    let (receipt, log_key) = reply.success.then_some((&reply.receipt, &reply.log_key)).unzip();
    let json = json!({ "log_key": log_key, "message": reply.message, "receipt": receipt, "success": reply.success });
    let text = receipt.map_or_else(|| screen::line(&reply.message).into(), |text| screen::lines(text.trim_end()));
    Ok(Answer::of(reply.success, text, json))
}

fn book_json(book: &Book) -> Value {
    json!({
        "held": book.held,
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
