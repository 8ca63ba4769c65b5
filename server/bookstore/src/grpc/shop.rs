//! `bookstore.BookStore`: calls for shoppers.

use std::{pin::Pin, sync::Arc};

use futures_util::{Stream, stream};
use hosting::Client;
use quire_rpc::{
    Encode, Encoded, Request, Response, Status,
    server::{Answer, Call, Later},
    wire::delimited_len,
};

use super::{
    encode,
    token::{self, page_size},
    wire::{
        self, BookInfoReply, BookListReply, BookTopicRequest, BuyBookReply, BuyOutcome, HelloReply, HelloRequest,
        ItemNumberRequest, ListTopicsReply, ListTopicsRequest, ReceiptReply, ReceiptRequest, ReservationOutcome,
        ReservationReply, ReservationRequest, ReserveRequest, book_store_server::BookStore,
    },
};
use crate::{
    Bookstore,
    catalogue::{self, Book},
    domain::{BookId, HoldState, IdempotencyKey, KeyOwner, Reservation, Verdict},
    fault::Fault,
    search::Topic,
};

/// The service of a store.
#[derive(Clone, Debug)]
pub struct ShopService {
    store: Bookstore,
}

impl ShopService {
    /// Serves `store`.
    pub fn new(store: Bookstore) -> Self {
        Self { store }
    }

    /// Most bytes of an answer's books, so that the rest of it fits as well.
    fn room(&self) -> usize {
        self.store.message_bytes() - AROUND_BYTES
    }

    /// Appends the answer to a search: the whole topic, or the requested page.
    fn put_topic(&self, request: &BookTopicRequest, books: &[Arc<Book>], out: &mut Vec<u8>) -> Result<(), Status> {
        let Some(Start { after, size }) = Start::of(request)? else {
            return self.put_books(request, books, None, out);
        };
        let books = catalogue::behind(books, after);
        let page = &books[..books.len().min(self.store.page_size(size)?)];
        self.put_books(request, page, Some(page.len() < books.len()), out)
    }

    /// Appends a topic's books, or a page of them if `more` is given: true if others follow.
    fn put_books(
        &self,
        request: &BookTopicRequest,
        books: &[Arc<Book>],
        more: Option<bool>,
        out: &mut Vec<u8>,
    ) -> Result<(), Status> {
        let put = encode::book_list(books, self.room(), more.is_some().into(), out);
        let cut = put < books.len();
        if cut && more.is_none() {
            return Err(self.too_large());
        }
        // An empty first page means that the topic does not exist.
        if books.is_empty() && request.page_token.is_empty() {
            encode::message(&no_such_topic(&request.topic), out);
        }
        if let Some(last) = books[..put].last().filter(|_| cut || more == Some(true)) {
            encode::next_page_token(&token::for_book(&request.topic, last.id()), out);
        }
        Ok(())
    }

    async fn search_database(self, request: BookTopicRequest) -> Result<Response<Encoded>, Status> {
        let (topic, mut out) = (&request.topic, Vec::new());
        if let Some(Start { after, size }) = Start::of(&request)? {
            let page = self.store.search_page(topic, after, size).await?;
            self.put_books(&request, &page.items, Some(page.next.is_some()), &mut out)?;
        } else {
            self.put_books(&request, &self.store.search(topic).await?, None, &mut out)?;
        }
        Ok(Response::new(out.into()))
    }

    async fn lookup_database(self, id: BookId) -> Result<Response<Encoded>, Status> {
        let found = self.store.lookup(id).await?;
        Ok(Response::new(found.map_or_else(
            || no_book_info(id.get()),
            |book| {
                let mut out = Vec::new();
                encode::book_info(&book, &mut out);
                out.into()
            },
        )))
    }

