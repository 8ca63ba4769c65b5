//! Basis of the comparison: the classic design keeps the contract and never oversells.

use classic_bookstore::{
    serve,
    store::Store,
    wire::{
        BookTopicRequest, BuyOutcome, ItemNumberRequest, ListRequest, LogEntryKind, LogRequest, RestockRequest,
        UpdatePriceRequest, admin_client::AdminClient, book_store_client::BookStoreClient,
    },
};
use tempfile::TempDir;
use tonic::transport::{Channel, server::TcpIncoming};

const BOOK: i32 = 53477;

/// A server with `stock` copies of each book; the folder lives as long as it is held.
async fn start(stock: i32) -> (TempDir, Channel) {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path(), stock).unwrap();
    let incoming = TcpIncoming::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = incoming.local_addr().unwrap();
    tokio::spawn(serve(incoming, store));
    let channel = Channel::from_shared(format!("http://{address}")).unwrap().connect().await.unwrap();
    (folder, channel)
}

fn one(id: i32) -> ItemNumberRequest {
    ItemNumberRequest { id, quantity: None, idempotency_key: Vec::new() }
}

#[tokio::test(flavor = "multi_thread")]
async fn twenty_buyers_of_ten_copies_get_exactly_ten() {
    let (_folder, channel) = start(10).await;
    let buyers: Vec<_> = (0..20)
        .map(|_| {
            let mut shop = BookStoreClient::new(channel.clone());
            tokio::spawn(async move { shop.buy(one(BOOK)).await.unwrap().into_inner() })
        })
        .collect();
    let mut bought = Vec::new();
    for buyer in buyers {
        let reply = buyer.await.unwrap();
        if reply.success {
            bought.push(reply.stock_left.unwrap());
        } else {
            assert_eq!((reply.outcome(), &*reply.message), (BuyOutcome::SoldOut, "book 53477 is sold out"));
        }
    }
    bought.sort_unstable();
    assert_eq!(bought, (0..10).collect::<Vec<_>>());
    let entries = AdminClient::new(channel).log(LogRequest::default()).await.unwrap().into_inner().entries;
    assert_eq!(entries.iter().map(|entry| entry.number).collect::<Vec<_>>(), (1..=10).rev().collect::<Vec<_>>());
    assert!(entries.iter().all(|entry| entry.kind() == LogEntryKind::Purchase && entry.quantity == Some(1)));
}

#[tokio::test]
async fn shoppers_find_what_is_there_and_are_told_what_is_not() {
    let (_folder, channel) = start(3).await;
    let mut shop = BookStoreClient::new(channel);
    let found = shop
        .search(BookTopicRequest { topic: "distributed systems".into(), ..BookTopicRequest::default() })
        .await
        .unwrap()
        .into_inner();
    assert_eq!(found.books.iter().map(|book| book.id).collect::<Vec<_>>(), [53477, 53573]);
    let book = shop.lookup(one(BOOK)).await.unwrap().into_inner().book.unwrap();
    assert_eq!((book.stock, book.price_cents, book.price), (3, 5995, 59.95));
    let missing = shop.lookup(one(1)).await.unwrap().into_inner();
    assert_eq!((missing.success, &*missing.message, missing.book), (false, "there is no book 1", None));
    let missing = shop.buy(one(1)).await.unwrap().into_inner();
    assert_eq!((missing.success, missing.outcome()), (false, BuyOutcome::NoSuchBook));
    let many = ItemNumberRequest { quantity: Some(4), ..one(BOOK) };
    let refused = shop.buy(many).await.unwrap().into_inner();
    assert_eq!((refused.success, refused.outcome(), refused.stock_left), (false, BuyOutcome::TooFew, Some(3)));
}

#[tokio::test]
async fn operators_restock_reprice_and_read_page_by_page() {
    let (_folder, channel) = start(1).await;
    let mut admin = AdminClient::new(channel);
    let restocked = admin.restock(RestockRequest { amount: Some(7), id: None }).await.unwrap().into_inner();
    assert_eq!((restocked.books_raised, restocked.amount), (4, 7));
    let change = UpdatePriceRequest { id: BOOK, price_cents: Some(100) };
    let changed = admin.update_price(change).await.unwrap().into_inner();
    assert_eq!((changed.success, changed.price_cents_before, changed.number), (true, 5995, 5));
    let (mut ids, mut page_token) = (Vec::new(), String::new());
    loop {
        let page = admin.list(ListRequest { page_size: 3, page_token }).await.unwrap().into_inner();
        assert!(page.books.iter().all(|book| book.stock == 7));
        ids.extend(page.books.iter().map(|book| book.id));
        page_token = page.next_page_token;
        if page_token.is_empty() {
            break;
        }
    }
    assert_eq!(ids, [12365, 12498, 53477, 53573]);
    let newest = admin.log(LogRequest { page_size: 2, ..LogRequest::default() }).await.unwrap().into_inner();
    assert_eq!(newest.entries.iter().map(|entry| entry.number).collect::<Vec<_>>(), [5, 4]);
    let rest = LogRequest { page_size: 10, page_token: newest.next_page_token, ..LogRequest::default() };
    let rest = admin.log(rest).await.unwrap().into_inner();
    assert_eq!(rest.entries.iter().map(|entry| entry.number).collect::<Vec<_>>(), [3, 2, 1]);
    assert_eq!(rest.next_page_token, "");
}
