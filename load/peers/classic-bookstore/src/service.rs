//! The contract's two services over the store. Calls that use the store run on threads that may block.

use std::sync::Arc;

use tonic::{Request, Response, Status, codegen::BoxStream};

use crate::{
    store::{self, Entry, Kind, Purchase, Store},
    wire::{
        AddBookReply, AddBookRequest, Book, BookInfoReply, BookListReply, BookTopicRequest, BuyBookReply, BuyOutcome,
        EditBookReply, EditBookRequest, HelloReply, HelloRequest, ImportReply, ImportRequest, ItemNumberRequest,
        ListReply, ListRequest, ListTopicsReply, ListTopicsRequest, LogEntry, LogEntryKind, LogReply, LogRequest,
        ReceiptReply, ReceiptRequest, ReservationReply, ReservationRequest, ReserveRequest, RestockReply,
        RestockRequest, SalesReply, SalesRequest, TailLogRequest, UpdatePriceReply, UpdatePriceRequest,
        admin_server::Admin, book_store_server::BookStore,
    },
};

/// Default and maximum number of items in a page.
const PAGE_SIZE: i32 = 1000;
/// Default number of copies after a restock.
const RESTOCK: i32 = 20;

/// Serves a store.
#[derive(Clone, Debug)]
pub struct Service(pub Arc<Store>);

impl Service {
    async fn ask<T: Send + 'static>(
        &self,
        ask: impl FnOnce(&Store) -> anyhow::Result<T> + Send + 'static,
    ) -> Result<T, Status> {
        let store = Arc::clone(&self.0);
        let asked = tokio::task::spawn_blocking(move || ask(&store)).await;
        asked.map_err(|error| Status::internal(error.to_string()))?.map_err(|error| Status::internal(error.to_string()))
    }
}

impl From<store::Book> for Book {
    fn from(book: store::Book) -> Self {
        let store::Book { id, title, topic, stock, price_cents } = book;
        Self { id, title, topic, stock, price: price_cents as f64 / 100.0, price_cents, delisted: false, held: 0 }
    }
}

fn no_such_book(id: i32) -> String {
    format!("there is no book {id}")
}

fn page_size(size: i32) -> Result<i32, Status> {
    match size {
        0 => Ok(PAGE_SIZE),
        1.. => Ok(size.min(PAGE_SIZE)),
        _ => Err(Status::invalid_argument("page_size must not be negative")),
    }
}

fn token<T: std::str::FromStr>(token: &str) -> Result<Option<T>, Status> {
    if token.is_empty() {
        return Ok(None);
    }
    token.parse().map(Some).map_err(|_| Status::invalid_argument("page_token must be that of the page before"))
}

#[tonic::async_trait]
impl BookStore for Service {
    async fn hello(&self, request: Request<HelloRequest>) -> Result<Response<HelloReply>, Status> {
        Ok(Response::new(HelloReply { hello_message: format!("Hello {}!", request.into_inner().name) }))
    }

    async fn search(&self, request: Request<BookTopicRequest>) -> Result<Response<BookListReply>, Status> {
        let topic = request.into_inner().topic;
        let books = self.ask(move |store| store.search(&topic)).await?;
        let books = books.into_iter().map(Book::from).collect();
        Ok(Response::new(BookListReply { success: true, books, ..BookListReply::default() }))
    }

    type SearchStreamStream = BoxStream<BookListReply>;

    async fn search_stream(&self, _: Request<BookTopicRequest>) -> Result<Response<Self::SearchStreamStream>, Status> {
        Err(Status::unimplemented("the classic design answers a search in one message"))
    }

    async fn list_topics(&self, _: Request<ListTopicsRequest>) -> Result<Response<ListTopicsReply>, Status> {
        Err(Status::unimplemented("the classic design does not list topics"))
    }

    async fn receipt(&self, _: Request<ReceiptRequest>) -> Result<Response<ReceiptReply>, Status> {
        Err(Status::unimplemented("the classic design has no tree over its log"))
    }

    async fn reserve(&self, _: Request<ReserveRequest>) -> Result<Response<ReservationReply>, Status> {
        Err(Status::unimplemented("the classic design has no reservations"))
    }

    async fn confirm(&self, _: Request<ReservationRequest>) -> Result<Response<ReservationReply>, Status> {
        Err(Status::unimplemented("the classic design has no reservations"))
    }

    async fn release(&self, _: Request<ReservationRequest>) -> Result<Response<ReservationReply>, Status> {
        Err(Status::unimplemented("the classic design has no reservations"))
    }

    async fn lookup(&self, request: Request<ItemNumberRequest>) -> Result<Response<BookInfoReply>, Status> {
        let id = request.into_inner().id;
        let book = self.ask(move |store| store.lookup(id)).await?.map(Book::from);
        let message = if book.is_some() { String::new() } else { no_such_book(id) };
        Ok(Response::new(BookInfoReply { success: book.is_some(), message, book }))
    }

