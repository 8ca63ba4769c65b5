//! Caches of answers: compressed ones, and ones of scattered rows in one piece.

use std::{hash::Hasher as _, io::Write as _, ops::Range, sync::Arc};

use bytes::Bytes;
use flate2::{Compression, write::GzEncoder};
use quick_cache::{Weighter, sync::Cache};
use twox_hash::xxhash3_64;

use crate::{answer::Answer, fault::Fault};

/// Approximate overhead of an entry.
const ENTRY_BYTES: usize = 200;
/// A fast level: the caller waits.
#[cfg(feature = "zstd")]
const ZSTD_LEVEL: i32 = 1;

/// A compression method.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Coding {
    /// RFC 1952.
    Gzip,
    /// RFC 8878.
    #[cfg(feature = "zstd")]
    Zstd,
}

impl Coding {
    /// The codings of this build, the cheapest first.
    pub(crate) const BUILT: &[Self] = &[
        #[cfg(feature = "zstd")]
        Self::Zstd,
        Self::Gzip,
    ];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Gzip => "gzip",
            #[cfg(feature = "zstd")]
            Self::Zstd => "zstd",
        }
    }
}

/// Identity of an answer: equal identities have equal bytes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Identity {
    pub version: u64,
    pub representation: &'static str,
    pub column: usize,
    pub value: Arc<str>,
    pub part: Range<usize>,
}

impl Identity {
    /// Depends on the identity alone, on every machine and after a restart.
    pub(crate) fn digest(&self) -> u64 {
        let mut hasher = xxhash3_64::Hasher::new();
        for number in [self.column, self.part.start, self.part.end] {
            hasher.write(&(number as u64).to_le_bytes());
        }
        hasher.write(self.representation.as_bytes());
        hasher.write(&[0xff]);
        hasher.write(self.value.as_bytes());
        hasher.finish()
    }
}

/// Minimum size: collecting smaller answers takes little of a request's time.
const BYTES_MIN: usize = 64 << 10;
/// One answer takes at most this fraction of the memory: an eighth.
const SHARE_MAX: usize = 8;

/// State of an answer in the cache.
#[derive(Clone, Debug)]
pub(crate) enum JoinedState {
    /// Not requested recently.
    New,
    /// Requested once.
    SeenOnce,
    /// The answer in one piece.
    Complete(Bytes),
}

/// Weighs entries by their memory.
#[derive(Clone, Debug)]
struct ByBytes;

impl Weighter<Identity, Option<Bytes>> for ByBytes {
    fn weight(&self, identity: &Identity, whole: &Option<Bytes>) -> u64 {
        (identity.value.len() + whole.as_ref().map_or(0, Bytes::len) + ENTRY_BYTES) as u64
    }
}

/// The cached answers.
#[derive(Debug)]
pub(crate) struct JoinedAnswers {
    /// `None` for an answer that was requested once.
    cache: Cache<Identity, Option<Bytes>, ByBytes>,
    bytes_max: usize,
}

impl JoinedAnswers {
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
    pub(crate) fn look_up(&self, identity: &Identity) -> JoinedState {
        match self.cache.get(identity) {
            Some(Some(whole)) => JoinedState::Complete(whole),
            Some(None) => JoinedState::SeenOnce,
            None => {
                self.cache.insert(identity.clone(), None);
                JoinedState::New
            }
        }
    }

    pub(crate) fn insert(&self, identity: Identity, whole: Bytes) {
        self.cache.insert(identity, Some(whole));
    }
}

impl Weighter<(Identity, Coding), Bytes> for ByBytes {
    fn weight(&self, (identity, _): &(Identity, Coding), packed: &Bytes) -> u64 {
        (identity.value.len() + packed.len() + ENTRY_BYTES) as u64
    }
}

/// Cached compressed answers.
#[derive(Debug)]
pub(crate) struct CompressedAnswers(Cache<(Identity, Coding), Bytes, ByBytes>);

impl CompressedAnswers {
    pub(crate) fn new(bytes_max: usize) -> Self {
        const USUAL_BYTES: usize = 64 << 10;
        Self(Cache::with_weighter((bytes_max / USUAL_BYTES).max(16), bytes_max as u64, ByBytes))
    }

    /// Memory, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.0.weight()
    }

    /// Returns the cached answer, or the one that another caller is compressing, or that of `pack`.
    pub(crate) async fn get_or_pack(
        &self,
        identity: Identity,
        coding: Coding,
        pack: impl Future<Output = Result<Bytes, Fault>>,
    ) -> Result<Bytes, Fault> {
        self.0.get_or_insert_async(&(identity, coding), pack).await
    }
}

/// Compresses an answer. Blocks.
pub(crate) fn pack(answer: Answer, coding: Coding) -> Bytes {
    let out = Vec::with_capacity(answer.len() / 4);
    let packed = match coding {
        Coding::Gzip => {
            let mut encoder = GzEncoder::new(out, Compression::fast());
            answer.chunks().try_for_each(|chunk| encoder.write_all(&chunk)).and_then(|()| encoder.finish())
        }
        #[cfg(feature = "zstd")]
        Coding::Zstd => zstd::stream::write::Encoder::new(out, ZSTD_LEVEL).and_then(|mut encoder| {
            answer.chunks().try_for_each(|chunk| encoder.write_all(&chunk))?;
            encoder.finish()
        }),
    };
    let mut packed = packed.expect("writing to memory does not fail");
    packed.shrink_to_fit();
    packed.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(value: &str) -> Identity {
        Identity { version: 1, representation: "text", column: 0, value: value.into(), part: 0..1 }
    }

    #[test]
    fn an_answer_is_known_from_the_second_time_on() {
        let joined = JoinedAnswers::new(1 << 20);
        assert!(matches!(joined.look_up(&identity("a")), JoinedState::New));
        assert!(matches!(joined.look_up(&identity("a")), JoinedState::SeenOnce));
        joined.insert(identity("a"), Bytes::from_static(b"whole"));
        assert!(matches!(joined.look_up(&identity("a")), JoinedState::Complete(whole) if whole == "whole"));
        assert!(matches!(joined.look_up(&identity("b")), JoinedState::New));
    }

    #[test]
    fn memory_stays_within_its_bound() {
        let joined = JoinedAnswers::new(1 << 20);
        for number in 0..100 {
            let identity = identity(&number.to_string());
            joined.look_up(&identity);
            joined.insert(identity, vec![0; 100_000].into());
        }
        assert!(joined.bytes() <= 1 << 20, "{}", joined.bytes());
    }

    #[test]
    fn nothing_is_joined_where_nothing_may_be_and_no_answer_takes_most_of_it() {
        let whole = |bytes: usize| Answer::of_bytes(vec![0; bytes].into(), 1, 1);
        // One piece already.
        assert!(!JoinedAnswers::new(64 << 20).takes(&whole(1 << 20)));
        assert!(!JoinedAnswers::new(0).takes(&whole(1 << 20)));
    }
}

#[cfg(test)]
mod packing_tests {
    use std::io::Read as _;

    use super::*;

    #[test]
    fn what_is_packed_comes_out_again() {
        let bytes = Bytes::from("some text ".repeat(10_000));
        let packed = |coding| pack(Answer::of_bytes(bytes.clone(), 1, 1), coding);
        let mut plain = Vec::new();
        flate2::read::GzDecoder::new(&*packed(Coding::Gzip)).read_to_end(&mut plain).unwrap();
        assert_eq!(plain, bytes);
        #[cfg(feature = "zstd")]
        assert_eq!(zstd::decode_all(&*packed(Coding::Zstd)).unwrap(), bytes);
    }
}
