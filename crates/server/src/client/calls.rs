//! The calls behind the shopper's commands. A purchase carries a key, so that sending it again buys nothing twice.

use std::{
    cell::RefCell,
    rc::Rc,
    time::{Duration, Instant},
};

use bookstore::{
    Cents, IdempotencyKey,
    grpc::wire::{
        self, BookListReply, BookTopicRequest, BuyBookReply, BuyOutcome, HelloRequest, ItemNumberRequest,
        ListTopicsRequest, book_store_client::BookStoreClient,
    },
};
use quire_rpc::{Code, Request, Status, Streaming, client::Channel};
use rand_core::{OsRng, RngCore as _};
use serde_json::{Value, json};

use super::{
    attempts::{Failed, Kind, Retries, ask, judge},
    command::Call,
    connection,
    seen::Seen,
};
use crate::{cli::ClientArgs, exit::Exit, screen, table};

/// A read's longest time if none is said.
const READ_TIMEOUT: Duration = Duration::from_secs(5);
/// The timeout of a purchase. Each of its four attempts is longer than the 5 s that the server waits for a locked file.
const PURCHASE_TIMEOUT: Duration = Duration::from_secs(30);

/// Someone waits at the prompt for what this is spent on.
const LEARNING_TIMEOUT: Duration = Duration::from_secs(1);

/// A connection to a server.
pub(super) struct Calls {
    channel: Channel,
    shop: BookStoreClient,
    address: String,
    read: Retries,
    purchase: Retries,
    key: Option<IdempotencyKey>,
    /// Flags that reach the same server again.
    flags: Vec<String>,
    seen: Rc<RefCell<Seen>>,
}

/// What came of a command, as text and as JSON.
pub(super) struct Answer {
    pub exit: Exit,
    /// It is no answer of the store's.
    pub is_fault: bool,
    pub text: String,
    pub json: Value,
}

impl Calls {
    /// Connects with the first call. Needs a runtime around it.
    pub(super) fn new(
        args: &ClientArgs,
        address: &str,
        key: Option<IdempotencyKey>,
        seen: Rc<RefCell<Seen>>,
    ) -> anyhow::Result<Self> {
        let connection = &args.connection;
        let purchase = Retries::new(connection, PURCHASE_TIMEOUT);
        let channel = connection::open(connection, address, purchase.connect_timeout(Kind::Keyed))?;
        Ok(Self {
            shop: BookStoreClient::new(channel.clone()),
            channel,
            address: address.to_owned(),
            read: Retries::new(connection, READ_TIMEOUT),
            purchase,
            key,
            flags: connection::flags(connection),
            seen,
        })
    }

    pub(super) async fn run(&self, call: &Call) -> Answer {
        let done = match call {
            Call::Ping => self.ping().await,
            Call::Topics(near) => self.topics(near).await,
            Call::Search(topic) => self.search(topic).await,
            Call::Lookup(id) => self.lookup(id.get()).await,
            Call::Buy(id, quantity) => return self.buy(id.get(), *quantity).await,
        };
        done.unwrap_or_else(|failed| Answer {
            exit: failed.exit,
            is_fault: true,
            text: failed.message(&self.address),
            json: failed.json(&self.address),
        })
    }

    async fn ping(&self) -> Result<Answer, Failed> {
        let start = Instant::now();
        let request = HelloRequest { name: "quire client".to_owned() };
        let reply =
            ask(&self.channel, self.read, Kind::Read, |time| self.shop.hello(within(time, request.clone()))).await?;
        let took_ms = start.elapsed().as_secs_f64() * 1e3;
        let json = json!({ "success": true, "message": reply.hello_message, "ms": took_ms });
        Ok(Answer {
            exit: Exit::Done,
            is_fault: false,
            text: format!("{} ({took_ms:.2} ms)", screen::line(&reply.hello_message)),
            json,
        })
    }