    async fn end_hold(
        &self,
        request: Request<ReservationRequest>,
        confirms: bool,
    ) -> Result<Response<ReservationReply>, Status> {
        let deadline = request.deadline().map(Into::into);
        let key = reservation_key(&request.get_ref().idempotency_key, owner_of(&request))?;
        let ended = self.store.end_hold(key, confirms, deadline).await?;
        let wanted = if confirms { HoldState::Bought } else { HoldState::Released };
        Ok(Response::new(reservation(&ended, wanted)))
    }

    /// Refuses a whole topic that exceeds one message. Clients without paging would take a part for the whole, and most
    /// libraries use this code for a message that is too large.
    fn too_large(&self) -> Status {
        // A retry would fail in the same way.
        Status::from(self.store.answer_too_large()).with_retry_pushback(None)
    }
}

/// Start and size limit of a page; 0 is the server's default.
#[derive(Clone, Copy, Debug, Default)]
struct Start {
    after: Option<BookId>,
    size: usize,
}

impl Start {
    /// `None` for a request of the whole topic.
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

/// Size of a streamed message: large enough to amortize its cost, small enough for a slow reader.
const STREAMED_BYTES: usize = 256 << 10;

/// The first of `items` that fit into `room` bytes as a repeated field, and at least `least`.
fn fitting<M: Encode>(items: impl Iterator<Item = M>, room: usize, least: usize) -> Vec<M> {
    let (mut taken, mut bytes) = (Vec::new(), 0);
    for item in items {
        bytes += delimited_len(item.encoded_len());
        if bytes > room && taken.len() >= least {
            break;
        }
        taken.push(item);
    }
    taken
}

impl BookStore for ShopService {
    async fn hello(&self, request: Request<HelloRequest>) -> Result<Response<HelloReply>, Status> {
        Ok(Response::new(HelloReply { hello_message: format!("Hello {}!", request.into_inner().name) }))
    }

    fn search(&self, mut call: Call<'_, BookTopicRequest>) -> Answer<impl Later + use<>> {
        let request = match call.message() {
            Ok(request) => request,
            Err(status) => return call.fail(&status),
        };
        let Some(found) = self.store.search_now(&request.topic) else {
            return Answer::Later(self.clone().search_database(request));
        };
        let put = found.map_err(Status::from).and_then(|books| self.put_topic(&request, &books, call.out()));
        match put {
            Ok(()) => call.answer(),
            Err(status) => call.fail(&status),
        }
    }

    type SearchStreamStream = Pin<Box<dyn Stream<Item = Result<Encoded, Status>> + Send>>;

