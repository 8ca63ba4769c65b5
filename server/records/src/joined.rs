//! Cache of answers of scattered rows, each joined into one piece.
//!
//! Five thousand rows on as many pages of memory cost more to collect than to send. An answer's first caller gets its
//! rows as they are collected; for the second they are joined and cached.

use bytes::Bytes;
use quick_cache::{Weighter, sync::Cache};

use crate::{answer::Answer, packing::Identity};

/// Approximate overhead of an entry.
const ENTRY_BYTES: usize = 200;
/// Minimum size: collecting smaller answers takes little of a request's time.
const BYTES_MIN: usize = 64 << 10;
/// One answer takes at most this fraction of the memory: an eighth.
const SHARE_MAX: usize = 8;

/// State of an answer in the cache.
#[derive(Clone, Debug)]
pub(crate) enum Known {
    /// Not requested recently.
    New,
    /// Requested once.
    Asked,
    /// The answer in one piece.
    Whole(Bytes),
}

#[derive(Clone, Debug)]
struct ByBytes;

impl Weighter<Identity, Option<Bytes>> for ByBytes {
    fn weight(&self, identity: &Identity, whole: &Option<Bytes>) -> u64 {
        (identity.value.len() + whole.as_ref().map_or(0, Bytes::len) + ENTRY_BYTES) as u64
    }
}

/// The cached answers.
#[derive(Debug)]
pub(crate) struct Joined {
    /// `None` for an answer that was requested once.
    cache: Cache<Identity, Option<Bytes>, ByBytes>,
    bytes_max: usize,
}

impl Joined {
    pub(crate) fn new(bytes_max: usize) -> Self {
        let cache = Cache::with_weighter((bytes_max / BYTES_MIN).max(16), bytes_max as u64, ByBytes);
        Self { cache, bytes_max }
    }

    /// Memory, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.cache.weight()
    }

    /// True if such an answer is worth joining.
    pub(crate) fn takes(&self, answer: &Answer) -> bool {
        (BYTES_MIN..=self.bytes_max / SHARE_MAX).contains(&answer.len()) && answer.is_scattered()
    }

    /// Returns an answer's state in the cache, and records the request.
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

    pub(crate) fn insert(&self, identity: Identity, whole: Bytes) {
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
        let joined = Joined::new(1 << 20);
        assert!(matches!(joined.asked(&identity("a")), Known::New));
        assert!(matches!(joined.asked(&identity("a")), Known::Asked));
        joined.insert(identity("a"), Bytes::from_static(b"whole"));
        assert!(matches!(joined.asked(&identity("a")), Known::Whole(whole) if whole == "whole"));
        assert!(matches!(joined.asked(&identity("b")), Known::New));
    }

    #[test]
    fn memory_stays_within_its_bound() {
        let joined = Joined::new(1 << 20);
        for number in 0..100 {
            let identity = identity(&number.to_string());
            joined.asked(&identity);
            joined.insert(identity, vec![0; 100_000].into());
        }
        assert!(joined.bytes() <= 1 << 20, "{}", joined.bytes());
    }

    #[test]
    fn nothing_is_joined_where_nothing_may_be_and_no_answer_takes_most_of_it() {
        let whole = |bytes: usize| Answer::whole(vec![0; bytes].into(), 1, 1);
        // One piece already.
        assert!(!Joined::new(64 << 20).takes(&whole(1 << 20)));
        assert!(!Joined::new(0).takes(&whole(1 << 20)));
    }
}
