//! Encodes books directly from the catalogue, without intermediate copies of titles. Must equal prost's encoding of the
//! same message byte for byte.

use std::sync::Arc;

use quire_rpc::wire;

use crate::{catalogue::Book, money::Cents};

/// A book with fixed stock and price, so that its length does not change during encoding.
struct Snapshot<'b> {
    book: &'b Book,
    stock: u64,
    held: u64,
    price: Cents,
}

impl<'b> Snapshot<'b> {
    fn of(book: &'b Book) -> Self {
        Self { book, stock: book.stock().into(), held: book.held().into(), price: book.price() }
    }

    fn id(&self) -> u64 {
        self.book.id().get().unsigned_abs().into()
    }

    fn cents(&self) -> u64 {
        self.price.get().unsigned_abs()
    }

    fn len(&self) -> usize {
        let price = if self.price == Cents::default() { 0 } else { 9 };
        let texts = [self.book.title(), self.book.topic()].map(|text| wire::bytes_len(text.len()));
        let numbers = [self.id(), self.stock, self.cents(), self.held].map(wire::number_len);
        price + texts.iter().chain(&numbers).sum::<usize>()
    }

    /// Encodes it as field 3 of its message.
    fn put(&self, out: &mut Vec<u8>) {
        wire::put_length(3, self.len(), out);
        wire::put_number(1, self.id(), out);
        wire::put_bytes(2, self.book.title().as_bytes(), out);
        wire::put_bytes(3, self.book.topic().as_bytes(), out);
        wire::put_number(4, self.stock, out);
        if self.price != Cents::default() {
            wire::put_double(5, self.price.as_f64(), out);
        }
        wire::put_number(6, self.cents(), out);
        wire::put_number(8, self.held, out);
    }
}

/// `BookInfoReply` with success.
pub(super) fn book_info(book: &Book, out: &mut Vec<u8>) {
    wire::put_number(1, 1, out);
    Snapshot::of(book).put(out);
}

/// Appends a `BookListReply` with success and no message to `out`: the first of `books` that fit into `room` bytes, and
/// at least `least`. Returns their number.
pub(super) fn book_list(books: &[Arc<Book>], room: usize, least: usize, out: &mut Vec<u8>) -> usize {
    let start = out.len();
    wire::put_number(1, 1, out);
    for (index, book) in books.iter().enumerate() {
        let before = out.len();
        Snapshot::of(book).put(out);
        if out.len() - start > room && index >= least {
            out.truncate(before);
            return index;
        }
    }
    books.len()
}

/// Text of a `BookListReply` without books.
pub(super) fn message(text: &str, out: &mut Vec<u8>) {
    wire::put_bytes(2, text.as_bytes(), out);
}

/// Token of a `BookListReply` with a next page.
pub(super) fn next_page_token(token: &str, out: &mut Vec<u8>) {
    wire::put_bytes(4, token.as_bytes(), out);
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;
    use quire_rpc::prost::Message as _;

    use super::{super::wire, book_info, book_list, next_page_token};
    use crate::{
        catalogue::Book,
        domain::{BookId, NewBook},
        money::Cents,
    };

    fn book() -> impl Strategy<Value = Arc<Book>> {
        let copies = 0..=i32::MAX.unsigned_abs();
        let parts = (1..=i32::MAX, ".{0,300}", ".{0,200}", copies.clone(), 0..=Cents::MAX.get(), copies);
        parts.prop_map(|(id, title, topic, stock, cents, held)| {
            let (id, price) = (BookId::new(id).unwrap(), Cents::new(cents).unwrap());
            let book = Book::from(NewBook { id, title, topic, stock, price, listed: true });
            book.publish_held(held);
            Arc::new(book)
        })
    }

    proptest! {
        #[test]
        fn replies_are_what_prost_makes_of_them(books in prop::collection::vec(book(), 0..4)) {
            let mut out = Vec::new();
            prop_assert_eq!(book_list(&books, usize::MAX, 0, &mut out), books.len());
            next_page_token("next", &mut out);
            let mut list = wire::BookListReply { success: true, next_page_token: "next".to_owned(), ..Default::default() };
            list.books = books.iter().map(|book| (&**book).into()).collect();
            prop_assert_eq!(out, list.encode_to_vec());
            for book in &books {
                let mut out = Vec::new();
                book_info(book, &mut out);
                let info = wire::BookInfoReply { success: true, book: Some((&**book).into()), ..Default::default() };
                prop_assert_eq!(out, info.encode_to_vec());
            }
        }

        #[test]
        fn a_list_that_is_cut_is_as_long_as_it_can_be(
            books in prop::collection::vec(book(), 1..6), room in 2_usize..2000, least in 0_usize..2,
        ) {
            let (mut out, mut more) = (Vec::new(), Vec::new());
            let put = book_list(&books, room, least, &mut out);
            prop_assert!(out.len() <= room || put <= least);
            if put < books.len() {
                book_list(&books[..=put], usize::MAX, 0, &mut more);
                prop_assert!(more.len() > room && more.starts_with(&out));
            }
        }
    }
}
