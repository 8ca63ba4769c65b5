//! Two servers on one file, and other programs that write to it.

use std::{path::Path, time::Instant};

use bookstore::grpc::wire::{
    BuyBookReply, BuyOutcome, ItemNumberRequest, LogEntryKind, RestockRequest, UpdatePriceRequest,
    book_store_client::BookStoreClient,
};
use quire_rpc::Status;
use tokio::task::JoinSet;

use crate::common::{
    audit::Audit,
    poll,
    process::{Server, Start},
    store::{self, BOOK, folder, folder_with, keyed, one},
};

const COPIES: usize = 1000;
const BUYERS: usize = 5000;
const SCARCE: i32 = 7;

/// All buyers at once, alternating between the servers.
async fn rush(
    servers: &[Server; 2],
    wish: impl Fn(usize) -> ItemNumberRequest,
    buyers: usize,
) -> Vec<Result<BuyBookReply, Status>> {
    let shops: Vec<BookStoreClient> = (0..8).map(|place| BookStoreClient::new(servers[place % 2].channel())).collect();
    let mut tasks = JoinSet::new();
    for place in 0..buyers {
        let (shop, wish) = (shops[place % shops.len()].clone(), wish(place));
        tasks.spawn(async move {
            loop {
                match shop.buy(wish.clone()).await {
                    // On a slow machine some of so many wait too long and are refused.
                    Err(status) if status.message().contains("nothing was done") => {}
                    answer => return answer.map(quire_rpc::Response::into_inner),
                }
            }
        });
    }
    tasks.join_all().await
}

