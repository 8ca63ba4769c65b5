//! `bookstore.Admin`: pages, the growing log, and permissions.

use bookstore::grpc::wire::{
    AddBookRequest, EditBookRequest, ImportRequest, ItemNumberRequest, ListRequest, LogEntryKind, LogRequest,
    RestockRequest, SalesBy, SalesRequest, TailLogRequest, UpdatePriceRequest,
};
use futures_util::stream;
use quire_rpc::{Code, Request, Status};

use crate::common::{
    process::{self, Server, Start},
    store::{BOOK, BOOKS, folder, import_file, keyed, one},
};

#[tokio::test]
async fn a_list_of_many_pages_holds_every_book_once_in_order() {
    let folder = folder();
    let csv = process::run(folder.path(), &["generate", "catalogue", "--rows", "2500"], "").stdout;
    assert!(import_file(folder.path(), &csv, &[]).status.success());
    let server = Server::start(folder.path());
    for (page_size, pages_wanted) in [(0, 3), (1000, 3), (313, 8), (626, 5)] {
        let (mut ids, mut pages, mut page_token) = (Vec::new(), 0, String::new());
        loop {
            let page = server.admin().list(ListRequest { page_size, page_token }).await.expect("a page").into_inner();
            ids.extend(page.books.iter().map(|book| book.id));
            pages += 1;
            page_token = page.next_page_token;
            if page_token.is_empty() {
                break;
            }
        }
        assert_eq!((ids.len(), pages >= pages_wanted), (2504, true), "{pages} pages of {page_size}");
        assert!(ids.is_sorted_by(|a, b| a < b));
    }
}

#[tokio::test]
async fn the_log_is_paged_from_the_newest_without_gaps() {
    let folder = folder();
    let server = Server::start(folder.path());
    for copy in 0..10 {
        server.shop().buy(keyed(BOOK, &format!("copy {copy}"))).await.expect("an answer");
    }
    let (mut numbers, mut page_token) = (Vec::new(), String::new());
    loop {
        let page = server
            .admin()
            .log(LogRequest { page_size: 4, page_token, ..LogRequest::default() })
            .await
            .expect("a page")
            .into_inner();
        assert!(page.entries.len() <= 4);
        numbers.extend(page.entries.iter().map(|entry| entry.number));
        page_token = page.next_page_token;
        if page_token.is_empty() {
            break;
        }
    }
    assert_eq!(numbers, (1..=14).rev().collect::<Vec<i64>>());
}

#[tokio::test]
async fn a_tail_follows_the_log_from_where_it_was_told_to() {
    let folder = folder();
    let server = Server::start(folder.path());
    let mut all =
        server.admin().tail_log(TailLogRequest { after_number: Some(2) }).await.expect("a stream").into_inner();
    let mut new = server.admin().tail_log(TailLogRequest { after_number: None }).await.expect("a stream").into_inner();
    for id in BOOKS {
        assert!(server.shop().buy(keyed(id, &id.to_string())).await.expect("an answer").into_inner().success);
    }
    for number in 3..=8 {
        assert_eq!(all.message().await.expect("an entry").expect("the stream goes on").number, number);
    }
    for (number, id) in (5..).zip(BOOKS) {
        let entry = new.message().await.expect("an entry").expect("the stream goes on");
        let seen = (entry.number, entry.kind(), entry.book_id, entry.before, entry.after);
        assert_eq!(seen, (number, LogEntryKind::Purchase, id, Some(1000), Some(999)));
        assert_eq!(entry.idempotency_key, id.to_string().into_bytes());
    }
}

const TOKEN: &str = "sixteen letters and more";

