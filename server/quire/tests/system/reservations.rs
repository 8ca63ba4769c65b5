//! Reservations as shoppers get them: their answers, and copies that are held across a kill.

use bookstore::grpc::wire::{
    ReservationOutcome::{self, Bought, Held, NoSuchBook, NoSuchReservation, Released, SoldOut, TooFew},
    ReservationReply, ReservationRequest, ReserveRequest,
};
use quire_rpc::Code;

use crate::common::{
    http,
    process::Server,
    store::{BOOK, folder, keyed, one},
};

fn wish(id: i32, quantity: i32, key: &str) -> ReserveRequest {
    ReserveRequest { id, quantity: Some(quantity), idempotency_key: key.into(), seconds: Some(600) }
}

async fn reserve(server: &Server, id: i32, quantity: i32, key: &str) -> ReservationReply {
    server.shop().reserve(wish(id, quantity, key)).await.expect("an answer").into_inner()
}

async fn confirm(server: &Server, key: &str) -> ReservationReply {
    let request = ReservationRequest { idempotency_key: key.into() };
    server.shop().confirm(request).await.expect("an answer").into_inner()
}

async fn release(server: &Server, key: &str) -> ReservationReply {
    let request = ReservationRequest { idempotency_key: key.into() };
    server.shop().release(request).await.expect("an answer").into_inner()
}

/// Free and held copies.
async fn copies(server: &Server) -> (i32, i32) {
    let book = server.shop().lookup(one(BOOK)).await.expect("an answer").into_inner().book.expect("a book");
    (book.stock, book.held)
}

fn told(reply: &ReservationReply) -> (bool, ReservationOutcome, &str, bool) {
    (reply.success, reply.outcome(), &reply.message, reply.replayed)
}

#[tokio::test]
async fn each_answer_says_what_was_done_and_copies_are_held_across_a_kill() {
    let folder = folder();
    let mut server = Server::start(folder.path());
    let (stock, _) = copies(&server).await;
    let first = reserve(&server, BOOK, 3, "order").await;
    assert_eq!(told(&first), (true, Held, &*format!("reserved 3 copies of book {BOOK} for 600 s"), false));
    assert_eq!((first.id, first.quantity, first.stock_left), (BOOK, 3, Some(stock - 3)));
    reserve(&server, BOOK, 1, "other").await;
    let too_few = reserve(&server, BOOK, 1000, "many").await;
    assert_eq!(told(&too_few), (false, TooFew, &*format!("only {} copies of book {BOOK} are left", stock - 4), false));
    server.kill();
    let server = Server::start(folder.path());
    assert_eq!(copies(&server).await, (stock - 4, 4));
    let bought = confirm(&server, "order").await;
    assert_eq!(told(&bought), (true, Bought, &*format!("bought 3 copies of book {BOOK}"), false));
    let again = confirm(&server, "order").await;
    assert_eq!((told(&again).0, again.replayed, again.number), (true, true, bought.number));
    let late = release(&server, "order").await;
    assert_eq!(told(&late), (false, Bought, &*format!("bought 3 copies of book {BOOK}"), true));
    let released = release(&server, "other").await;
    assert_eq!(told(&released), (true, Released, &*format!("gave book {BOOK} back"), false));
    assert_eq!(told(&confirm(&server, "other").await), (false, Released, &*format!("gave book {BOOK} back"), true));
    assert_eq!(copies(&server).await, (stock - 3, 0));
    let unknown = confirm(&server, "no one's").await;
    assert_eq!(told(&unknown), (false, NoSuchReservation, "there is no reservation with this key", false));
    for id in [0, 99] {
        assert_eq!(
            told(&reserve(&server, id, 1, "x").await),
            (false, NoSuchBook, &*format!("there is no book {id}"), false)
        );
    }
    server.shop().buy(keyed(BOOK, "bought")).await.expect("an answer");
    assert!(reserve(&server, BOOK, copies(&server).await.0, "the rest").await.success);
    let sold_out = reserve(&server, BOOK, 2, "late").await;
    assert_eq!(told(&sold_out), (false, SoldOut, &*format!("book {BOOK} is sold out"), false));
    for (request, says) in [
        (wish(BOOK, 1, ""), "idempotency_key is empty; it must be 1 to 64 bytes, which name the reservation"),
        (wish(BOOK, 0, "y"), "quantity is 0; it must be a whole number from 1 to"),
        (
            ReserveRequest { seconds: Some(0), ..wish(BOOK, 1, "y") },
            "seconds is 0; it must be a whole number from 1 to 3600",
        ),
    ] {
        let status = server.shop().reserve(request).await.expect_err("refused");
        assert!(status.code() == Code::InvalidArgument && status.message().starts_with(says), "{status}");
    }
    let status = server.shop().reserve(wish(BOOK, 1, "bought")).await.expect_err("refused");
    assert_eq!(status.code(), Code::InvalidArgument, "{status}");
    let metrics = http::get(server.address, "/metrics").body;
    assert!(metrics.contains("quire_reservations_total{outcome=\"no_such_reservation\"} 1\n"), "{metrics}");
    server.stop();
}