async fn sells_out_once(first: Start, second: Start) {
    let folder = folder_with(&format!("{SCARCE},The Last Thousand,scarcity,{COPIES},9.99\n"));
    let servers = [first.serve(folder.path()), second.serve(folder.path())];
    let start = Instant::now();
    let answers = rush(&servers, |_| one(SCARCE), BUYERS).await;
    eprintln!("{BUYERS} buyers were answered in {:?}", start.elapsed());
    let replies: Vec<BuyBookReply> = answers.into_iter().map(|answer| answer.expect("no fault")).collect();
    let bought = replies.iter().filter(|reply| reply.success).count();
    let refused = replies.iter().filter(|reply| reply.outcome() == BuyOutcome::SoldOut).count();
    assert_eq!((bought, refused), (COPIES, BUYERS - COPIES));
    for server in &servers {
        let audit = Audit::of(server).await;
        assert_eq!((audit.stock_of(SCARCE), audit.purchases_of(SCARCE)), (0, COPIES));
        replies.iter().filter(|reply| reply.success).for_each(|reply| audit.holds(&one(SCARCE), reply));
    }
    servers.into_iter().for_each(Server::stop);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_servers_that_commit_in_groups_sell_each_copy_once() {
    sells_out_once(Start::default(), Start::default()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_commits_each_purchase_beside_one_that_groups_sells_each_copy_once() {
    sells_out_once(Start::default(), Start::default().set("ledger.commit=each")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_servers_that_read_from_the_database_sell_each_copy_once() {
    let reads = || Start::default().set("catalogue.reads=database");
    sells_out_once(reads(), reads().set("ledger.commit=each")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_key_at_both_servers_at_once_buys_once() {
    let folder = folder();
    let servers = [Server::start(folder.path()), Server::start(folder.path())];
    for round in 0..20 {
        let key = format!("round {round}");
        let replies = rush(&servers, |_| keyed(BOOK, &key), 40).await;
        let mut replies = replies.into_iter().map(|reply| reply.expect("no fault"));
        let first = replies.next().expect("an answer");
        let mut fresh = u32::from(!first.replayed);
        for reply in replies {
            fresh += u32::from(!reply.replayed);
            assert_eq!(reply.purchase_number, first.purchase_number);
            assert!(reply.success);
        }
        assert_eq!(fresh, 1, "one of them is the purchase, all others are told of it");
    }
    let audit = Audit::of(&servers[0]).await;
    assert_eq!(audit.purchases_of(BOOK), 20);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_whose_purchase_was_refused_stays_refused_at_the_other_server() {
    let folder = folder_with("7,The Last One,scarcity,1,9.99\n");
    let servers = [Server::start(folder.path()), Server::start(folder.path())];
    let (here, there) = (servers[0].shop(), servers[1].shop());
    assert!(here.buy(one(7)).await.expect("an answer").into_inner().success);
    let refused = here.buy(keyed(7, "late")).await.expect("an answer").into_inner();
    assert_eq!(refused.outcome(), BuyOutcome::SoldOut);
    servers[1].admin().restock(RestockRequest { amount: Some(5), id: None }).await.expect("restocked");
    let again = there.buy(keyed(7, "late")).await.expect("an answer").into_inner();
    assert_eq!(again, BuyBookReply { replayed: true, ..refused });
}

/// Waits until a reader sees what `change` did.
async fn seen(what: &str, server: &Server, change: impl AsyncFnOnce(), sees: impl Fn(&Seen) -> bool) {
    let shop = server.shop();
    let look = async || {
        let reply = shop.clone().lookup(one(BOOK)).await.expect("an answer").into_inner();
        reply.book.map(|book| Seen { stock: book.stock, cents: book.price_cents, title: book.title })
    };
    assert!(look().await.is_none_or(|book| !sees(&book)));
    change().await;
    poll(what, async || look().await.filter(|book| sees(book))).await;
}

struct Seen {
    stock: i32,
    cents: i64,
    title: String,
}

async fn shows_what_others_write(start: Start) {
    let folder = folder();
    let (server, other) = (start.serve(folder.path()), Server::start(folder.path()));
    let set_price = async || {
        let request = UpdatePriceRequest { id: BOOK, price_cents: Some(1234) };
        assert!(other.admin().update_price(request).await.expect("an answer").into_inner().success);
    };
    seen("the other server's price", &server, set_price, |book| book.cents == 1234).await;
    let buy = async || drop(other.shop().buy(one(BOOK)).await.expect("bought"));
    seen("the other server's sale", &server, buy, |book| book.stock == 999).await;
    let sql = async |sql: &str| {
        assert_eq!(store::other_program(folder.path()).execute(sql, ()).expect("the change is taken"), 1);
    };
    let stock = async || sql("UPDATE book SET stock = 5 WHERE id = 12365").await;
    seen("another program's stock", &server, stock, |book| book.stock == 5).await;
    let title = async || sql("UPDATE book SET title = 'Thriving' WHERE id = 12365").await;
    seen("another program's title", &server, title, |book| book.title == "Thriving").await;
    let audit = Audit::of(&server).await;
    assert_eq!(audit.of_kind(LogEntryKind::Adjusted).count(), 1);
    assert_eq!(audit.of_kind(LogEntryKind::Edited).count(), 1);
}

#[tokio::test]
async fn readers_soon_see_what_another_program_wrote() {
    shows_what_others_write(Start::default()).await;
}

#[tokio::test]
async fn readers_of_the_database_see_what_another_program_wrote() {
    shows_what_others_write(Start::default().set("catalogue.reads=database")).await;
}

/// Sells from a file that another program changes under the server.
async fn sells_from(folder: &Path, server: &Server, left: i32) {
    let stock = format!("UPDATE book SET stock = {left} WHERE id = {BOOK}");
    store::other_program(folder).execute(&stock, ()).expect("the change is taken");
    let shop = server.shop();
    for copy in 0..left {
        let reply = shop.buy(one(BOOK)).await.expect("an answer").into_inner();
        assert_eq!((reply.success, reply.stock_left), (true, Some(left - copy - 1)));
    }
    assert!(!shop.buy(one(BOOK)).await.expect("an answer").into_inner().success);
}

#[tokio::test]
async fn a_purchase_goes_by_the_stock_that_another_program_has_just_set() {
    let folder = folder();
    let server = Server::start(folder.path());
    for left in [3, 1, 4] {
        sells_from(folder.path(), &server, left).await;
    }
    Audit::of(&server).await;
}