    async fn search(&self, topic: &str) -> Result<Answer, Failed> {
        let reply = self.whole_topic(topic).await?;
        let near = if reply.books.is_empty() { self.near(topic).await } else { Vec::new() };
        self.seen.borrow_mut().books(&reply.books);
        let books: Vec<Value> = reply.books.iter().map(book_json).collect();
        let mut json = json!({ "success": reply.success, "message": reply.message, "books": books });
        let mut text =
            if reply.books.is_empty() { screen::line(&reply.message).into() } else { book_table(&reply.books) };
        if !near.is_empty() {
            let named: Vec<String> = near.iter().map(|topic| format!("'{}'", screen::line(topic))).collect();
            text = format!("{text}; near it: {}", named.join(", "));
            json["near"] = near.into();
        }
        Ok(Answer { exit: exit(reply.success), is_fault: false, text, json })
    }

    /// As a stream, because a topic may be larger than a message; from a server that knows no streams, in one message.
    async fn whole_topic(&self, topic: &str) -> Result<BookListReply, Failed> {
        let request = BookTopicRequest { topic: topic.to_owned(), ..BookTopicRequest::default() };
        let streamed =
            ask(&self.channel, self.read, Kind::Read, |time| self.shop.search_stream(within(time, request.clone())));
        let found = match streamed.await {
            Ok(mut parts) => match gathered(&mut parts).await {
                Ok(whole) => return Ok(whole),
                Err(status) => Failed { exit: judge(Kind::Read, &status), status },
            },
            Err(failed) => failed,
        };
        if found.status.code() != Code::Unimplemented {
            return Err(found);
        }
        ask(&self.channel, self.read, Kind::Read, |time| self.shop.search(within(time, request.clone()))).await
    }

    /// Topics near one that has no books; none from a server that cannot say.
    async fn near(&self, topic: &str) -> Vec<String> {
        let request = ListTopicsRequest { near: topic.to_owned(), ..ListTopicsRequest::default() };
        let reply =
            ask(&self.channel, self.read, Kind::Read, |time| self.shop.list_topics(within(time, request.clone())))
                .await;
        reply.map_or_else(|_| Vec::new(), |reply| reply.topics.into_iter().map(|topic| topic.name).collect())
    }

    async fn topics(&self, near: &str) -> Result<Answer, Failed> {
        let mut topics = Vec::new();
        let mut page_token = String::new();
        loop {
            let request = ListTopicsRequest { page_token, near: near.to_owned(), ..ListTopicsRequest::default() };
            let page =
                ask(&self.channel, self.read, Kind::Read, |time| self.shop.list_topics(within(time, request.clone())))
                    .await?;
            topics.extend(page.topics);
            page_token = page.next_page_token;
            if page_token.is_empty() {
                break;
            }
        }
        for topic in &topics {
            self.seen.borrow_mut().topic(&topic.name);
        }
        let listed: Vec<Value> =
            topics.iter().map(|topic| json!({ "name": topic.name, "books": topic.books })).collect();
        let text = match (topics.as_slice(), near) {
            ([], "") => "there are no topics".to_owned(),
            ([], near) => format!("no topic is near '{}'", screen::line(near)),
            (topics, _) => table::topics(topics.iter().map(|topic| (topic.name.clone(), topic.books.to_string()))),
        };
        Ok(Answer { exit: Exit::Done, is_fault: false, text, json: json!({ "success": true, "topics": listed }) })
    }

    /// Asks for topics once, for completion: the first page of them, if it comes soon.
    pub(super) async fn learn_topics(&self) {
        if !self.seen.borrow_mut().begin_topics() {
            return;
        }
        let call = async || self.shop.list_topics(within(LEARNING_TIMEOUT, ListTopicsRequest::default())).await;
        if let Ok(page) = call().await {
            page.into_inner().topics.iter().for_each(|topic| self.seen.borrow_mut().topic(&topic.name));
        }
    }

    async fn lookup(&self, id: i32) -> Result<Answer, Failed> {
        let request = ItemNumberRequest { id, ..ItemNumberRequest::default() };
        let reply =
            ask(&self.channel, self.read, Kind::Read, |time| self.shop.lookup(within(time, request.clone()))).await?;
        self.seen.borrow_mut().books(reply.book.as_slice());
        let json =
            json!({ "success": reply.success, "message": reply.message, "book": reply.book.as_ref().map(book_json) });
        let text = reply.book.map_or_else(|| screen::line(&reply.message).into(), |book| book_table(&[book]));
        Ok(Answer { exit: exit(reply.success), is_fault: false, text, json })
    }

