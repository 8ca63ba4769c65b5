//! `bookstore.Admin`: calls for operators, with a credential where others could reach it.

use std::{pin::Pin, time::Duration};

use futures_util::{Stream, StreamExt as _, stream};
use quire_rpc::{Code, Request, Response, Status, Streaming};
use tokio::time::timeout;

use super::wire::{
    AddBookReply, AddBookRequest, Book, ChangedBook, EditBookReply, EditBookRequest, ImportReply, ImportRequest,
    ListReply, ListRequest, LogEntry, LogEntryKind, LogReply, LogRequest, RefusedRow, RestockReply, RestockRequest,
    SalesBy, SalesReply, SalesRequest, SalesRow, TailLogRequest, UpdatePriceReply, UpdatePriceRequest,
    admin_server::Admin,
};
use super::{shop::no_such_book, token::page_size};
use crate::{
    Bookstore, IdempotencyKey,
    bookstore::Tail,
    catalogue::Books,
    domain::{
        self, Actor, Addition, BookId, Day, Draft, Edit, Edited, Entry, EntryKind, LogFilter, NewBook, RESTOCK_DEFAULT,
        Raised, Sales, SalesQuery, Sold,
    },
    exchange::{BadRow, Report},
    fault::{Fault, done_up_to},
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
        let page = self.store.list_all(after.transpose()?, page_size(request.page_size)?).await?;
        let next_page_token = page.next.map(|id| id.to_string()).unwrap_or_default();
        Ok(Response::new(ListReply { books: books(&page.items), next_page_token }))
    }

    async fn restock(&self, request: Request<RestockRequest>) -> Result<Response<RestockReply>, Status> {
        let actor = Actor::from(&request.client());
        let RestockRequest { amount, id } = request.into_inner();
        let amount = amount.unwrap_or(RESTOCK_DEFAULT.cast_signed());
        let reply = RestockReply { amount, success: true, ..RestockReply::default() };
        let Some(id) = id else {
            let done = self.store.restock(amount.into(), actor).await?;
            let books_raised = i64::try_from(done.books_raised).unwrap_or(i64::MAX);
            return Ok(Response::new(RestockReply { books_raised, ..reply }));
        };
        let id = BookId::from_wire(id)?;
        Ok(Response::new(match self.store.restock_book(id, amount.into(), actor).await? {
            None => RestockReply { success: false, message: no_such_book(id.get()), ..reply },
            Some(Raised { number, before, after }) => RestockReply {
                books_raised: number.is_some().into(),
                message: format!("book {id} has {after} copies"),
                stock_before: Some(before.cast_signed()),
                stock_after: Some(after.cast_signed()),
                number: number.unwrap_or_default(),
                ..reply
            },
        }))
    }

    async fn update_price(&self, request: Request<UpdatePriceRequest>) -> Result<Response<UpdatePriceReply>, Status> {
        let actor = Actor::from(&request.client());
        let request = request.into_inner();
        let id = BookId::from_wire(request.id)?;
        let cents =
            request.price_cents.ok_or_else(|| Fault::invalid("price_cents", "absent", "the new price in cents"))?;
        let reply = match self.store.update_price(id, cents, actor).await? {
            None => UpdatePriceReply { message: no_such_book(id.get()), ..UpdatePriceReply::default() },
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
        let before = token(&request.page_token)?.unwrap_or(i64::MAX);
        if before < 1 {
            return Err(bad_token(&request.page_token).into());
        }
        let (size, kinds) = (page_size(request.page_size)?, kinds(&request.kinds)?);
        let LogRequest { from_ms, to_ms, book_id, .. } = request;
        let filter = LogFilter { from_ms, to_ms, book: book_id.map(BookId::from_wire).transpose()?, kinds };
        let page = if filter == LogFilter::default() {
            self.store.log(Page::Before(before), size).await?
        } else {
            self.store.find_log(before, filter, size).await?
        };
        let next_page_token = page.next.map(|number| number.to_string()).unwrap_or_default();
        Ok(Response::new(LogReply { entries: page.items.into_iter().map(Into::into).collect(), next_page_token }))
    }

    async fn add_book(&self, request: Request<AddBookRequest>) -> Result<Response<AddBookReply>, Status> {
        let actor = Actor::from(&request.client());
        let AddBookRequest { id, title, topic, stock, price_cents } = request.into_inner();
        let draft = Draft { id, title, topic, stock: stock.into(), price_cents };
        Ok(Response::new(match self.store.add_book(draft, actor).await? {
            Addition::Added(book, number) => AddBookReply {
                success: true,
                message: format!("added book {}", book.id),
                book: Some((&book).into()),
                number,
            },
            Addition::Taken(book) => AddBookReply {
                message: format!("there is a book {} already", book.id),
                book: Some((&book).into()),
                ..AddBookReply::default()
            },
        }))
    }

    async fn edit_book(&self, request: Request<EditBookRequest>) -> Result<Response<EditBookReply>, Status> {
        let actor = Actor::from(&request.client());
        let EditBookRequest { id, title, topic, price_cents, listed } = request.into_inner();
        let id = BookId::from_wire(id)?;
        let edit = Edit { title, topic, price_cents, listed };
        Ok(Response::new(match self.store.edit_book(id, edit, actor).await? {
            None => EditBookReply { message: no_such_book(id.get()), ..EditBookReply::default() },
            Some(Edited { before, after, number }) => EditBookReply {
                success: true,
                message: if number.is_some() {
                    format!("changed book {id}")
                } else {
                    format!("book {id} is so already")
                },
                before: Some((&before).into()),
                after: Some((&after).into()),
                number: number.unwrap_or_default(),
            },
        }))
    }

    async fn import(&self, request: Request<Streaming<ImportRequest>>) -> Result<Response<ImportReply>, Status> {
        let client = request.client();
        let actor = Actor::from(&client);
        let mut chunks = request.into_inner();
        let first = soon(chunks.message()).await?.unwrap_or_default();
        let import = self.store.begin_import(first.apply.then_some(actor), client)?;
        let mut is_wanted = import.send(first.csv).await;
        while is_wanted {
            match soon(chunks.message()).await {
                Ok(Some(chunk)) => is_wanted = import.send(chunk.csv).await,
                Ok(None) => break,
                Err(status) => {
                    let done = import.break_off().await.map(|line| format!("; {}", done_up_to(line)));
                    let text = format!("{}{}", status.message(), done.unwrap_or_default());
                    return Err(Status::new(status.code(), text));
                }
            }
        }
        Ok(Response::new(import.finish().await?.into()))
    }

    type SalesStream = Pin<Box<dyn Stream<Item = Result<SalesReply, Status>> + Send>>;

    async fn sales(&self, request: Request<SalesRequest>) -> Result<Response<Self::SalesStream>, Status> {
        let client = request.client();
        let request = request.into_inner();
        let by = match request.by() {
            SalesBy::Unspecified | SalesBy::Day => domain::SalesBy::Day,
            SalesBy::Book => domain::SalesBy::Book,
            SalesBy::DayAndBook => domain::SalesBy::DayAndBook,
        };
        let book = request.book_id.map(BookId::from_wire).transpose()?;
        let query = SalesQuery { from_ms: request.from_ms, to_ms: request.to_ms, by, book };
        let Sales { rows, total } = self.store.sales(query, client).await?;
        let total = SalesReply { rows: Vec::new(), total: Some(sales_row(None, None, None, &total)) };
        let mut rows = rows.into_iter();
        let messages = std::iter::from_fn(move || {
            let rows: Vec<SalesRow> = rows.by_ref().take(SALES_AT_ONCE).map(Into::into).collect();
            (!rows.is_empty()).then_some(SalesReply { rows, total: None })
        });
        Ok(Response::new(Box::pin(stream::iter(std::iter::once(total).chain(messages).map(Ok)))))
    }

    type TailLogStream = Pin<Box<dyn Stream<Item = Result<LogEntry, Status>> + Send>>;

    async fn tail_log(&self, request: Request<TailLogRequest>) -> Result<Response<Self::TailLogStream>, Status> {
        let client = request.client();
        let tail = self.store.tail(request.into_inner().after_number, client)?;
        Ok(Response::new(Box::pin(entries(tail))))
    }
}

