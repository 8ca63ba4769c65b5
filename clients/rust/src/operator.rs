//! Calls of operators.

use std::sync::Arc;

use bytes::Bytes;
use futures_core::Stream;
use futures_util::stream;
use quire_rpc::Streaming;

use crate::{
    attempts::{READ, WATCH, WRITE, within},
    client::{Client, next},
    error::Error,
    items::Items,
    store::{Book, Cents, check_id},
    wire::{
        bookstore::{
            AddBookReply, AddBookRequest, EditBookReply, EditBookRequest, ImportReply, ImportRequest, ListRequest,
            LogEntry, LogRequest, RestockReply, RestockRequest, SalesReply, SalesRequest, TailLogRequest,
            UpdatePriceRequest,
        },
        quire::{
            BackupChunk, BackupRequest, CutConnectionReply, CutConnectionRequest, ListConnectionsReply,
            ListConnectionsRequest, ReloadReply, ReloadRequest,
        },
    },
};

/// Interface for operators, from [`Client::operator`].
#[derive(Clone, Debug)]
pub struct Operator {
    client: Client,
}

impl Client {
    /// Interface for operators, over the same connections; `None` for a client that sends a token already, or needs
    /// none.
    pub fn operator<'a>(&self, token: impl Into<Option<&'a str>>) -> Result<Operator, Error> {
        let lanes = match token.into() {
            Some(token) => Arc::new(self.lanes.with_token(token)?),
            None => Arc::clone(&self.lanes),
        };
        Ok(Operator { client: Self { lanes, ..self.clone() } })
    }
}

/// A price before and after a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PriceChange {
    /// The price before.
    pub before: Cents,
    /// The price now.
    pub after: Cents,
    /// The change's number in the transaction log.
    pub number: i64,
}

impl Operator {
    /// All books, ordered by id.
    pub fn list(&self) -> Items<Book> {
        self.list_from(String::new())
    }

    /// Books with higher ids than this one, ordered by id.
    pub fn list_after(&self, id: i32) -> Items<Book> {
        self.list_from(if id > 0 { id.to_string() } else { String::new() })
    }

    fn list_from(&self, page_token: String) -> Items<Book> {
        let client = self.client.clone();
        Items::of_pages(page_token, move |page_token| {
            let client = client.clone();
            async move {
                let request = ListRequest { page_size: client.page_size()?, page_token };
                let page = client.ask(READ, |lane, by| lane.admin.list(within(request.clone(), by))).await?;
                Ok((page.books.into_iter().map(Book::from).collect(), next(page.next_page_token)))
            }
        })
    }

    /// Restocks every book with fewer copies to `amount`, 20 by default. Returns the number of restocked books.
    pub async fn restock(&self, amount: impl Into<Option<i32>>) -> Result<i64, Error> {
        let request = RestockRequest { amount: amount.into(), id: None };
        Ok(self.client.ask(WRITE, |lane, by| lane.admin.restock(within(request, by))).await?.books_raised)
    }

    /// Restocks one book with fewer copies to `amount`, 20 by default.
    pub async fn restock_book(&self, id: i32, amount: impl Into<Option<i32>>) -> Result<RestockReply, Error> {
        check_id(id)?;
        let request = RestockRequest { amount: amount.into(), id: Some(id) };
        self.client.ask(WRITE, |lane, by| lane.admin.restock(within(request, by))).await
    }

    /// Adds a book.
    pub async fn add_book(&self, book: AddBookRequest) -> Result<AddBookReply, Error> {
        self.client.ask(WRITE, |lane, by| lane.admin.add_book(within(book.clone(), by))).await
    }

    /// Changes a book; what is absent stays as it is.
    pub async fn edit_book(&self, edit: EditBookRequest) -> Result<EditBookReply, Error> {
        check_id(edit.id)?;
        self.client.ask(WRITE, |lane, by| lane.admin.edit_book(within(edit.clone(), by))).await
    }

