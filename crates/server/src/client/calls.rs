//! The calls behind the commands, with a deadline and retries. A purchase carries a key, so that sending it
//! again buys nothing twice.

use std::time::{Duration, Instant};

use anyhow::bail;
use bookstore::{
    Cents, IdempotencyKey,
    grpc::wire::{
        self, BookTopicRequest, BuyOutcome, HelloRequest, ItemNumberRequest, book_store_client::BookStoreClient,
    },
};
use grpc::{
    Code, Request, Response, Status,
    client::{Channel, RetryPolicy, Settings},
};
use rand_core::{OsRng, RngCore as _};
use serde_json::{Value, json};

use super::command::Call;
use crate::{address::Target, cli::ClientArgs, config::ports, table, transport::tls};

/// The pause before the first retry; it doubles from there.
const FIRST_PAUSE: Duration = Duration::from_millis(100);

/// A connection to a server.
pub(super) struct Calls {
    shop: BookStoreClient,
    address: String,
    timeout: Duration,
    key: Option<IdempotencyKey>,
}

/// What the server answered.
pub(super) struct Answer {
    pub success: bool,
    pub text: String,
    pub json: Value,
}

/// A command without an answer.
#[derive(Debug)]
pub(super) struct Failed {
    pub unreachable: bool,
    pub code: String,
    pub message: String,
}

impl Calls {
    /// Connects with the first call. Needs a runtime around it.
    pub(super) fn new(args: &ClientArgs, address: &str, key: Option<IdempotencyKey>) -> anyhow::Result<Self> {
        let timeout = args.timeout;
        let retry = RetryPolicy {
            attempts_max: args.retries.saturating_add(1),
            backoff_first: FIRST_PAUSE,
            codes: vec![Code::Unavailable, Code::ResourceExhausted, Code::Unknown],
            ..RetryPolicy::default()
        };
        let settings = Settings {
            connect_timeout: timeout,
            // A topic may have any number of books.
            message_bytes_max: usize::MAX,
            retry: Some(retry),
            ..Settings::default()
        };
        let target = Target::parse(address, ports::MAIN)?;
        let mut channel = Channel::builder(&target.url())?.settings(settings);
        if target.tls {
            let Some(ca) = &args.ca else {
                bail!("{address} speaks TLS: name the certificates to trust with --ca FILE")
            };
            let own = args.certificate.as_deref().zip(args.key_file.as_deref());
            channel = channel.tls(tls::client(ca, own)?)?;
        }
        let channel = channel.connect_lazy()?;
        Ok(Self { shop: BookStoreClient::new(channel), address: address.to_owned(), timeout, key })
    }

    pub(super) async fn run(&mut self, call: &Call) -> Result<Answer, Failed> {
        match call {
            Call::Ping => self.ping().await,
            Call::Search(topic) => self.search(topic).await,
            Call::Lookup(id) => self.lookup(id.get()).await,
            Call::Buy(id, quantity) => self.buy(id.get(), *quantity).await,
        }
    }

    async fn ping(&mut self) -> Result<Answer, Failed> {
        let start = Instant::now();
        let request = HelloRequest { name: "quire client".to_owned() };
        let reply = self.answer(self.shop.hello(self.request(request)).await)?;
        let took_ms = start.elapsed().as_secs_f64() * 1e3;
        let json = json!({ "success": true, "message": reply.hello_message, "ms": took_ms });
        Ok(Answer { success: true, text: format!("{} ({took_ms:.2} ms)", reply.hello_message), json })
    }

    async fn search(&mut self, topic: &str) -> Result<Answer, Failed> {
        let request = BookTopicRequest { topic: topic.to_owned(), ..BookTopicRequest::default() };
        let reply = self.answer(self.shop.search(self.request(request)).await)?;
        let books: Vec<Value> = reply.books.iter().map(book_json).collect();
        let json = json!({ "success": reply.success, "message": reply.message, "books": books });
        let text = if reply.books.is_empty() { reply.message } else { book_table(&reply.books) };
        Ok(Answer { success: reply.success, text, json })
    }

    async fn lookup(&mut self, id: i32) -> Result<Answer, Failed> {
        let request = ItemNumberRequest { id, ..ItemNumberRequest::default() };
        let reply = self.answer(self.shop.lookup(self.request(request)).await)?;
        let json =
            json!({ "success": reply.success, "message": reply.message, "book": reply.book.as_ref().map(book_json) });
        let text = reply.book.map_or(reply.message, |book| book_table(&[book]));
        Ok(Answer { success: reply.success, text, json })
    }

    async fn buy(&mut self, id: i32, quantity: i32) -> Result<Answer, Failed> {
        let mut key = [0; 16];
        OsRng.fill_bytes(&mut key);
        let idempotency_key = self.key.as_ref().map_or(key.to_vec(), |key| key.as_bytes().to_vec());
        let request = ItemNumberRequest { id, quantity: Some(quantity), idempotency_key };
        let reply = self.answer(self.shop.buy(self.request(request)).await)?;
        let outcome = BuyOutcome::try_from(reply.outcome).unwrap_or_default();
        let json = json!({
            "success": reply.success,
            "message": reply.message,
            "outcome": outcome.as_str_name(),
            "purchase_number": reply.purchase_number,
            "stock_left": reply.stock_left,
            "replayed": reply.replayed,
        });
        let number = if reply.success { format!(" (purchase {})", reply.purchase_number) } else { String::new() };
        Ok(Answer { success: reply.success, text: format!("{}{number}", reply.message), json })
    }

    /// As the command's flags say: within its time, and as often as it may.
    fn request<Q>(&self, message: Q) -> Request<Q> {
        let mut request = Request::new(message);
        request.set_timeout(self.timeout);
        // Reads change nothing, and purchases carry a key.
        request.set_safe_to_retry(true);
        request
    }

    fn answer<A>(&self, answered: Result<Response<A>, Status>) -> Result<A, Failed> {
        answered.map(Response::into_inner).map_err(|status| self.failed(&status))
    }

    fn failed(&self, status: &Status) -> Failed {
        let unreachable = matches!(status.code(), Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled);
        let code = format!("{:?}", status.code());
        let message = if unreachable {
            let reason = status.message();
            format!("{} cannot be reached: {reason}; is a server running there?", self.address)
        } else {
            status.message().to_owned()
        };
        Failed { unreachable, code, message }
    }
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