/// The codes of all operator calls with this `authorization`.
async fn codes(server: &Server, authorization: Option<&'static str>) -> Vec<Code> {
    fn with<T>(message: T, authorization: Option<&'static str>) -> Request<T> {
        let mut request = Request::new(message);
        if let Some(value) = authorization {
            request.metadata_mut().insert("authorization", value).expect("a legal value");
        }
        request
    }
    fn code<T>(answer: Result<T, Status>) -> Code {
        answer.map_or_else(|status| status.code(), |_| Code::Ok)
    }
    let admin = server.admin();
    vec![
        code(admin.list(with(ListRequest::default(), authorization)).await),
        code(admin.restock(with(RestockRequest::default(), authorization)).await),
        code(admin.update_price(with(UpdatePriceRequest { id: BOOK, price_cents: Some(1) }, authorization)).await),
        code(admin.log(with(LogRequest::default(), authorization)).await),
        code(admin.tail_log(with(TailLogRequest::default(), authorization)).await),
        code(admin.edit_book(with(EditBookRequest { id: BOOK, ..EditBookRequest::default() }, authorization)).await),
        code(admin.sales(with(SalesRequest::default(), authorization)).await),
    ]
}

#[tokio::test]
async fn a_server_with_a_token_admits_only_callers_that_send_it() {
    let folder = folder();
    let server = Start::default().variable("QUIRE_ADMIN_TOKEN", TOKEN).serve(folder.path());
    assert_eq!(codes(&server, Some("Bearer sixteen letters and more")).await, [Code::Ok; 7]);
    let wrong = [None, Some("Bearer"), Some("sixteen letters and more"), Some("Bearer sixteen letters and mor")];
    for authorization in wrong {
        assert_eq!(codes(&server, authorization).await, [Code::Unauthenticated; 7], "{authorization:?}");
    }
    assert!(server.shop().buy(one(BOOK)).await.expect("an answer").into_inner().success, "shoppers need none");
    assert!(!server.log.text().contains(TOKEN), "a secret is not logged");
}

/// A reachable server whose services are open to everyone.
fn everyone() -> Start {
    let open = ["shop.open=true", "kv.open=true", "records.open=true", "rpcgame.open=true"];
    open.into_iter().fold(Start::default().flag("--listen=0.0.0.0:0"), Start::set)
}

#[tokio::test]
async fn a_server_that_others_can_reach_lets_no_operator_in_without_a_token() {
    let folder = folder();
    let server = everyone().serve(folder.path());
    assert_eq!(codes(&server, None).await, [Code::Unauthenticated; 7]);
    assert_eq!(codes(&server, Some("Bearer sixteen letters and more")).await, [Code::Unauthenticated; 7]);
    let refused = server.admin().list(ListRequest::default()).await.expect_err("a refusal");
    assert!(refused.message().contains("set admin.token"), "{refused:?}");
    assert!(server.shop().buy(one(BOOK)).await.expect("an answer").into_inner().success, "shoppers are let in");
}

#[tokio::test]
async fn a_server_that_others_can_reach_with_a_token_lets_its_operator_in() {
    let folder = folder();
    let server = everyone().variable("QUIRE_ADMIN_TOKEN", TOKEN).serve(folder.path());
    assert_eq!(codes(&server, Some("Bearer sixteen letters and more")).await, [Code::Ok; 7]);
    assert_eq!(codes(&server, None).await, [Code::Unauthenticated; 7]);
}

/// A request of the operator.
fn with<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.metadata_mut().insert("authorization", &format!("Bearer {TOKEN}")).expect("a legal value");
    request
}

