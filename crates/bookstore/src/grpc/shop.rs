//! `bookstore.BookStore`: what shoppers call.

use std::{cell::RefCell, pin::Pin, sync::Arc};

use ::grpc::{
    Request, Response, Status,
    server::{Answer, Answered},
};
use futures_util::{Stream, stream};

use super::{
    encode, page_size, token,
    wire::{
        self, BookInfoReply, BookListReply, BookTopicRequest, BuyBookReply, BuyOutcome, HelloReply, HelloRequest,
        ItemNumberRequest, ListTopicsReply, ListTopicsRequest, book_store_server::BookStore,
    },
};
use crate::{
    Bookstore,
    bookstore::Topic,
    catalogue::{self, Book},
    domain::{BookId, IdempotencyKey, Verdict},
    fault::Fault,
};

/// Serves a store.
#[derive(Clone, Debug)]
pub struct ShopService {
    store: Bookstore,
}

impl ShopService {
    /// Serves `store`.
    pub fn new(store: Bookstore) -> Self {
        Self { store }
    }

    /// Bytes that the books of an answer may take, so that the rest of it fits as well.
    fn room(&self) -> usize {
        self.store.message_bytes() - AROUND_BYTES
    }

    /// A whole topic, or a page of it, into a message that is encoded where it will be sent from.
    fn put_search(&self, request: &BookTopicRequest, books: &[Arc<Book>], out: &mut Vec<u8>) -> Result<(), Status> {
        let Some(Start { after, size }) = Start::of(request)? else {
            let put = encode::book_list(books, self.room(), 0, out);
            return if put == books.len() { Ok(()) } else { Err(self.too_large()) };
        };
        let books = catalogue::behind(books, after);
        let page = &books[..books.len().min(self.store.page_size(size)?)];
        let put = encode::book_list(page, self.room(), 1, out);
        if let Some(last) = page[..put].last().filter(|_| put < books.len()) {
            encode::next_page_token(&token::for_book(&request.topic, last.id()), out);
        }
        Ok(())
    }

    /// What a caller is told that asked for a whole topic and cannot get it in one message. A part would look like the
    /// whole to clients that know no pages, and this is the code that most libraries have for a message too large.
    fn too_large(&self) -> Status {
        let mut status = Status::from(self.store.answer_too_large());
        // The next attempt would end in the same way.
        let _ = status.metadata_mut().insert("grpc-retry-pushback-ms", "-1");
        status
    }
}

/// Where a page starts, and the most items it may have; 0 means the server's default.
#[derive(Clone, Copy, Debug, Default)]
struct Start {
    after: Option<BookId>,
    size: usize,
}

impl Start {
    /// `None` for a request that asks for the whole topic.
    fn of(request: &BookTopicRequest) -> Result<Option<Self>, Fault> {
        if request.page_size == 0 && request.page_token.is_empty() {
            return Ok(None);
        }
        let after = token::book(&request.topic, &request.page_token)?;
        Ok(Some(Self { after, size: page_size(request.page_size)? }))
    }
}

/// Bytes of an answer beside its books: success and the token of the next page.
const AROUND_BYTES: usize = 2 + 2 + token::BOOK_BYTES;

/// Bytes of a streamed message: enough that a message costs little, and little for a slow reader to hold.
const STREAMED_BYTES: usize = 256 << 10;

/// The first of `items` that fit into `room` bytes as a repeated field, and at least `least`.
fn fitting<M: prost::Message>(items: impl Iterator<Item = M>, room: usize, least: usize) -> Vec<M> {
    let (mut taken, mut bytes) = (Vec::new(), 0);
    for item in items {
        let length = item.encoded_len();
        bytes += 1 + prost::length_delimiter_len(length) + length;
        if bytes > room && taken.len() >= least {
            break;
        }
        taken.push(item);
    }
    taken
}

impl BookStore for ShopService {
    async fn hello(&self, request: Request<HelloRequest>) -> Result<Response<HelloReply>, Status> {
        let name = request.into_inner().name;
        let name = if name.is_empty() { "stranger" } else { &name };
        Ok(Response::new(HelloReply { hello_message: format!("Hello, {name}!") }))
    }

    async fn search(&self, request: Request<BookTopicRequest>) -> Result<Response<BookListReply>, Status> {
        let request = request.into_inner();
        let topic = &request.topic;
        let (found, paged, next) = if let Some(Start { after, size }) = Start::of(&request)? {
            let page = self.store.search_page(topic, after, size).await?;
            (page.items, true, page.next)
        } else {
            (self.store.search(topic).await?, false, None)
        };
        let books = fitting(found.iter().map(|book| wire::Book::from(&**book)), self.room(), paged.into());
        let cut = books.len() < found.len();
        if cut && !paged {
            return Err(self.too_large());
        }
        let next = if cut { found[..books.len()].last().map(|book| book.id()) } else { next };
        let next_page_token = next.map(|id| token::for_book(topic, id)).unwrap_or_default();
        // That a topic ends is no news; that there is none is.
        let message =
            if books.is_empty() && request.page_token.is_empty() { no_such_topic(topic) } else { String::new() };
        Ok(Response::new(BookListReply { success: true, message, books, next_page_token }))
    }

    fn search_now(
        &self,
        request: &Request<BookTopicRequest>,
        answer: Answer<'_, '_, BookListReply>,
    ) -> Option<Answered> {
        let request = request.get_ref();
        match self.store.search_now(&request.topic)? {
            Ok(books) if books.is_empty() => None,
            Ok(books) => Some(in_scratch(|scratch| match self.put_search(request, &books, scratch) {
                Ok(()) => answer.encoded(scratch),
                Err(status) => answer.status(&status),
            })),
            Err(fault) => Some(answer.status(&fault.into())),
        }
    }

