//! The client, and the calls of shoppers.

use std::{
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

use quire_rpc::{Response, Status};
use tokio::time::Instant;

use crate::{
    attempts::{PURCHASE, Plan, READ, Terms, ask_noting, within},
    error::{Error, Fault},
    items::Items,
    key::Key,
    lanes::{Lane, Lanes},
    purchase::{Order, Purchase, Receipt},
    store::{Book, check_id},
    wire::bookstore::{
        BookInfoReply, BookListReply, BookTopicRequest, HelloRequest, ItemNumberRequest, ListTopicsReply,
        ListTopicsRequest, ReceiptReply, ReceiptRequest, Topic,
    },
};

/// The client's name in greetings.
const NAME: &str = "quire client";
/// Default page size of searches: without one a topic is sent whole, in one message.
const SEARCH_PAGE_SIZE: i32 = 1000;
/// Longest field of a trace that is sent.
const TRACE_BYTES_MAX: usize = 512;

/// A client of Quire. Clones share the connections and can be used concurrently, from any task.
#[derive(Clone, Debug)]
pub struct Client {
    pub(crate) lanes: Arc<Lanes>,
    pub(crate) terms: Terms,
    /// In the form of requests; 0 for the server's default.
    pub(crate) page_size: Result<i32, u32>,
}

impl Client {
    pub(crate) fn new(lanes: Lanes, terms: Terms) -> Self {
        Self { lanes: Arc::new(lanes), terms, page_size: Ok(0) }
    }

    /// Returns a clone whose calls have this time limit, including retries and pauses. By default reads and writes have
    /// 5 s, purchases 30 s, and watches no limit. For paged items, the limit applies to each page.
    #[must_use]
    pub fn with_timeout(&self, timeout: Duration) -> Self {
        Self { terms: Terms { timeout: Some(timeout), ..self.terms }, ..self.clone() }
    }

    /// Returns a clone whose calls all end at this time.
    #[must_use]
    pub fn with_deadline(&self, deadline: Instant) -> Self {
        Self { terms: Terms { deadline: Some(deadline), ..self.terms }, ..self.clone() }
    }

    /// Returns a clone with this number of retries; 3 by default. A purchase in doubt is sent until its deadline,
    /// unless this is 0.
    #[must_use]
    pub fn with_retries(&self, retries: u32) -> Self {
        Self { terms: Terms { retries, ..self.terms }, ..self.clone() }
    }

    /// Returns a clone that requests pages of at most this many items; by default the server chooses, and searches use
    /// 1,000 books.
    #[must_use]
    pub fn with_page_size(&self, items: u32) -> Self {
        let size = i32::try_from(items).ok().filter(|size| *size > 0);
        Self { page_size: size.ok_or(items), ..self.clone() }
    }

    /// Returns a clone whose calls belong to a trace: the headers of W3C's Trace Context. Either is left out unless it
    /// is 1 to 512 bytes of printable ASCII without blanks around it, and a `tracestate` without a `traceparent`.
    #[must_use]
    pub fn with_trace(&self, traceparent: &str, tracestate: &str) -> Self {
        let is_sendable = |field: &str| {
            let is_printable = field.bytes().all(|byte| (b' '..=b'~').contains(&byte));
            field.len() <= TRACE_BYTES_MAX && is_printable && field.trim_ascii() == field
        };
        let parent = if is_sendable(traceparent) { traceparent } else { "" };
        let state = if !parent.is_empty() && is_sendable(tracestate) { tracestate } else { "" };
        let lanes = self.lanes.with([("traceparent", parent), ("tracestate", state)]);
        Self { lanes: Arc::new(lanes), ..self.clone() }
    }

    /// The server's greeting: a cheap check that it answers.
    pub async fn ping(&self) -> Result<String, Error> {
        let request = HelloRequest { name: NAME.to_owned() };
        let reply = self.ask(READ, |lane, by| lane.store.hello(within(request.clone(), by))).await?;
        Ok(reply.hello_message)
    }

    /// Books of a topic, matched exactly, ordered by id.
    pub fn search(&self, topic: &str) -> Items<Book> {
        let (client, topic) = (self.clone(), topic.to_owned());
        Items::of_pages(String::new(), move |token| {
            let (client, topic) = (client.clone(), topic.clone());
            async move {
                let page = client.search_page(&topic, token).await?;
                Ok((page.books.into_iter().map(Book::from).collect(), next(page.next_page_token)))
            }
        })
    }

    pub(crate) async fn search_page(&self, topic: &str, page_token: String) -> Result<BookListReply, Error> {
        let page_size = Some(self.page_size()?).filter(|size| *size > 0).unwrap_or(SEARCH_PAGE_SIZE);
        let request = BookTopicRequest { topic: topic.to_owned(), page_size, page_token };
        self.ask(READ, |lane, by| lane.store.search(within(request.clone(), by))).await
    }

    /// Topics in byte order.
    pub fn topics(&self) -> Items<Topic> {
        let client = self.clone();
        Items::of_pages(String::new(), move |page_token| {
            let client = client.clone();
            async move {
                let page_size = client.page_size()?;
                let page = client.topics_page(ListTopicsRequest { page_size, page_token, near: String::new() }).await?;
                Ok((page.topics, next(page.next_page_token)))
            }
        })
    }

    /// Topics with names near a text, nearest first: they differ in case or a few letters, or a word of the name begins
    /// with it. At most a page.
    pub async fn topics_near(&self, text: &str) -> Result<Vec<Topic>, Error> {
        let (page_size, near) = (self.page_size()?, text.to_owned());
        let request = ListTopicsRequest { page_size, near, ..ListTopicsRequest::default() };
        Ok(self.topics_page(request).await?.topics)
    }

    pub(crate) async fn topics_page(&self, request: ListTopicsRequest) -> Result<ListTopicsReply, Error> {
        self.ask(READ, |lane, by| lane.store.list_topics(within(request.clone(), by))).await
    }

    /// The book with this id, if there is one.
    pub async fn lookup(&self, id: i32) -> Result<Option<Book>, Error> {
        Ok(self.lookup_reply(id).await?.book.map(Book::from))
    }

    pub(crate) async fn lookup_reply(&self, id: i32) -> Result<BookInfoReply, Error> {
        check_id(id)?;
        let request = || ItemNumberRequest { id, ..ItemNumberRequest::default() };
        self.ask(READ, |lane, by| lane.store.lookup(within(request(), by))).await
    }

    /// Buys copies of a book, once: an unanswered purchase is repeated with its key until the deadline.
    ///
    /// An unknown outcome is not an error but an [`Outcome`](crate::Outcome).
    pub async fn buy(&self, order: impl Into<Order>) -> Result<Purchase, Error> {
        self.buy_noting(order.into(), &AtomicBool::new(false)).await
    }

    /// Like [`Client::buy`]; `in_doubt` is true while the purchase may have been made.
    pub(crate) async fn buy_noting(&self, order: Order, in_doubt: &AtomicBool) -> Result<Purchase, Error> {
        order.check()?;
        let key = order.key.unwrap_or_else(Key::random);
        let request = || ItemNumberRequest {
            id: order.id,
            quantity: Some(order.quantity),
            idempotency_key: key.as_str().to_owned().into(),
        };
        let answer = self.once(in_doubt, |lane, by| lane.store.buy(within(request(), by))).await?;
        Ok(Purchase::new(key, answer))
    }

    /// The receipt of the purchase with this number and key, if there is one.
    pub async fn receipt(&self, number: i64, key: &Key) -> Result<Option<Receipt>, Error> {
        self.receipt_reply(number, key).await.map(Receipt::of)
    }

    pub(crate) async fn receipt_reply(&self, number: i64, key: &Key) -> Result<ReceiptReply, Error> {
        if number < 1 {
            return Err(Error::Argument(format!("number is {number}; it must be a whole number from 1")));
        }
        let request = || ReceiptRequest { number, idempotency_key: key.as_str().to_owned().into() };
        self.ask(READ, |lane, by| lane.store.receipt(within(request(), by))).await
    }

    /// The page size in the form of requests.
    pub(crate) fn page_size(&self) -> Result<i32, Error> {
        self.page_size
            .map_err(|size| Error::Argument(format!("the page size is {size}; it must be from 1 to {}", i32::MAX)))
    }
}

/// The token of the next page, if there is one.
pub(crate) fn next(token: String) -> Option<String> {
    Some(token).filter(|token| !token.is_empty())
}

impl Client {
    /// Repeats a call until the store answers, as `plan` and the client's terms allow.
    pub(crate) async fn ask<'a, A, F>(
        &'a self,
        plan: Plan,
        call: impl Fn(&'a Lane, Option<Instant>) -> F,
    ) -> Result<A, Error>
    where
        F: Future<Output = Result<Response<A>, Status>>,
    {
        ask_noting(&self.lanes, &self.terms, plan, &AtomicBool::new(false), call).await
    }

    /// Like [`Client::ask`], for a call that its key makes happen once. The inner fault is why its outcome is unknown;
    /// `in_doubt` is true while the server may have executed it.
    pub(crate) async fn once<'a, A, F>(
        &'a self,
        in_doubt: &AtomicBool,
        call: impl Fn(&'a Lane, Option<Instant>) -> F,
    ) -> Result<Result<A, Fault>, Error>
    where
        F: Future<Output = Result<Response<A>, Status>>,
    {
        match ask_noting(&self.lanes, &self.terms, PURCHASE, in_doubt, call).await {
            Ok(reply) => Ok(Ok(reply)),
            Err(Error::OutcomeUnknown(fault)) => Ok(Err(fault)),
            Err(error) => Err(error),
        }
    }
}
