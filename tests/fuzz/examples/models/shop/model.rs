//! Model of a bookstore, by its contract: stock, prices, keys and the log.

use std::collections::{BTreeMap, HashMap};

use kit::ledger::{Entry, Kind, Ledger};

use crate::calls::message::{Message, varint};
use crate::calls::unary::Refusal;

const INVALID: u8 = 3;
const EXHAUSTED: u8 = 8;
/// Copies of each book of the sample.
const SAMPLE_STOCK: i64 = 1000;
/// Few, so that pages end.
pub const PAGE_MAX: usize = 5;
pub const QUANTITY_MAX: i64 = 1 << 30;
const STOCK_MAX: i64 = i32::MAX as i64;
const CENTS_MAX: i64 = 100_000_000_000;
const KEY_MAX: usize = 64;

/// The sample, and books to import, which have no copies.
const BOOKS: [(i64, &str, &str, i64); 13] = [
    (12365, "Surviving College", "college life", 2999),
    (12498, "Cooking for the Impatient Undergraduate", "college life", 1850),
    (53477, "Achieving Less Bugs with More Hugs in CSCI 339", "distributed systems", 5995),
    (53573, "Distributed Systems for Dummies", "distributed systems", 3900),
    (1, "One", "a", 0),
    (2, "Two", "a", 1),
    (127, "\"Quoted\", with a comma", "a", 10),
    (128, "Sixteen", "a", 99),
    (16_383, "Two bytes", "a", 100),
    (16_384, "Three bytes", "a", 12_345),
    (60_000, "Größe 雪 😀", "Märchen, 雪", 1999),
    (2_000_000_000, "Alone", "z", 100_000_000_000),
    (2_147_483_647, "The last", "a", 12_345_678_901),
];
const SAMPLE: usize = 4;

pub type Reply = Result<Message, Refusal>;

struct Book {
    title: &'static str,
    topic: &'static str,
    cents: i64,
}

pub struct Model {
    books: BTreeMap<i64, Book>,
    ledger: Ledger,
    /// Times of entries that have been read, by number.
    times_ms: HashMap<usize, u64>,
    /// Tokens of pages that have been read.
    pub tokens: HashMap<(String, String), String>,
}

/// The file that is imported.
pub fn catalogue() -> String {
    let quoted = |text: &str| format!("\"{}\"", text.replace('"', "\"\""));
    let row = |(id, title, topic, cents): &(i64, &str, &str, i64)| {
        format!("{id},{},{},0,{}.{:02}\n", quoted(title), quoted(topic), cents / 100, cents % 100)
    };
    "id,title,topic,stock,price\n".to_owned() + &BOOKS[SAMPLE..].iter().map(row).collect::<String>()
}

pub fn invalid(field: &str, is: impl std::fmt::Display, want: &str) -> Refusal {
    Refusal::new(INVALID, format!("{field} is {is}; it must be {want}"))
}

pub fn limit(name: &str, at: usize, advice: &str) -> Refusal {
    Refusal::new(EXHAUSTED, format!("the server's limit {name} is {at}: {advice}"))
}

fn copies(count: i64) -> String {
    if count == 1 { "1 copy".to_owned() } else { format!("{count} copies") }
}

fn no_such_book(id: i64) -> String {
    format!("there is no book {id}")
}

impl Model {
    pub fn new() -> Self {
        let (mut books, mut ledger) = (BTreeMap::new(), Ledger::default());
        for (place, (book, title, topic, cents)) in BOOKS.into_iter().enumerate() {
            let stock = if place < SAMPLE { SAMPLE_STOCK } else { 0 };
            books.insert(book, Book { title, topic, cents });
            let (before, after) = (Some(0), Some(stock));
            ledger.append(Entry { kind: Kind::Added, book, quantity: None, before, after, key: Vec::new() }).unwrap();
        }
        Self { books, ledger, times_ms: HashMap::new(), tokens: HashMap::new() }
    }