    async fn search_stream(
        &self,
        request: Request<BookTopicRequest>,
    ) -> Result<Response<Self::SearchStreamStream>, Status> {
        let client = request.client();
        let request = request.into_inner();
        let start = Start::of(&request)?.unwrap_or_default();
        let found = self.store.search_stream(&request.topic, start.after, start.size, client)?;
        if found.is_empty() {
            let message = no_such_topic(&request.topic);
            let reply = BookListReply { success: true, message, ..BookListReply::default() };
            return Ok(Response::new(Box::pin(stream::iter([Ok(Encoded::of(reply))]))));
        }
        let room = self.room().min(STREAMED_BYTES);
        let messages = stream::unfold((found, request.topic), move |(mut found, topic)| async move {
            let mut out = Vec::new();
            let put = encode::book_list(found.next(), room, 1, &mut out);
            if put == 0 {
                return None;
            }
            if let Some(next) = found.take(put) {
                encode::next_page_token(&token::for_book(&topic, next), &mut out);
            }
            Some((Ok(out.into()), (found, topic)))
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
        // The token contains a topic as well.
        let topics = fitting(found.iter().map(topic), self.room() / 2, 1);
        let cut = topics.len() < found.len() && request.near.is_empty();
        let next = if cut { found[..topics.len()].last().map(|topic| Arc::clone(&topic.name)) } else { next };
        let next_page_token = next.map(|name| token::for_topic(&name)).unwrap_or_default();
        Ok(Response::new(ListTopicsReply { topics, next_page_token }))
    }

    fn lookup(&self, mut call: Call<'_, ItemNumberRequest>) -> Answer<impl Later + use<>> {
        let id = match call.message() {
            Ok(request) => request.id,
            Err(status) => return call.fail(&status),
        };
        let Some(id) = BookId::new(id) else { return call.send(no_book_info(id)) };
        let Some(catalogue) = self.store.catalogue() else {
            return Answer::Later(self.clone().lookup_database(id));
        };
        let Some(book) = catalogue.get(id) else { return call.send(no_book_info(id.get())) };
        encode::book_info(book, call.out());
        call.answer()
    }

    async fn receipt(&self, request: Request<ReceiptRequest>) -> Result<Response<ReceiptReply>, Status> {
        let owner = owner_of(&request);
        let ReceiptRequest { number, idempotency_key } = request.into_inner();
        let Some(key) = IdempotencyKey::from_wire(&idempotency_key)?.map(|key| key.of(owner)) else {
            let want = "the key of the purchase: one that was made without a key has no receipt";
            return Err(Fault::invalid("idempotency_key", "empty", want).into());
        };
        let Some(receipt) = self.store.receipt(number, &key).await? else {
            return Ok(Response::new(no_receipt(number)));
        };
        let log_key = self.store.log_key().await?.to_string();
        Ok(Response::new(ReceiptReply { success: true, message: String::new(), receipt, log_key }))
    }

    async fn reserve(&self, request: Request<ReserveRequest>) -> Result<Response<ReservationReply>, Status> {
        let deadline = request.deadline().map(Into::into);
        let (owner, client) = (owner_of(&request), request.client());
        let ReserveRequest { id, quantity, idempotency_key, seconds } = request.into_inner();
        let (key, quantity) = (reservation_key(&idempotency_key, owner)?, quantity.unwrap_or(1));
        let Some(book) = BookId::new(id) else {
            self.store.quantity(quantity)?;
            return Ok(Response::new(no_reservation(ReservationOutcome::NoSuchBook, no_such_book(id))));
        };
        let held = self.store.hold(book, quantity, key, seconds, &client, deadline).await?;
        Ok(Response::new(reservation(&held, HoldState::Held)))
    }

    async fn confirm(&self, request: Request<ReservationRequest>) -> Result<Response<ReservationReply>, Status> {
        self.end_hold(request, true).await
    }

    async fn release(&self, request: Request<ReservationRequest>) -> Result<Response<ReservationReply>, Status> {
        self.end_hold(request, false).await
    }

    async fn buy(&self, request: Request<ItemNumberRequest>) -> Result<Response<BuyBookReply>, Status> {
        let deadline = request.deadline().map(Into::into);
        let owner = owner_of(&request);
        let request = request.into_inner();
        let key = IdempotencyKey::from_wire(&request.idempotency_key)?.map(|key| key.of(owner));
        let quantity = request.quantity.unwrap_or(1);
        let Some(id) = BookId::new(request.id) else {
            // Such an id cannot exist, so retries get the same answer without a log entry.
            self.store.quantity(quantity)?;
            return Ok(Response::new(BuyBookReply {
                message: no_such_book(request.id),
                outcome: BuyOutcome::NoSuchBook.into(),
                ..BuyBookReply::default()
            }));
        };
        let receipt = self.store.buy(id, quantity, key, deadline).await?;
        let left = receipt.stock_left.unwrap_or_default();
        let (outcome, message) = match receipt.verdict {
            Verdict::Bought if quantity == 1 => (BuyOutcome::Bought, format!("bought book {id}")),
            Verdict::Bought => (BuyOutcome::Bought, format!("bought {quantity} copies of book {id}")),
            Verdict::SoldOut => (BuyOutcome::SoldOut, format!("book {id} is sold out")),
            Verdict::TooFew if left == 1 => (BuyOutcome::TooFew, format!("only 1 copy of book {id} is left")),
            Verdict::TooFew => (BuyOutcome::TooFew, format!("only {left} copies of book {id} are left")),
            Verdict::NoSuchBook => (BuyOutcome::NoSuchBook, no_such_book(request.id)),
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

/// The callers whose keys a caller may use.
fn owner_of<T>(request: &Request<T>) -> KeyOwner {
    match request.client() {
        Client::Credential(name) => KeyOwner::named(&name),
        Client::Unknown | Client::Address(_) => KeyOwner::COMMON,
    }
}

fn reservation_key(key: &[u8], owner: KeyOwner) -> Result<IdempotencyKey, Fault> {
    let key = IdempotencyKey::from_wire(key)?.map(|key| key.of(owner));
    key.ok_or_else(|| Fault::invalid("idempotency_key", "empty", "1 to 64 bytes, which name the reservation"))
}

/// The answer to a call that was to lead to the state `wanted`.
fn reservation(found: &Reservation, wanted: HoldState) -> ReservationReply {
    let Some((book, quantity, until_ms)) = found.held else {
        let message = "there is no reservation with this key".to_owned();
        return no_reservation(ReservationOutcome::NoSuchReservation, message);
    };
    let (id, number) = (book.get(), found.number.unwrap_or_default());
    let left = found.stock_left.unwrap_or_default();
    let copies = if quantity == 1 { format!("book {id}") } else { format!("{quantity} copies of book {id}") };
    let seconds = |ms: i64| ms.max(0).unsigned_abs().div_ceil(1000);
    let (outcome, message) = match found.state {
        HoldState::Held => {
            (ReservationOutcome::Held, format!("reserved {copies} for {} s", seconds(until_ms - found.now_ms)))
        }
        HoldState::Bought => (ReservationOutcome::Bought, format!("bought {copies}")),
        HoldState::Released => (ReservationOutcome::Released, format!("gave {copies} back")),
        HoldState::Expired => {
            let ago = seconds(found.now_ms - until_ms);
            let message =
                format!("the time of this reservation was over {ago} s ago, and {copies} went back to the stock");
            (ReservationOutcome::Expired, message)
        }
        HoldState::SoldOut => (ReservationOutcome::SoldOut, format!("book {id} is sold out")),
        HoldState::TooFew if left == 1 => (ReservationOutcome::TooFew, format!("only 1 copy of book {id} is left")),
        HoldState::TooFew => (ReservationOutcome::TooFew, format!("only {left} copies of book {id} are left")),
        HoldState::NoSuchBook | HoldState::NoSuchReservation => (ReservationOutcome::NoSuchBook, no_such_book(id)),
    };
    let is_back = wanted == HoldState::Released && found.state == HoldState::Expired;
    ReservationReply {
        success: found.state == wanted || is_back,
        message,
        outcome: outcome.into(),
        number,
        stock_left: found.stock_left.map(u32::cast_signed),
        replayed: found.replayed,
        id,
        quantity: quantity.cast_signed(),
        until_ms,
    }
}

/// A `ReservationReply` without a reservation.
fn no_reservation(outcome: ReservationOutcome, message: String) -> ReservationReply {
    ReservationReply { message, outcome: outcome.into(), ..ReservationReply::default() }
}

/// A `ReceiptReply` without a receipt.
fn no_receipt(number: i64) -> ReceiptReply {
    ReceiptReply { message: format!("there is no purchase {number} with this key"), ..ReceiptReply::default() }
}

/// A `BookInfoReply` without a book.
fn no_book_info(id: i32) -> Encoded {
    Encoded::of(BookInfoReply { success: false, message: no_such_book(id), book: None })
}

fn no_such_topic(topic: &str) -> String {
    format!("no book has the topic '{topic}'")
}

pub(super) fn no_such_book(id: i32) -> String {
    format!("there is no book {id}")
}