/// Rows in a message of [`AdminService::sales`].
const SALES_AT_ONCE: usize = 1000;

/// The kinds of a filter.
fn kinds(wanted: &[i32]) -> Result<Vec<EntryKind>, Fault> {
    let kind = |number: &i32| {
        let kind = usize::try_from(number - 1).ok().and_then(|index| EntryKind::ALL.get(index));
        kind.copied()
            .ok_or_else(|| Fault::invalid("kinds", number, format!("kinds from 1 to {}", EntryKind::ALL.len())))
    };
    let mut kinds = wanted.iter().map(kind).collect::<Result<Vec<_>, _>>()?;
    kinds.sort_unstable();
    kinds.dedup();
    Ok(kinds)
}

/// Longest wait for the next part of an imported file.
const NEXT_PART: Duration = Duration::from_secs(30);

/// The next part of a file, if it comes in time.
async fn soon<T>(part: impl Future<Output = Result<T, Status>>) -> Result<T, Status> {
    let late = || {
        let text = format!("no further part of the file came for {} s", NEXT_PART.as_secs());
        Status::new(Code::DeadlineExceeded, text)
    };
    timeout(NEXT_PART, part).await.map_err(|_| late())?
}

fn sales_row(day: Option<Day>, book: Option<BookId>, title: Option<&str>, sold: &Sold) -> SalesRow {
    let number = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
    SalesRow {
        day: day.map(|day| day.to_string()).unwrap_or_default(),
        book_id: book.map_or(0, BookId::get),
        title: title.unwrap_or_default().to_owned(),
        purchases: number(sold.purchases),
        copies: number(sold.copies),
        cents: sold.cents,
        copies_unpriced: number(sold.copies_unpriced),
    }
}

