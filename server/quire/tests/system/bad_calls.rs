//! Calls with valid types that the store rejects: each error names the field, and no other client is affected.

use bookstore::grpc::wire::{
    BookTopicRequest, BuyOutcome, ItemNumberRequest, ListRequest, LogRequest, RestockRequest, UpdatePriceRequest,
};
use quire_rpc::{Code, Status};

use crate::common::{
    audit::Audit,
    process::Server,
    store::{BOOK, folder, keyed, one},
};

#[track_caller]
fn refused<T: std::fmt::Debug>(answer: Result<T, Status>, code: Code, message: &str) {
    let status = answer.expect_err("a refusal");
    assert_eq!((status.code(), status.message()), (code, message));
}

#[tokio::test]
async fn an_id_below_1_has_no_price_to_set() {
    let folder = folder();
    let server = Server::start(folder.path());
    for id in [0, -1, i32::MIN] {
        let message = format!("id is {id}; it must be a whole number from 1 to 2147483647");
        let price = UpdatePriceRequest { id, price_cents: Some(1) };
        refused(server.admin().update_price(price).await, Code::InvalidArgument, &message);
    }
}

#[tokio::test]
async fn a_quantity_of_none_or_too_many_is_an_invalid_argument() {
    let folder = folder();
    let server = Server::start(folder.path());
    for (book, quantity) in [(BOOK, 0), (BOOK, -1), (0, -1), (BOOK, 1001), (BOOK, i32::MAX)] {
        let wish = ItemNumberRequest { quantity: Some(quantity), ..one(book) };
        let message = format!(
            "quantity is {quantity}; it must be a whole number from 1 to 1000, the server's limit limits.quantity"
        );
        refused(server.shop().buy(wish).await, Code::InvalidArgument, &message);
    }
    let all = ItemNumberRequest { quantity: Some(1000), ..one(BOOK) };
    assert!(server.shop().buy(all).await.expect("an answer").into_inner().success);
    assert_eq!(Audit::of(&server).await.purchases_of(BOOK), 1);
}

#[tokio::test]
async fn a_key_may_have_64_bytes_and_no_more() {
    let folder = folder();
    let server = Server::start(folder.path());
    for bytes in [65, 300, 100_000] {
        let message = format!("idempotency_key is {bytes} bytes; it must be 1 to 64 bytes, or none for no key");
        refused(server.shop().buy(keyed(BOOK, &"k".repeat(bytes))).await, Code::InvalidArgument, &message);
    }
    let longest = keyed(BOOK, &"k".repeat(64));
    assert!(server.shop().buy(longest).await.expect("an answer").into_inner().success);
}

#[tokio::test]
async fn a_key_sent_again_with_another_request_is_an_invalid_argument() {
    let folder = folder();
    let server = Server::start(folder.path());
    let shop = server.shop();
    let number = shop.buy(keyed(BOOK, "mine")).await.expect("an answer").into_inner().purchase_number;
    let message = format!(
        "this idempotency key belongs to an earlier request, for 1 copy of book {BOOK} (number {number} in the log): send that request again, or this one with a new key"
    );
    let (other_book, more) = (keyed(53477, "mine"), ItemNumberRequest { quantity: Some(2), ..keyed(BOOK, "mine") });
    for wish in [other_book, more] {
        let status = shop.buy(wish).await.expect_err("a refusal");
        assert_eq!(status.code(), Code::InvalidArgument);
        assert_eq!(status.message(), message);
    }
    assert!(shop.buy(keyed(BOOK, "mine")).await.expect("an answer").into_inner().replayed);
    assert_eq!(Audit::of(&server).await.purchases_of(BOOK), 1);
}

#[tokio::test]
async fn a_topic_that_is_too_long_is_refused_whatever_its_length() {
    let folder = folder();
    let server = Server::start(folder.path());
    let topic = |bytes| BookTopicRequest { topic: "t".repeat(bytes), ..BookTopicRequest::default() };
    let shop = server.shop();
    assert!(shop.search(topic(256)).await.expect("an answer").into_inner().success);
    let message = "the server's limit limits.topic_bytes is 256: name a shorter topic";
    refused(shop.search(topic(300)).await, Code::ResourceExhausted, message);
    let message = "the server's limit limits.message_bytes is 4194304: send a smaller message";
    refused(shop.search(topic(10 << 20)).await, Code::ResourceExhausted, message);
    assert!(shop.search(topic(1)).await.is_ok(), "the same connection goes on");
}

#[tokio::test]
async fn a_page_that_cannot_be_is_refused_by_name() {
    let folder = folder();
    let server = Server::start(folder.path());
    let admin = server.admin();
    let message = "the server's limit limits.page_size is 1000: ask for a smaller page";
    let list = |page_size, token: &str| ListRequest { page_size, page_token: token.to_owned() };
    let log = |page_size, token: &str| LogRequest { page_size, page_token: token.to_owned(), ..LogRequest::default() };
    refused(admin.list(list(1001, "")).await, Code::ResourceExhausted, message);
    refused(admin.log(log(1001, "")).await, Code::ResourceExhausted, message);
    let message = "page_size is -1; it must be 0 for the default, or a positive number";
    refused(admin.list(list(-1, "")).await, Code::InvalidArgument, message);
    for token in ["next", "-5", "99999999999999999999"] {
        let message = format!("page_token is {token}; it must be empty, or next_page_token of the page before");
        refused(admin.list(list(1, token)).await, Code::InvalidArgument, &message);
        if token != "-5" {
            refused(admin.log(log(1, token)).await, Code::InvalidArgument, &message);
        }
    }
}

#[tokio::test]
async fn a_price_or_an_amount_that_cannot_be_is_an_invalid_argument() {
    let folder = folder();
    let server = Server::start(folder.path());
    let admin = server.admin();
    for cents in [-1, 100_000_000_001, i64::MIN] {
        let price = UpdatePriceRequest { id: BOOK, price_cents: Some(cents) };
        let status = admin.update_price(price).await.expect_err("a refusal");
        assert_eq!(status.code(), Code::InvalidArgument);
        assert!(status.message().starts_with(&format!("price_cents is {cents}; it must be a price from 0.00")));
    }
    let absent = UpdatePriceRequest { id: BOOK, price_cents: None };
    let message = "price_cents is absent; it must be the new price in cents";
    refused(admin.update_price(absent).await, Code::InvalidArgument, message);
    let message = "amount is -1; it must be a whole number from 0 to 2147483647";
    refused(admin.restock(RestockRequest { amount: Some(-1), id: None }).await, Code::InvalidArgument, message);
}

#[tokio::test]
async fn what_is_a_matter_of_business_is_no_fault() {
    let folder = folder();
    let server = Server::start(folder.path());
    let shop = server.shop();
    for id in [1, 0, -1, i32::MIN] {
        let message = format!("there is no book {id}");
        let lookup = shop.lookup(one(id)).await.expect("an answer").into_inner();
        assert_eq!((lookup.success, &lookup.message, lookup.book), (false, &message, None));
        let buy = shop.buy(keyed(id, "a key")).await.expect("an answer").into_inner();
        assert_eq!((buy.success, &buy.message, buy.stock_left), (false, &message, None));
        assert_eq!(buy.outcome(), BuyOutcome::NoSuchBook);
    }
    let search = shop
        .search(BookTopicRequest { topic: "knitting".to_owned(), ..BookTopicRequest::default() })
        .await
        .expect("an answer")
        .into_inner();
    assert_eq!((search.success, search.books.len()), (true, 0));
}