    async fn buy(&self, request: Request<ItemNumberRequest>) -> Result<Response<BuyBookReply>, Status> {
        let request = request.into_inner();
        let (id, quantity) = (request.id, request.quantity.unwrap_or(1));
        if quantity < 1 {
            return Err(Status::invalid_argument("quantity must be at least 1"));
        }
        let mut reply = BuyBookReply::default();
        let outcome = match self.ask(move |store| store.buy(id, quantity)).await? {
            Purchase::Bought { stock_left, number } => {
                reply.success = true;
                reply.message = format!("bought book {id}");
                (reply.stock_left, reply.purchase_number) = (Some(stock_left), number);
                BuyOutcome::Bought
            }
            Purchase::TooFew { stock_left: 0 } => {
                reply.message = format!("book {id} is sold out");
                reply.stock_left = Some(0);
                BuyOutcome::SoldOut
            }
            Purchase::TooFew { stock_left } => {
                reply.message = format!("only {stock_left} copies of book {id} are left");
                reply.stock_left = Some(stock_left);
                BuyOutcome::TooFew
            }
            Purchase::NoSuchBook => {
                reply.message = no_such_book(id);
                BuyOutcome::NoSuchBook
            }
        };
        reply.set_outcome(outcome);
        Ok(Response::new(reply))
    }
}

#[tonic::async_trait]
impl Admin for Service {
    async fn list(&self, request: Request<ListRequest>) -> Result<Response<ListReply>, Status> {
        let request = request.into_inner();
        let (after, size) = (token(&request.page_token)?.unwrap_or(0), page_size(request.page_size)?);
        let books = self.ask(move |store| store.list(after, size.into())).await?;
        let full = usize::try_from(size).is_ok_and(|size| books.len() == size);
        let next_page_token = books.last().filter(|_| full).map(|book| book.id.to_string()).unwrap_or_default();
        Ok(Response::new(ListReply { books: books.into_iter().map(Book::from).collect(), next_page_token }))
    }

    async fn restock(&self, request: Request<RestockRequest>) -> Result<Response<RestockReply>, Status> {
        let RestockRequest { amount, id } = request.into_inner();
        if id.is_some() {
            return Err(Status::unimplemented("one book cannot be restocked here; leave out the id to restock all"));
        }
        let amount = amount.unwrap_or(RESTOCK);
        let raised = self.ask(move |store| store.restock(amount)).await?;
        let books_raised = i64::try_from(raised).unwrap_or(i64::MAX);
        Ok(Response::new(RestockReply { books_raised, amount, success: true, ..RestockReply::default() }))
    }

    async fn update_price(&self, request: Request<UpdatePriceRequest>) -> Result<Response<UpdatePriceReply>, Status> {
        let request = request.into_inner();
        let absent = || Status::invalid_argument("price_cents is absent; it must be the new price in cents");
        let (id, cents) = (request.id, request.price_cents.ok_or_else(absent)?);
        let reply = match self.ask(move |store| store.update_price(id, cents)).await? {
            None => UpdatePriceReply { message: no_such_book(id), ..UpdatePriceReply::default() },
            Some((before, number)) => UpdatePriceReply {
                success: true,
                message: format!("book {id} has a new price"),
                price_cents_before: before,
                price_cents_after: cents,
                number,
            },
        };
        Ok(Response::new(reply))
    }

    async fn log(&self, request: Request<LogRequest>) -> Result<Response<LogReply>, Status> {
        let request = request.into_inner();
        let before = token(&request.page_token)?.unwrap_or(i64::MAX);
        let size = usize::try_from(page_size(request.page_size)?).unwrap_or(0);
        let entries = self.0.log(before, size);
        let last = entries.last().map(|(number, _)| *number);
        let next_page_token = last.filter(|number| *number > 1).map(|number| number.to_string()).unwrap_or_default();
        Ok(Response::new(LogReply { entries: entries.into_iter().map(log_entry).collect(), next_page_token }))
    }

    async fn add_book(&self, _: Request<AddBookRequest>) -> Result<Response<AddBookReply>, Status> {
        Err(not_here())
    }

    async fn edit_book(&self, _: Request<EditBookRequest>) -> Result<Response<EditBookReply>, Status> {
        Err(not_here())
    }

    async fn import(&self, _: Request<tonic::Streaming<ImportRequest>>) -> Result<Response<ImportReply>, Status> {
        Err(not_here())
    }

    type SalesStream = BoxStream<SalesReply>;

    async fn sales(&self, _: Request<SalesRequest>) -> Result<Response<Self::SalesStream>, Status> {
        Err(not_here())
    }

    type TailLogStream = BoxStream<LogEntry>;

    async fn tail_log(&self, _: Request<TailLogRequest>) -> Result<Response<Self::TailLogStream>, Status> {
        Err(Status::unimplemented("the log cannot be followed here; ask for Log"))
    }
}

fn not_here() -> Status {
    Status::unimplemented("this server sells, restocks and changes prices alone")
}

fn log_entry((number, entry): (i64, Entry)) -> LogEntry {
    let (kind, quantity) = match entry.kind {
        Kind::Purchase { quantity } => (LogEntryKind::Purchase, Some(quantity)),
        Kind::Restock => (LogEntryKind::Restock, None),
        Kind::Price => (LogEntryKind::Price, None),
    };
    LogEntry {
        number,
        time_ms: entry.time_ms,
        kind: kind.into(),
        book_id: entry.book,
        quantity,
        until_ms: None,
        before: Some(entry.before),
        after: Some(entry.after),
        idempotency_key: Vec::new(),
        actor: String::new(),
    }
}
