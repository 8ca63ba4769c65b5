//! Reads the whole transaction log and catalogue through `Admin`, and checks that they agree.

use std::collections::BTreeMap;

use bookstore::grpc::wire::{Book, BuyBookReply, ItemNumberRequest, ListRequest, LogEntry, LogEntryKind, LogRequest};
use kit::ledger::{Kind, Ledger};

use super::process::Server;

/// A server's log and catalogue, oldest entry first.
#[derive(Debug)]
pub(crate) struct Audit {
    pub(crate) entries: Vec<LogEntry>,
    pub(crate) books: Vec<Book>,
}

impl Audit {
    /// Reads everything from a server without purchases meanwhile, and checks for each book that its entries follow
    /// from each other and lead to its stock.
    pub(crate) async fn of(server: &Server) -> Self {
        let admin = server.admin();
        let (mut entries, mut books) = (Vec::new(), Vec::new());
        let mut page_token = String::new();
        loop {
            let page =
                admin.log(LogRequest { page_token, ..LogRequest::default() }).await.expect("a page").into_inner();
            entries.extend(page.entries);
            page_token = page.next_page_token;
            if page_token.is_empty() {
                break;
            }
        }
        loop {
            let page = admin.list(ListRequest { page_size: 0, page_token }).await.expect("a page").into_inner();
            books.extend(page.books);
            page_token = page.next_page_token;
            if page_token.is_empty() {
                break;
            }
        }
        entries.reverse();
        let audit = Self { entries, books };
        audit.check();
        audit
    }

    fn check(&self) {
        let mut ledger = Ledger::default();
        for (entry, number) in self.entries.iter().zip(1..) {
            assert_eq!(entry.number, number, "no number is left out or given twice: {entry:?}");
            let known = kit::ledger::Entry {
                kind: Kind::of(entry.kind).expect("a kind of the contract"),
                book: entry.book_id.into(),
                quantity: entry.quantity.map(i64::from),
                before: entry.before,
                after: entry.after,
                key: entry.idempotency_key.clone(),
            };
            ledger.append(known).unwrap_or_else(|error| panic!("entry {number}: {error}"));
        }
        let listed: BTreeMap<i64, i64> = self.books.iter().map(|book| (book.id.into(), book.stock.into())).collect();
        assert_eq!(ledger.stocks(), &listed, "stock + sold = initial + restocked");
    }

    /// Asserts that an acknowledged purchase is in the log as its buyer knows it.
    pub(crate) fn holds(&self, wish: &ItemNumberRequest, reply: &BuyBookReply) {
        let place = usize::try_from(reply.purchase_number - 1).expect("a number from 1");
        let entry = self.entries.get(place).unwrap_or_else(|| panic!("acknowledged and lost: {reply:?}"));
        let known = (entry.kind(), entry.book_id, entry.quantity.unwrap_or_default(), &entry.idempotency_key);
        let kind = if reply.success { LogEntryKind::Purchase } else { LogEntryKind::Refused };
        assert_eq!(known, (kind, wish.id, wish.quantity.unwrap_or(1), &wish.idempotency_key), "{reply:?}");
        assert_eq!(entry.after, reply.stock_left.map(i64::from), "{reply:?}");
    }

    pub(crate) fn purchases_of(&self, book: i32) -> usize {
        self.of_kind(LogEntryKind::Purchase).filter(|entry| entry.book_id == book).count()
    }

    pub(crate) fn of_kind(&self, kind: LogEntryKind) -> impl Iterator<Item = &LogEntry> {
        self.entries.iter().filter(move |entry| entry.kind() == kind)
    }

    pub(crate) fn stock_of(&self, book: i32) -> i32 {
        self.books.iter().find(|found| found.id == book).expect("the book is listed").stock
    }
}