impl From<domain::SalesRow> for SalesRow {
    fn from(row: domain::SalesRow) -> Self {
        sales_row(row.day, row.book, row.title.as_deref(), &row.sold)
    }
}

impl From<Report> for ImportReply {
    fn from(report: Report) -> Self {
        let number = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
        let refused =
            |row: BadRow| RefusedRow { line: number(row.line), column: row.column.to_owned(), reason: row.reason };
        let changed = |(before, after): (NewBook, NewBook)| ChangedBook {
            before: Some((&before).into()),
            after: Some((&after).into()),
        };
        Self {
            added: number(report.added),
            changed: number(report.changed),
            unchanged: number(report.unchanged),
            refused: number(report.refused),
            refused_rows: report.bad.into_iter().map(refused).collect(),
            changes: report.changes.into_iter().map(changed).collect(),
        }
    }
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
            EntryKind::Delisted => LogEntryKind::Delisted,
            EntryKind::Listed => LogEntryKind::Listed,
            EntryKind::Reserved => LogEntryKind::Reserved,
            EntryKind::Released => LogEntryKind::Released,
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
            actor: entry.actor.map(|actor| actor.as_str().to_owned()).unwrap_or_default(),
            until_ms: entry.until_ms,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use quire_rpc::Code;

    use super::{kinds, soon};
    use crate::domain::EntryKind;

    #[tokio::test(start_paused = true)]
    async fn a_file_whose_next_part_does_not_come_is_given_up() {
        let late = soon(pending::<Result<(), _>>()).await.unwrap_err();
        assert_eq!(late.code(), Code::DeadlineExceeded);
        assert!(soon(async { Ok(()) }).await.is_ok());
    }

    #[test]
    fn each_kind_of_a_filter_counts_once() {
        assert_eq!(kinds(&[2, 1].repeat(2000)).unwrap(), [EntryKind::ALL[0], EntryKind::ALL[1]]);
        kinds(&[0]).unwrap_err();
    }
}
