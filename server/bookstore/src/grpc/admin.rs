//! `bookstore.Admin`: calls for operators, with a credential where others could reach it.

use std::pin::Pin;

use futures_util::{Stream, StreamExt as _, stream};
use quire_rpc::{Request, Response, Status, Streaming};

use super::token::page_size;
use super::wire::{
    AddBookReply, AddBookRequest, Book, EditBookReply, EditBookRequest, ImportReply, ImportRequest, ListReply,
    ListRequest, LogEntry, LogEntryKind, LogReply, LogRequest, RestockReply, RestockRequest, SalesReply, SalesRequest,
    TailLogRequest, UpdatePriceReply, UpdatePriceRequest, admin_server::Admin,
};
use crate::{
    Bookstore, IdempotencyKey,
    bookstore::Tail,
    catalogue::Books,
    domain::{BookId, Entry, EntryKind, RESTOCK_DEFAULT},
    fault::Fault,
    store::Page,
};

/// The service for a store's operators.
#[derive(Clone, Debug)]
pub struct AdminService {
    store: Bookstore,
}

impl AdminService {
    /// Serves `store`; the server authorizes callers.
    pub fn new(store: Bookstore) -> Self {
        Self { store }
    }
}

impl Admin for AdminService {
    async fn list(&self, request: Request<ListRequest>) -> Result<Response<ListReply>, Status> {
        let request = request.into_inner();
        let after =
            token(&request.page_token)?.map(BookId::new).map(|id| id.ok_or_else(|| bad_token(&request.page_token)));
        let page = self.store.list(after.transpose()?, page_size(request.page_size)?).await?;
        let next_page_token = page.next.map(|id| id.to_string()).unwrap_or_default();
        Ok(Response::new(ListReply { books: books(&page.items), next_page_token }))
    }

    async fn restock(&self, request: Request<RestockRequest>) -> Result<Response<RestockReply>, Status> {
        let RestockRequest { amount, id } = request.into_inner();
        if id.is_some() {
            return Err(not_yet());
        }
        let amount = amount.unwrap_or(RESTOCK_DEFAULT.cast_signed());
        let done = self.store.restock(amount.into()).await?;
        let books_raised = i64::try_from(done.books_raised).unwrap_or(i64::MAX);
        Ok(Response::new(RestockReply { books_raised, amount, success: true, ..RestockReply::default() }))
    }

    async fn update_price(&self, request: Request<UpdatePriceRequest>) -> Result<Response<UpdatePriceReply>, Status> {
        let request = request.into_inner();
        let id = BookId::from_wire(request.id)?;
        let cents =
            request.price_cents.ok_or_else(|| Fault::invalid("price_cents", "absent", "the new price in cents"))?;
        let reply = match self.store.update_price(id, cents).await? {
            None => UpdatePriceReply { message: super::shop::no_such_book(id.get()), ..UpdatePriceReply::default() },
            Some(change) => UpdatePriceReply {
                success: true,
                message: format!("book {id} costs {} now", change.after),
                price_cents_before: change.before.get(),
                price_cents_after: change.after.get(),
                number: change.number,
            },
        };
        Ok(Response::new(reply))
    }

    async fn log(&self, request: Request<LogRequest>) -> Result<Response<LogReply>, Status> {
        let request = request.into_inner();
        if request.from_ms.is_some()
            || request.to_ms.is_some()
            || request.book_id.is_some()
            || !request.kinds.is_empty()
        {
            return Err(not_yet());
        }
        let before = token(&request.page_token)?.unwrap_or(i64::MAX);
        if before < 1 {
            return Err(bad_token(&request.page_token).into());
        }
        let page = self.store.log(Page::Before(before), page_size(request.page_size)?).await?;
        let next_page_token = page.next.map(|number| number.to_string()).unwrap_or_default();
        Ok(Response::new(LogReply { entries: page.items.into_iter().map(Into::into).collect(), next_page_token }))
    }

    async fn add_book(&self, _: Request<AddBookRequest>) -> Result<Response<AddBookReply>, Status> {
        Err(not_yet())
    }

    async fn edit_book(&self, _: Request<EditBookRequest>) -> Result<Response<EditBookReply>, Status> {
        Err(not_yet())
    }

    async fn import(&self, _: Request<Streaming<ImportRequest>>) -> Result<Response<ImportReply>, Status> {
        Err(not_yet())
    }

    type SalesStream = Pin<Box<dyn Stream<Item = Result<SalesReply, Status>> + Send>>;

    async fn sales(&self, _: Request<SalesRequest>) -> Result<Response<Self::SalesStream>, Status> {
        Err(not_yet())
    }

    type TailLogStream = Pin<Box<dyn Stream<Item = Result<LogEntry, Status>> + Send>>;

    async fn tail_log(&self, request: Request<TailLogRequest>) -> Result<Response<Self::TailLogStream>, Status> {
        let client = request.client();
        let tail = self.store.tail(request.into_inner().after_number, client)?;
        Ok(Response::new(Box::pin(entries(tail))))
    }
}

fn not_yet() -> Status {
    Status::unimplemented("this server does not have this action yet; use a newer one")
}

fn entries(tail: Tail) -> impl Stream<Item = Result<LogEntry, Status>> {
    let pages = stream::unfold(tail, |mut tail| async move { Some((tail.next().await?, tail)) });
    pages.flat_map(|page| {
        stream::iter(match page {
            Ok(entries) => entries.into_iter().map(|entry| Ok(entry.into())).collect(),
            Err(fault) => vec![Err(fault.into())],
        })
    })
}

fn books(books: &Books) -> Vec<Book> {
    books.iter().map(|book| (&**book).into()).collect()
}

fn bad_token(token: &str) -> Fault {
    Fault::invalid("page_token", token, "empty, or next_page_token of the page before")
}

fn token<T: std::str::FromStr>(token: &str) -> Result<Option<T>, Fault> {
    if token.is_empty() { Ok(None) } else { token.parse().map(Some).map_err(|_| bad_token(token)) }
}

impl From<Entry> for LogEntry {
    fn from(entry: Entry) -> Self {
        let kind = match entry.kind {
            EntryKind::Added => LogEntryKind::Added,
            EntryKind::Purchase => LogEntryKind::Purchase,
            EntryKind::Refused => LogEntryKind::Refused,
            EntryKind::Restock => LogEntryKind::Restock,
            EntryKind::Price => LogEntryKind::Price,
            EntryKind::Adjusted => LogEntryKind::Adjusted,
            EntryKind::Removed => LogEntryKind::Removed,
            EntryKind::Edited => LogEntryKind::Edited,
        };
        Self {
            number: entry.number,
            time_ms: entry.time_ms,
            kind: kind.into(),
            book_id: entry.book.get(),
            quantity: entry.quantity.map(u32::cast_signed),
            before: entry.before,
            after: entry.after,
            idempotency_key: entry.key.as_ref().map(IdempotencyKey::as_bytes).unwrap_or_default().to_vec(),
            actor: String::new(),
        }
    }
}
