//! Books and their prices, as shoppers and operators see them.

use std::fmt;

use crate::{error::Error, wire::bookstore as wire};

/// An amount of money, in hundredths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cents(pub i64);

/// With two decimals, as in `42.00`.
impl fmt::Display for Cents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (sign, cents) = (if self.0 < 0 { "-" } else { "" }, self.0.unsigned_abs());
        write!(f, "{sign}{}.{:02}", cents / 100, cents % 100)
    }
}

/// A book of the catalogue.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Book {
    /// At least 1.
    pub id: i32,
    /// The title.
    pub title: String,
    /// The topic.
    pub topic: String,
    /// Copies that can be bought.
    pub stock: i32,
    /// Copies that reservations hold; they are not in `stock`.
    pub held: i32,
    /// The price of a copy.
    pub price: Cents,
    /// False for a book that shoppers neither find nor buy.
    pub listed: bool,
}

impl From<wire::Book> for Book {
    fn from(book: wire::Book) -> Self {
        // A server without cents only sends the fraction.
        #[expect(clippy::cast_possible_truncation, reason = "a conversion that saturates is right for any fraction")]
        let price = if book.price_cents == 0 { (book.price * 100.0).round() as i64 } else { book.price_cents };
        Self {
            id: book.id,
            title: book.title,
            topic: book.topic,
            stock: book.stock,
            held: book.held,
            price: Cents(price),
            listed: !book.delisted,
        }
    }
}

pub(crate) fn check_id(id: i32) -> Result<(), Error> {
    if id < 1 {
        return Err(Error::Argument(format!("id is {id}; it must be a whole number from 1 to {}", i32::MAX)));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_price_is_exact_and_shown_with_two_decimals() {
        let price = |price_cents, price| Book::from(wire::Book { price_cents, price, ..wire::Book::default() }).price;
        assert_eq!(price(1850, 18.5), Cents(1850));
        assert_eq!(price(0, 29.99), Cents(2999), "from a server that knows no cents");
        let shown = [4200, 7, -5, 0].map(|cents| Cents(cents).to_string());
        assert_eq!(shown, ["42.00", "0.07", "-0.05", "0.00"]);
    }
}
