//! The sample catalogue of a new store. Ids and topics are part of the wire contract.

use crate::{
    domain::{BookId, NewBook},
    money::Cents,
};

/// Copies of each book.
pub const STOCK: u32 = 1000;

const BOOKS: [(i32, &str, &str, i64); 4] = [
    (12365, "Surviving College", "college life", 2999),
    (12498, "Cooking for the Impatient Undergraduate", "college life", 1850),
    (53477, "Achieving Less Bugs with More Hugs in CSCI 339", "distributed systems", 5995),
    (53573, "Distributed Systems for Dummies", "distributed systems", 3900),
];

/// The four books.
pub fn books() -> impl Iterator<Item = NewBook> {
    BOOKS.iter().filter_map(|&(id, title, topic, cents)| {
        Some(NewBook {
            id: BookId::new(id)?,
            title: title.to_owned(),
            topic: topic.to_owned(),
            stock: STOCK,
            price: Cents::new(cents)?,
            listed: true,
        })
    })
}