    /// Compares a CSV file with the catalogue; with `apply` adds and changes books accordingly.
    pub async fn import(&self, csv: Bytes, apply: bool) -> Result<ImportReply, Error> {
        let plan = if apply { WRITE } else { READ };
        self.client.ask(plan, |lane, by| lane.admin.import(within(pieces(csv.clone(), apply), by))).await
    }

    /// Sales as chosen, and their sum.
    pub async fn sales(&self, request: SalesRequest) -> Result<Items<SalesReply>, Error> {
        let rows: Streaming<_> = self.client.ask(READ, |lane, by| lane.admin.sales(within(request, by))).await?;
        Ok(Items::of_stream(self.client.lanes.address(), rows, |reply| reply))
    }

    /// Changes a book's price; none if there is no such book.
    pub async fn update_price(&self, id: i32, price: Cents) -> Result<Option<PriceChange>, Error> {
        check_id(id)?;
        let request = UpdatePriceRequest { id, price_cents: Some(price.0) };
        let reply = self.client.ask(WRITE, |lane, by| lane.admin.update_price(within(request, by))).await?;
        Ok(reply.success.then_some(PriceChange {
            before: Cents(reply.price_cents_before),
            after: Cents(reply.price_cents_after),
            number: reply.number,
        }))
    }

    /// The transaction log, newest first.
    pub fn log(&self) -> Items<LogEntry> {
        self.log_of(LogRequest::default())
    }

    /// Chosen entries of the transaction log, newest first.
    pub fn log_of(&self, filter: LogRequest) -> Items<LogEntry> {
        let client = self.client.clone();
        Items::of_pages(String::new(), move |page_token| {
            let (client, filter) = (client.clone(), filter.clone());
            async move {
                let request = LogRequest { page_size: client.page_size()?, page_token, ..filter };
                let page = client.ask(READ, |lane, by| lane.admin.log(within(request.clone(), by))).await?;
                Ok((page.entries, next(page.next_page_token)))
            }
        })
    }

    /// The growing transaction log, oldest first: entries after `after`, or from now on.
    pub async fn tail_log(&self, after: impl Into<Option<i64>>) -> Result<Items<LogEntry>, Error> {
        let request = TailLogRequest { after_number: after.into() };
        let entries: Streaming<_> = self.client.ask(WATCH, |lane, by| lane.admin.tail_log(within(request, by))).await?;
        Ok(Items::of_stream(self.client.lanes.address(), entries, |entry| entry))
    }

    /// The open connections, at most `most` of them, those that moved most bytes first.
    pub async fn connections(&self, most: u32) -> Result<ListConnectionsReply, Error> {
        let request = ListConnectionsRequest { page_size: most };
        self.client.ask(READ, |lane, by| lane.operator.list_connections(within(request, by))).await
    }

    /// Ends a connection with its calls.
    pub async fn cut_connection(&self, id: u64) -> Result<CutConnectionReply, Error> {
        let request = CutConnectionRequest { id };
        self.client.ask(WRITE, |lane, by| lane.operator.cut_connection(within(request, by))).await
    }

    /// Has the server read its settings and files again.
    pub async fn reload(&self) -> Result<ReloadReply, Error> {
        self.client.ask(WRITE, |lane, by| lane.operator.reload(within(ReloadRequest {}, by))).await
    }

    /// A backup of the server's data folder, made now; complete only if its last piece is marked as the last.
    pub async fn backup(&self) -> Result<Items<BackupChunk>, Error> {
        let pieces: Streaming<_> =
            self.client.ask(WATCH, |lane, by| lane.operator.backup(within(BackupRequest {}, by))).await?;
        Ok(Items::of_stream(self.client.lanes.address(), pieces, |piece| piece))
    }
}

/// Bytes of a file in one message.
const PIECE_BYTES: usize = 64 * 1024;

/// The messages of an import; an empty file is one, too.
fn pieces(csv: Bytes, apply: bool) -> impl Stream<Item = ImportRequest> + Send {
    let starts = (0..csv.len().max(1)).step_by(PIECE_BYTES);
    stream::iter(starts.map(move |start| {
        let piece = csv.slice(start..csv.len().min(start + PIECE_BYTES));
        ImportRequest { apply, csv: piece }
    }))
}
