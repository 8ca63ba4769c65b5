//! Calls of operators.

use std::sync::Arc;

use quire_rpc::Streaming;

use crate::{
    attempts::{READ, WATCH, WRITE, ask, within},
    client::{Client, next},
    error::Error,
    items::Items,
    store::{Book, Cents, check_id},
    wire::bookstore::{ListRequest, LogEntry, LogRequest, RestockRequest, TailLogRequest, UpdatePriceRequest},
};

/// Interface for operators, from [`Client::operator`].
#[derive(Clone, Debug)]
pub struct Operator {
    client: Client,
}

impl Client {
    /// Interface for operators, over the same connections.
    pub fn operator(&self, token: &str) -> Result<Operator, Error> {
        let lanes = Arc::new(self.lanes.with_token(token)?);
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
        let client = self.client.clone();
        Items::of_pages(String::new(), move |page_token| {
            let client = client.clone();
            async move {
                let request = ListRequest { page_size: client.page_size()?, page_token };
                let page =
                    ask(&client.lanes, &client.terms, READ, |lane, by| lane.admin.list(within(request.clone(), by)))
                        .await?;
                Ok((page.books.into_iter().map(Book::from).collect(), next(page.next_page_token)))
            }
        })
    }

    /// Restocks every book with fewer copies to `amount`, 20 by default. Returns the number of restocked books.
    pub async fn restock(&self, amount: impl Into<Option<i32>>) -> Result<i64, Error> {
        let request = RestockRequest { amount: amount.into(), id: None };
        let Client { lanes, terms, .. } = &self.client;
        Ok(ask(lanes, terms, WRITE, |lane, by| lane.admin.restock(within(request, by))).await?.books_raised)
    }

    /// Changes a book's price; none if there is no such book.
    pub async fn update_price(&self, id: i32, price: Cents) -> Result<Option<PriceChange>, Error> {
        check_id(id)?;
        let request = UpdatePriceRequest { id, price_cents: Some(price.0) };
        let Client { lanes, terms, .. } = &self.client;
        let reply = ask(lanes, terms, WRITE, |lane, by| lane.admin.update_price(within(request, by))).await?;
        Ok(reply.success.then_some(PriceChange {
            before: Cents(reply.price_cents_before),
            after: Cents(reply.price_cents_after),
            number: reply.number,
        }))
    }

    /// The transaction log, newest first.
    pub fn log(&self) -> Items<LogEntry> {
        let client = self.client.clone();
        Items::of_pages(String::new(), move |page_token| {
            let client = client.clone();
            async move {
                let request = LogRequest { page_size: client.page_size()?, page_token, ..LogRequest::default() };
                let page =
                    ask(&client.lanes, &client.terms, READ, |lane, by| lane.admin.log(within(request.clone(), by)))
                        .await?;
                Ok((page.entries, next(page.next_page_token)))
            }
        })
    }

    /// The growing transaction log, oldest first: entries after `after`, or from now on.
    pub async fn tail_log(&self, after: impl Into<Option<i64>>) -> Result<Items<LogEntry>, Error> {
        let request = TailLogRequest { after_number: after.into() };
        let Client { lanes, terms, .. } = &self.client;
        let entries: Streaming<_> =
            ask(lanes, terms, WATCH, |lane, by| lane.admin.tail_log(within(request, by))).await?;
        Ok(Items::of_stream(entries, |entry| entry))
    }
}
