//! Answers of scattered rows in one piece, for those that are asked for again. Must not know who asks.
//!
//! Five thousand rows on as many pages of memory cost more to collect than to send. Who asks for an answer first gets
//! its rows as they are collected; for the second it is collected whole, and kept for the next.

use bytes::Bytes;
use quick_cache::{Weighter, sync::Cache};

use crate::{answer::Answer, packing::Identity};

/// What an entry costs beside its bytes, about.
const ENTRY_BYTES: usize = 200;
/// Smaller answers are collected in a time that is none beside that of a request.
const BYTES_MIN: usize = 64 << 10;
/// A larger share of the memory would be one answer's.
const SHARE_MAX: usize = 8;

/// What is known of an answer.
#[derive(Clone, Debug)]
pub(crate) enum Known {
    /// Nobody has asked lately.
    New,
    /// Somebody has.
    Asked,
    /// It is here.
    Whole(Bytes),
}

#[derive(Clone, Debug)]
struct ByBytes;

impl Weighter<Identity, Option<Bytes>> for ByBytes {
    fn weight(&self, identity: &Identity, whole: &Option<Bytes>) -> u64 {
        (identity.value.len() + whole.as_ref().map_or(0, Bytes::len) + ENTRY_BYTES) as u64
    }
}

/// The answers.
#[derive(Debug)]
pub(crate) struct Kept {
    /// Without bytes: it was asked for once.
    cache: Cache<Identity, Option<Bytes>, ByBytes>,
    bytes_max: usize,
}

impl Kept {
    pub(crate) fn new(bytes_max: usize) -> Self {
        let cache = Cache::with_weighter((bytes_max / BYTES_MIN).max(16), bytes_max as u64, ByBytes);
        Self { cache, bytes_max }
    }

    /// Memory, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.cache.weight()
    }

    /// Whether such an answer is kept at all.
    pub(crate) fn takes(&self, answer: &Answer) -> bool {
        (BYTES_MIN..=self.bytes_max / SHARE_MAX).contains(&answer.len()) && answer.is_scattered()
    }

    /// What is known of it; it was asked for now.
    pub(crate) fn asked(&self, identity: &Identity) -> Known {
        match self.cache.get(identity) {
            Some(Some(whole)) => Known::Whole(whole),
            Some(None) => Known::Asked,
            None => {
                self.cache.insert(identity.clone(), None);
                Known::New
            }
        }
    }

    pub(crate) fn keep(&self, identity: Identity, whole: Bytes) {
        self.cache.insert(identity, Some(whole));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(value: &str) -> Identity {
        Identity { version: 1, shape: "text", column: 0, value: value.into(), part: 0..1 }
    }

    #[test]
    fn an_answer_is_known_from_the_second_time_on() {
        let kept = Kept::new(1 << 20);
        assert!(matches!(kept.asked(&identity("a")), Known::New));
        assert!(matches!(kept.asked(&identity("a")), Known::Asked));
        kept.keep(identity("a"), Bytes::from_static(b"whole"));
        assert!(matches!(kept.asked(&identity("a")), Known::Whole(whole) if whole == "whole"));
        assert!(matches!(kept.asked(&identity("b")), Known::New));
    }

    #[test]
    fn memory_stays_within_its_bound() {
        let kept = Kept::new(1 << 20);
        for number in 0..100 {
            let identity = identity(&number.to_string());
            kept.asked(&identity);
            kept.keep(identity, vec![0; 100_000].into());
        }
        assert!(kept.bytes() <= 1 << 20, "{}", kept.bytes());
    }

    #[test]
    fn nothing_is_kept_where_nothing_may_be_and_no_answer_takes_most_of_it() {
        let whole = |bytes: usize| Answer::whole(vec![0; bytes].into(), 1, 1);
        // One piece already.
        assert!(!Kept::new(64 << 20).takes(&whole(1 << 20)));
        assert!(!Kept::new(0).takes(&whole(1 << 20)));
    }
}
