//! `bookstore.BookStore`: what shoppers call.

use ::grpc::{
    Request, Response, Status,
    server::{Answer, Answered},
};

use std::cell::RefCell;

use super::{
    encode,
    wire::{
        BookInfoReply, BookListReply, BookTopicRequest, BuyBookReply, BuyOutcome, HelloReply, HelloRequest,
        ItemNumberRequest, book_store_server::BookStore,
    },
};
use crate::{
    Bookstore,
    domain::{BookId, IdempotencyKey, Verdict},
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
}

impl BookStore for ShopService {
    async fn hello(&self, request: Request<HelloRequest>) -> Result<Response<HelloReply>, Status> {
        let name = request.into_inner().name;
        let name = if name.is_empty() { "stranger" } else { &name };
        Ok(Response::new(HelloReply { hello_message: format!("Hello, {name}!") }))
    }

    async fn search(&self, request: Request<BookTopicRequest>) -> Result<Response<BookListReply>, Status> {
        let topic = request.into_inner().topic;
        let books = super::books(&self.store.search(&topic).await?);
        let message = if books.is_empty() { no_such_topic(&topic) } else { String::new() };
        Ok(Response::new(BookListReply { success: true, message, books }))
    }

    fn search_now(
        &self,
        request: &Request<BookTopicRequest>,
        answer: Answer<'_, '_, BookListReply>,
    ) -> Option<Answered> {
        match self.store.search_now(&request.get_ref().topic)? {
            Ok(books) if books.is_empty() => None,
            Ok(books) => Some(in_scratch(|scratch| {
                encode::book_list(books.iter().map(|book| &**book), scratch);
                answer.encoded(scratch)
            })),
            Err(fault) => Some(answer.status(&fault.into())),
        }
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