    type SearchStreamStream = Pin<Box<dyn Stream<Item = Result<BookListReply, Status>> + Send>>;

    async fn search_stream(
        &self,
        request: Request<BookTopicRequest>,
    ) -> Result<Response<Self::SearchStreamStream>, Status> {
        let request = request.into_inner();
        let start = Start::of(&request)?.unwrap_or_default();
        let found = self.store.search_stream(&request.topic, start.after, start.size)?;
        if found.is_empty() {
            let message = no_such_topic(&request.topic);
            let reply = BookListReply { success: true, message, ..BookListReply::default() };
            return Ok(Response::new(Box::pin(stream::iter([Ok(reply)]))));
        }
        let room = self.room().min(STREAMED_BYTES);
        let messages = stream::unfold((found, request.topic), move |(mut found, topic)| async move {
            let books = fitting(found.next().iter().map(|book| wire::Book::from(&**book)), room, 1);
            if books.is_empty() {
                return None;
            }
            let next = found.take(books.len());
            let next_page_token = next.map(|id| token::for_book(&topic, id)).unwrap_or_default();
            let reply = BookListReply { success: true, message: String::new(), books, next_page_token };
            Some((Ok(reply), (found, topic)))
        });
        Ok(Response::new(Box::pin(messages)))
    }

    async fn list_topics(&self, request: Request<ListTopicsRequest>) -> Result<Response<ListTopicsReply>, Status> {
        let request = request.into_inner();
        let size = page_size(request.page_size)?;
        let (found, next) = if request.near.is_empty() {
            let page = self.store.topics(token::topic(&request.page_token)?, size)?;
            (page.items, page.next)
        } else if request.page_token.is_empty() {
            (self.store.topics_near(&request.near, size).await?, None)
        } else {
            return Err(token::bad(&request.page_token, "empty with near, which has one page").into());
        };
        let topic = |topic: &Topic| wire::Topic {
            name: topic.name.as_ref().to_owned(),
            books: i64::try_from(topic.books).unwrap_or(i64::MAX),
        };
        // The token holds a topic as well.
        let topics = fitting(found.iter().map(topic), self.room() / 2, 1);
        let cut = topics.len() < found.len() && request.near.is_empty();
        let next = if cut { found[..topics.len()].last().map(|topic| Arc::clone(&topic.name)) } else { next };
        let next_page_token = next.map(|name| token::for_topic(&name)).unwrap_or_default();
        Ok(Response::new(ListTopicsReply { topics, next_page_token }))
    }

    async fn lookup(&self, request: Request<ItemNumberRequest>) -> Result<Response<BookInfoReply>, Status> {
        let id = BookId::from_wire(request.into_inner().id)?;
        let book = self.store.lookup(id).await?.map(|book| (&*book).into());
        let message = if book.is_none() { no_such_book(id) } else { String::new() };
        Ok(Response::new(BookInfoReply { success: book.is_some(), message, book }))
    }

    fn lookup_now(
        &self,
        request: &Request<ItemNumberRequest>,
        answer: Answer<'_, '_, BookInfoReply>,
    ) -> Option<Answered> {
        let catalogue = self.store.catalogue()?;
        let book = catalogue.get(BookId::new(request.get_ref().id)?)?;
        Some(in_scratch(|scratch| {
            encode::book_info(book, scratch);
            answer.encoded(scratch)
        }))
    }

    async fn buy(&self, request: Request<ItemNumberRequest>) -> Result<Response<BuyBookReply>, Status> {
        let request = request.into_inner();
        let id = BookId::from_wire(request.id)?;
        let key = IdempotencyKey::from_wire(&request.idempotency_key)?;
        let receipt = self.store.buy(id, request.quantity.unwrap_or(1), key).await?;
        let left = receipt.stock_left.unwrap_or_default();
        let (outcome, message) = match receipt.verdict {
            Verdict::Bought => (BuyOutcome::Bought, format!("bought book {id}")),
            Verdict::SoldOut => (BuyOutcome::SoldOut, format!("book {id} is sold out")),
            Verdict::TooFew if left == 1 => (BuyOutcome::TooFew, format!("only 1 copy of book {id} is left")),
            Verdict::TooFew => (BuyOutcome::TooFew, format!("only {left} copies of book {id} are left")),
            Verdict::NoSuchBook => (BuyOutcome::NoSuchBook, no_such_book(id)),
        };
        Ok(Response::new(BuyBookReply {
            success: receipt.verdict == Verdict::Bought,
            message,
            outcome: outcome.into(),
            purchase_number: receipt.number.unwrap_or_default(),
            stock_left: receipt.stock_left.map(u32::cast_signed),
            replayed: receipt.replayed,
        }))
    }
}

thread_local! {
    /// Where answers that are encoded by hand come to be, so that a call allocates nothing.
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Bytes of the scratch that are kept from one answer to the next.
const SCRATCH_KEPT: usize = 1 << 20;

fn in_scratch(answer: impl FnOnce(&mut Vec<u8>) -> Answered) -> Answered {
    SCRATCH.with_borrow_mut(|scratch| {
        scratch.clear();
        let answered = answer(scratch);
        scratch.shrink_to(SCRATCH_KEPT);
        answered
    })
}

fn no_such_topic(topic: &str) -> String {
    format!("no book has the topic '{topic}'")
}

pub(super) fn no_such_book(id: BookId) -> String {
    format!("there is no book {id}")
}