    async fn buy(&self, id: i32, quantity: i32) -> Answer {
        let key = self.key.map_or_else(random_key, |key| key.as_bytes().to_vec());
        let request = ItemNumberRequest { id, quantity: Some(quantity), idempotency_key: key.clone() };
        // Given as text, or made of digits.
        let key = String::from_utf8_lossy(&key).into_owned();
        let reply =
            ask(&self.channel, self.purchase, Kind::Keyed, |time| self.shop.buy(within(time, request.clone()))).await;
        match reply {
            Ok(reply) => bought(&reply, &key),
            Err(failed) => self.not_bought(&failed, &key, id, quantity),
        }
    }

    fn not_bought(&self, failed: &Failed, key: &str, id: i32, quantity: i32) -> Answer {
        let (mut text, mut json) = (failed.message(&self.address), failed.json(&self.address));
        json["key"] = key.into();
        if failed.exit == Exit::Unknown {
            let again = self.command_again(key, id, quantity);
            text = format!(
                "it is not known whether book {id} was bought: {text}\n\
                 the purchase has the key {key}; this asks for its outcome and buys nothing twice:\n    {again}"
            );
            json["message"] = text.as_str().into();
            json["command"] = again.into();
        }
        Answer { exit: failed.exit, is_fault: true, text, json }
    }

    /// The whole command line that sends the same purchase again.
    fn command_again(&self, key: &str, id: i32, quantity: i32) -> String {
        let (id, quantity) = (id.to_string(), quantity.to_string());
        let before = ["quire", "client", "--key", key].into_iter().chain(self.flags.iter().map(String::as_str));
        let after =
            [self.address.as_str(), "buy", &id].into_iter().chain((quantity != "1").then_some(quantity.as_str()));
        connection::quoted(before.chain(after))
    }
}

/// The parts of a topic in one.
async fn gathered(parts: &mut Streaming<BookListReply>) -> Result<BookListReply, Status> {
    let mut whole = BookListReply { success: true, ..BookListReply::default() };
    while let Some(part) = parts.message().await? {
        (whole.success, whole.message) = (part.success, part.message);
        whole.books.extend(part.books);
    }
    Ok(whole)
}

fn bought(reply: &BuyBookReply, key: &str) -> Answer {
    let outcome = BuyOutcome::try_from(reply.outcome).unwrap_or_default();
    let json = json!({
        "success": reply.success,
        "message": reply.message,
        "outcome": outcome.as_str_name(),
        "key": key,
        "purchase_number": reply.purchase_number,
        "stock_left": reply.stock_left,
        "replayed": reply.replayed,
    });
    let number = if reply.success { format!(" (purchase {})", reply.purchase_number) } else { String::new() };
    let replayed = if reply.replayed { "; this key was sent before, nothing was bought again" } else { "" };
    let text = format!("{}{number}{replayed}", screen::line(&reply.message));
    Answer { exit: exit(reply.success), is_fault: false, text, json }
}

/// 128 random bits as text that can be typed again.
fn random_key() -> Vec<u8> {
    format!("{:016x}{:016x}", OsRng.next_u64(), OsRng.next_u64()).into_bytes()
}

fn within<Q>(time: Duration, message: Q) -> Request<Q> {
    let mut request = Request::new(message);
    request.set_timeout(time);
    request
}

fn exit(success: bool) -> Exit {
    if success { Exit::Done } else { Exit::Refused }
}

fn price(book: &wire::Book) -> String {
    // A server that does not know cents sends the fraction alone.
    match Cents::new(book.price_cents).filter(|cents| cents.get() != 0) {
        Some(cents) => cents.to_string(),
        None => format!("{:.2}", book.price),
    }
}

fn book_json(book: &wire::Book) -> Value {
    json!({
        "id": book.id,
        "title": book.title,
        "topic": book.topic,
        "stock": book.stock,
        "price": book.price,
        "price_cents": book.price_cents,
    })
}

fn book_table(books: &[wire::Book]) -> String {
    let rows = books
        .iter()
        .map(|book| [book.id.to_string(), book.title.clone(), book.topic.clone(), book.stock.to_string(), price(book)]);
    table::render([("id", true), ("title", false), ("topic", false), ("stock", true), ("price", true)], rows)
}