    pub fn ids(&self) -> Vec<i64> {
        self.books.keys().copied().collect()
    }

    pub fn topics(&self) -> BTreeMap<&'static str, u64> {
        self.books.values().fold(BTreeMap::new(), |mut topics, book| {
            *topics.entry(book.topic).or_default() += 1;
            topics
        })
    }

    pub fn of_topic(&self, topic: &str) -> Vec<i64> {
        self.books.iter().filter(|(_, book)| book.topic == topic).map(|(id, _)| *id).collect()
    }

    pub fn stock(&self, id: i64) -> i64 {
        self.ledger.stock(id).unwrap()
    }

    pub fn last_number(&self) -> usize {
        self.ledger.entries().len()
    }

    pub fn book(&self, id: i64) -> Message {
        let Book { title, topic, cents } = &self.books[&id];
        Message::new()
            .number(1, id as u64)
            .bytes(2, title.as_bytes())
            .bytes(3, topic.as_bytes())
            .number(4, self.stock(id) as u64)
            .double(5, *cents as f64 / 100.0)
            .number(6, *cents as u64)
    }

    pub fn lookup(&self, id: i64) -> Reply {
        Ok(if self.books.contains_key(&id) {
            Message::new().number(1, 1).message(3, &self.book(id))
        } else {
            Message::new().bytes(2, no_such_book(id).as_bytes())
        })
    }

    pub fn buy(&mut self, id: i64, quantity: Option<i64>, key: &[u8]) -> Reply {
        if key.len() > KEY_MAX {
            let is = format!("{} bytes", key.len());
            return Err(invalid("idempotency_key", is, "1 to 64 bytes, or none for no key"));
        }
        let wanted = quantity.unwrap_or(1);
        if !(1..=QUANTITY_MAX).contains(&wanted) {
            return Err(invalid(
                "quantity",
                wanted,
                &format!("a whole number from 1 to {QUANTITY_MAX}, the server's limit limits.quantity"),
            ));
        }
        if id < 1 {
            return Ok(receipt(id, None, None, 0).number(6, 0));
        }
        if let Some(number) = self.ledger.with_key(key) {
            return self.again(number, id, wanted);
        }
        let (left, number) = self.ledger.buy(id, wanted, key);
        let is_sold = number.is_some_and(|number| self.ledger.entries()[number - 1].kind == Kind::Purchase);
        Ok(receipt(id, is_sold.then_some(wanted), left, number.unwrap_or(0) as u64).number(6, 0))
    }

    fn again(&self, number: usize, id: i64, wanted: i64) -> Reply {
        let first = &self.ledger.entries()[number - 1];
        if (first.book, first.quantity) == (id, Some(wanted)) {
            return Ok(
                receipt(id, (first.kind == Kind::Purchase).then_some(wanted), first.after, number as u64).number(6, 1)
            );
        }
        let why = format!(
            "this idempotency key belongs to an earlier request, for {} of book {} (number {number} in the log): \
             send that request again, or this one with a new key",
            copies(first.quantity.unwrap()),
            first.book
        );
        Err(Refusal::new(INVALID, why))
    }

    pub fn set_price(&mut self, id: i64, cents: Option<i64>) -> Reply {
        if id < 1 {
            return Err(invalid("id", id, "a whole number from 1 to 2147483647"));
        }
        let Some(cents) = cents else { return Err(invalid("price_cents", "absent", "the new price in cents")) };
        if !(0..=CENTS_MAX).contains(&cents) {
            let want = "a price from 0.00 to 1000000000.00 with at most two decimals, in cents";
            return Err(invalid("price_cents", cents, want));
        }
        let Some(book) = self.books.get_mut(&id) else {
            return Ok(Message::new().bytes(2, no_such_book(id).as_bytes()));
        };
        let before = std::mem::replace(&mut book.cents, cents);
        let (was, is) = (Some(before), Some(cents));
        let entry = Entry { kind: Kind::Price, book: id, quantity: None, before: was, after: is, key: Vec::new() };
        let number = self.ledger.append(entry).unwrap() as u64;
        let message = format!("book {id} costs {}.{:02} now", cents / 100, cents % 100);
        let reply = Message::new().number(1, 1).bytes(2, message.as_bytes()).number(3, before as u64);
        Ok(reply.number(4, cents as u64).number(5, number))
    }

    pub fn restock(&mut self, amount: Option<i64>) -> Reply {
        let amount = amount.unwrap_or(20);
        if !(0..=STOCK_MAX).contains(&amount) {
            return Err(invalid("amount", amount, &format!("a whole number from 0 to {STOCK_MAX}")));
        }
        Ok(Message::new().number(1, self.ledger.restock(amount) as u64).number(2, amount as u64).number(3, 1))
    }

    /// An entry of the log; its time is unknown until it has been read once.
    pub fn entry(&self, number: usize) -> Message {
        let entry = &self.ledger.entries()[number - 1];
        let message = Message::new().number(1, number as u64);
        let message = match self.times_ms.get(&number) {
            Some(time_ms) => message.number(2, *time_ms),
            None => message.unknown(&[2 << 3], TIME_BYTES),
        };
        let signed = |number: Option<i64>| number.map(i64::cast_unsigned);
        let message =
            message.number(3, entry.kind as u64).number(4, entry.book as u64).optional(5, signed(entry.quantity));
        // Without a credential an operator has no name.
        let actor: &[u8] = if matches!(entry.kind, Kind::Restock | Kind::Price) { b"-" } else { b"" };
        message.optional(6, signed(entry.before)).optional(7, signed(entry.after)).bytes(8, &entry.key).bytes(9, actor)
    }

    /// Of these entries, the numbers of those with unknown times.
    pub fn timeless(&self, numbers: &[usize]) -> Vec<usize> {
        numbers.iter().copied().filter(|number| !self.times_ms.contains_key(number)).collect()
    }

    /// Records the time of an entry, which must be between the two.
    pub fn learn(&mut self, number: usize, bytes: &[u8], between: [u64; 2]) {
        let time_ms = bytes.iter().rev().fold(0, |time, byte| time << 7 | u64::from(byte & 0x7f));
        let mut again = Vec::new();
        varint(time_ms, &mut again);
        assert_eq!(again, bytes, "a time");
        assert!((between[0]..=between[1]).contains(&time_ms), "entry {number} is of {time_ms}, not of {between:?}");
        let known = self.times_ms.insert(number, time_ms);
        assert!(known.is_none_or(|known| known == time_ms), "entry {number} has two times");
    }
}

/// Bytes of a time in milliseconds, from 2004 to 2109.
pub const TIME_BYTES: usize = 6;

const BOUGHT: u64 = 1;
const SOLD_OUT: u64 = 2;
const TOO_FEW: u64 = 3;
const NO_SUCH_BOOK: u64 = 4;

/// Fields of the reply up to the remaining stock.
fn receipt(id: i64, sold: Option<i64>, left: Option<i64>, number: u64) -> Message {
    let (outcome, message) = match left {
        None => (NO_SUCH_BOOK, no_such_book(id)),
        _ if sold == Some(1) => (BOUGHT, format!("bought book {id}")),
        _ if sold.is_some() => (BOUGHT, format!("bought {} copies of book {id}", sold.unwrap_or_default())),
        Some(0) => (SOLD_OUT, format!("book {id} is sold out")),
        Some(1) => (TOO_FEW, format!("only 1 copy of book {id} is left")),
        Some(left) => (TOO_FEW, format!("only {left} copies of book {id} are left")),
    };
    let reply = Message::new().number(1, sold.is_some().into()).bytes(2, message.as_bytes());
    reply.number(3, outcome).number(4, number).optional(5, left.map(i64::cast_unsigned))
}
