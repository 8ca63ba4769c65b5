//! Page tokens of searches: the next page's start, and a checksum that ties it to the same query. Not secret: it
//! detects mistakes, not attacks.

use std::hash::Hasher as _;

use siphasher::sip::SipHasher13;

use crate::{domain::BookId, fault::Fault};

/// Bytes of a [`for_book`] token.
pub(super) const BOOK_BYTES: usize = 16;

/// Token of the page of `topic` after the book `id`.
pub(super) fn for_book(topic: &str, id: BookId) -> String {
    format!("{:08x}{:08x}", sum(topic, &id.get().to_be_bytes()), id.get())
}

/// Parses [`for_book`]; `None` for the first page.
pub(super) fn book(topic: &str, token: &str) -> Result<Option<BookId>, Fault> {
    if token.is_empty() {
        return Ok(None);
    }
    let id = token.get(8..).and_then(|id| i32::from_str_radix(id, 16).ok()).and_then(BookId::new);
    match id.filter(|id| for_book(topic, *id) == token) {
        Some(id) => Ok(Some(id)),
        None => Err(bad(token, "empty, or next_page_token of the page before, with the same topic")),
    }
}

/// Token of the page of topics after `name`.
pub(super) fn for_topic(name: &str) -> String {
    format!("{:08x}{name}", sum("", name.as_bytes()))
}

/// Parses [`for_topic`]; `None` for the first page.
pub(super) fn topic(token: &str) -> Result<Option<&str>, Fault> {
    if token.is_empty() {
        return Ok(None);
    }
    match token.get(8..).filter(|name| for_topic(name) == token) {
        Some(name) => Ok(Some(name)),
        None => Err(bad(token, "empty, or next_page_token of the page before")),
    }
}

/// Error for an invalid token.
pub(super) fn bad(token: &str, want: &str) -> Fault {
    Fault::invalid("page_token", token, want)
}

fn sum(question: &str, place: &[u8]) -> u32 {
    let mut hasher = SipHasher13::new();
    hasher.write(question.as_bytes());
    // A separator that no text contains.
    hasher.write(&[0xff]);
    hasher.write(place);
    let [a, b, c, d, ..] = hasher.finish().to_be_bytes();
    u32::from_be_bytes([a, b, c, d])
}

/// A request's page size; 0 is the default.
pub(super) fn page_size(size: i32) -> Result<usize, Fault> {
    usize::try_from(size).map_err(|_| Fault::invalid("page_size", size, "0 for the default, or a positive number"))
}

#[cfg(test)]
mod tests {
    use super::{book, for_book, for_topic, topic};
    use crate::domain::BookId;

    #[test]
    fn tokens_are_read_back_for_the_same_question_only() {
        let id = BookId::new(60_000).unwrap();
        let token = for_book("cooking", id);
        assert_eq!(token.len(), super::BOOK_BYTES);
        assert_eq!(book("cooking", &token), Ok(Some(id)));
        assert!(book("poetry", &token).is_err());
        assert_eq!(topic(&for_topic("cooking")), Ok(Some("cooking")));
        assert_eq!((book("cooking", ""), topic("")), (Ok(None), Ok(None)));
    }

    #[test]
    fn what_is_no_token_is_refused() {
        let token = for_book("cooking", BookId::new(60_000).unwrap());
        let upper = token.to_uppercase();
        let others = ["7", "next", "ééééé", "0000000000000000", "ffffffffffffffff", &token[1..], &upper, "ééééééééé"];
        for text in others {
            assert!(book("cooking", text).is_err(), "{text}");
            assert!(topic(text).is_err(), "{text}");
        }
    }
}
