//! The bookstore behind tonic, for comparison of gRPC engines: `tonic-bookstore LISTEN DATABASE`.
//!
//! The store is Quire's, so that only the engine differs. Fair settings: one thread like a core of Quire's, windows too
//! large for flow control to matter, TCP_NODELAY, no interceptors, no limits, no metrics.

use std::{path::Path, sync::Arc, time::Duration};

use bookstore::{BookId, Bookstore, Fault, IdempotencyKey, Settings, Verdict, catalogue, metrics::Metrics};
use tonic::{Code, Request, Response, Status, codegen::BoxStream, transport::Server};
use wire::{
    BookInfoReply, BookListReply, BookTopicRequest, BuyBookReply, BuyOutcome, HelloReply, HelloRequest,
    ItemNumberRequest, ListTopicsReply, ListTopicsRequest, ReceiptReply, ReceiptRequest, ReservationReply,
    ReservationRequest, ReserveRequest,
    book_store_server::{BookStore, BookStoreServer},
};

mod wire {
    tonic::include_proto!("bookstore");
}

/// 64 MiB: more than any workload here has in flight.
const WINDOW: u32 = 1 << 26;

struct Shop(Bookstore);

fn status(fault: Fault) -> Status {
    let code = Code::from_i32(bookstore::grpc::code(&fault) as i32);
    Status::new(code, fault.to_string())
}

fn book(book: &Arc<catalogue::Book>) -> wire::Book {
    let price = book.price();
    wire::Book {
        id: book.id().get(),
        title: book.title().to_owned(),
        topic: book.topic().to_owned(),
        stock: book.stock().cast_signed(),
        price: price.as_f64(),
        price_cents: price.get(),
        delisted: false,
        held: 0,
    }
}

#[tonic::async_trait]
impl BookStore for Shop {
    async fn hello(&self, request: Request<HelloRequest>) -> Result<Response<HelloReply>, Status> {
        let hello_message = format!("Hello {}!", request.into_inner().name);
        Ok(Response::new(HelloReply { hello_message }))
    }

    async fn search(&self, request: Request<BookTopicRequest>) -> Result<Response<BookListReply>, Status> {
        let books = self.0.search(&request.into_inner().topic).await.map_err(status)?;
        let books = books.iter().map(book).collect();
        Ok(Response::new(BookListReply { success: true, books, ..BookListReply::default() }))
    }

    type SearchStreamStream = BoxStream<BookListReply>;

    async fn search_stream(&self, _: Request<BookTopicRequest>) -> Result<Response<Self::SearchStreamStream>, Status> {
        Err(Status::unimplemented("no load here asks for it"))
    }

    async fn list_topics(&self, _: Request<ListTopicsRequest>) -> Result<Response<ListTopicsReply>, Status> {
        Err(Status::unimplemented("no load here asks for it"))
    }

    async fn receipt(&self, _: Request<ReceiptRequest>) -> Result<Response<ReceiptReply>, Status> {
        Err(Status::unimplemented("no load here asks for it"))
    }

    async fn reserve(&self, _: Request<ReserveRequest>) -> Result<Response<ReservationReply>, Status> {
        Err(Status::unimplemented("no load here asks for it"))
    }

    async fn confirm(&self, _: Request<ReservationRequest>) -> Result<Response<ReservationReply>, Status> {
        Err(Status::unimplemented("no load here asks for it"))
    }

    async fn release(&self, _: Request<ReservationRequest>) -> Result<Response<ReservationReply>, Status> {
        Err(Status::unimplemented("no load here asks for it"))
    }

    async fn lookup(&self, request: Request<ItemNumberRequest>) -> Result<Response<BookInfoReply>, Status> {
        let id = BookId::from_wire(request.into_inner().id).map_err(status)?;
        let found = self.0.lookup(id).await.map_err(status)?;
        let message = if found.is_some() { String::new() } else { format!("there is no book {id}") };
        Ok(Response::new(BookInfoReply { success: found.is_some(), message, book: found.as_ref().map(book) }))
    }

    async fn buy(&self, request: Request<ItemNumberRequest>) -> Result<Response<BuyBookReply>, Status> {
        let request = request.into_inner();
        let id = BookId::from_wire(request.id).map_err(status)?;
        let key = IdempotencyKey::from_wire(&request.idempotency_key).map_err(status)?;
        let receipt = self.0.buy(id, request.quantity.unwrap_or(1), key, None).await.map_err(status)?;
        let outcome = match receipt.verdict {
            Verdict::Bought => BuyOutcome::Bought,
            Verdict::SoldOut => BuyOutcome::SoldOut,
            Verdict::TooFew => BuyOutcome::TooFew,
            Verdict::NoSuchBook => BuyOutcome::NoSuchBook,
        };
        Ok(Response::new(BuyBookReply {
            success: receipt.verdict == Verdict::Bought,
            message: format!("bought book {id}"),
            outcome: outcome.into(),
            purchase_number: receipt.number.unwrap_or_default(),
            stock_left: receipt.stock_left.map(u32::cast_signed),
            replayed: receipt.replayed,
        }))
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [listen, database] = arguments.as_slice() else { return Err("usage: tonic-bookstore LISTEN DATABASE".into()) };
    let store = Bookstore::open(Path::new(database), Settings::default(), Metrics::default())?;
    Server::builder()
        .initial_connection_window_size(WINDOW)
        .initial_stream_window_size(WINDOW)
        .max_concurrent_streams(1 << 20)
        .tcp_nodelay(true)
        .http2_keepalive_interval(None::<Duration>)
        .add_service(BookStoreServer::new(Shop(store)))
        .serve(listen.parse()?)
        .await?;
    Ok(())
}