#[tokio::test]
async fn an_operator_restocks_adds_edits_and_delists_and_the_log_has_the_name() {
    let folder = folder();
    let server = Start::default().variable("QUIRE_ADMIN_TOKEN", TOKEN).serve(folder.path());
    let admin = server.admin();
    let restock = |id, amount| RestockRequest { amount: Some(amount), id: Some(id) };
    let raised = admin.restock(with(restock(BOOK, 1234))).await.expect("an answer").into_inner();
    assert_eq!((raised.success, raised.books_raised, raised.number), (true, 1, 5));
    assert_eq!((raised.stock_before, raised.stock_after, raised.amount), (Some(1000), Some(1234), 1234));
    let enough = admin.restock(with(restock(BOOK, 7))).await.expect("an answer").into_inner();
    assert_eq!((enough.success, enough.books_raised, enough.number, enough.stock_after), (true, 0, 0, Some(1234)));
    let nothing = admin.restock(with(restock(1, 7))).await.expect("an answer").into_inner();
    assert_eq!((nothing.success, &*nothing.message), (false, "there is no book 1"));

    let book = AddBookRequest { title: "New".to_owned(), topic: "t".to_owned(), stock: 3, price_cents: 5, id: None };
    let added = admin.add_book(with(book)).await.expect("an answer").into_inner();
    let id = added.book.expect("a book").id;
    assert_eq!((added.success, added.number, id), (true, 6, 53574));
    let again = AddBookRequest { id: Some(id), title: "x".to_owned(), topic: "t".to_owned(), ..Default::default() };
    let taken = admin.add_book(with(again)).await.expect("an answer").into_inner();
    assert_eq!((taken.success, taken.book.expect("a book").title), (false, "New".to_owned()));

    let lookup = async || server.shop().lookup(ItemNumberRequest { id, ..ItemNumberRequest::default() }).await;
    assert!(lookup().await.expect("an answer").into_inner().success);
    let edit = EditBookRequest { id, title: Some("Newer".to_owned()), listed: Some(false), ..Default::default() };
    let edited = admin.edit_book(with(edit)).await.expect("an answer").into_inner();
    let (before, after) = (edited.before.expect("a book"), edited.after.expect("a book"));
    assert_eq!((&*before.title, before.delisted, &*after.title, after.delisted), ("New", false, "Newer", true));
    assert!(!lookup().await.expect("an answer").into_inner().success, "shoppers do not find it");
    let books = admin.list(with(ListRequest::default())).await.expect("a page").into_inner().books;
    assert_eq!(books.iter().filter(|book| book.delisted).map(|book| book.id).collect::<Vec<_>>(), [id]);

    let filter = LogRequest { book_id: Some(id), kinds: vec![LogEntryKind::Delisted.into()], ..Default::default() };
    let log = admin.log(with(filter)).await.expect("a page").into_inner().entries;
    assert_eq!(log.len(), 1);
    assert_eq!((log[0].kind(), &*log[0].actor, log[0].number), (LogEntryKind::Delisted, "admin.token", edited.number));
    let wrong = LogRequest { kinds: vec![13], ..LogRequest::default() };
    assert_eq!(admin.log(with(wrong)).await.expect_err("a refusal").code(), Code::InvalidArgument);
}

#[tokio::test]
async fn an_import_is_previewed_and_applied_and_sales_are_summed() {
    let folder = folder();
    let server = Server::start(folder.path());
    let csv = b"id,title,topic,stock,price\n7,Seven,new,3,1.00\n8,Eight,new,x,1.00\n";
    let chunks = |apply: bool| {
        let chunk = move |csv: &[u8]| ImportRequest { apply, csv: csv.to_vec() };
        stream::iter(csv.chunks(5).map(chunk).collect::<Vec<_>>())
    };
    let plan = server.admin().import(chunks(false)).await.expect("an answer").into_inner();
    assert_eq!((plan.added, plan.changed, plan.unchanged, plan.refused), (1, 0, 0, 1));
    assert_eq!((plan.refused_rows[0].line, &*plan.refused_rows[0].column), (3, "stock"));
    let bought = async || server.shop().buy(one(7)).await;
    assert!(!bought().await.expect("an answer").into_inner().success, "a preview adds nothing");
    let done = server.admin().import(chunks(true)).await.expect("an answer").into_inner();
    assert_eq!(done, plan);
    assert!(bought().await.expect("an answer").into_inner().success);
    let wrong = stream::iter([ImportRequest { apply: true, csv: b"a,b\n".to_vec() }]);
    let refused = server.admin().import(wrong).await.expect_err("a refusal");
    assert!(refused.message().contains("id,title,topic,stock,price"), "{refused:?}");

    let by_book = SalesRequest { by: SalesBy::Book.into(), ..SalesRequest::default() };
    let mut sales = server.admin().sales(by_book).await.expect("a stream").into_inner();
    let first = sales.message().await.expect("a message").expect("the total");
    let total = first.total.expect("the total");
    assert_eq!((first.rows.len(), total.purchases, total.copies, total.cents), (0, 1, 1, 100));
    let rows = sales.message().await.expect("a message").expect("rows").rows;
    assert_eq!((rows.len(), rows[0].book_id, &*rows[0].title, &*rows[0].day), (1, 7, "Seven", ""));
    assert!(sales.message().await.expect("the end").is_none());
}
