//! Cache of compressed answers.

use std::{hash::Hasher as _, io::Write as _, ops::Range, sync::Arc};

use bytes::Bytes;
use flate2::{Compression, write::GzEncoder};
use quick_cache::{Weighter, sync::Cache};
use twox_hash::xxhash3_64;

use crate::{answer::Answer, fault::Fault};

/// A fast level: the caller waits.
#[cfg(feature = "zstd")]
const ZSTD_LEVEL: i32 = 1;
/// Approximate overhead of an entry.
const ENTRY_BYTES: usize = 200;

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
    pub shape: &'static str,
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
        hasher.write(self.shape.as_bytes());
        hasher.write(&[0xff]);
        hasher.write(self.value.as_bytes());
        hasher.finish()
    }
}

#[derive(Clone, Debug)]
struct ByBytes;

impl Weighter<(Identity, Coding), Bytes> for ByBytes {
    fn weight(&self, (identity, _): &(Identity, Coding), packed: &Bytes) -> u64 {
        (identity.value.len() + packed.len() + ENTRY_BYTES) as u64
    }
}

/// Cached compressed answers.
#[derive(Debug)]
pub(crate) struct Packed(Cache<(Identity, Coding), Bytes, ByBytes>);

impl Packed {
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
    use std::io::Read as _;

    use super::*;

    #[test]
    fn what_is_packed_comes_out_again() {
        let bytes = Bytes::from("some text ".repeat(10_000));
        let packed = |coding| pack(Answer::whole(bytes.clone(), 1, 1), coding);
        let mut plain = Vec::new();
        flate2::read::GzDecoder::new(&*packed(Coding::Gzip)).read_to_end(&mut plain).unwrap();
        assert_eq!(plain, bytes);
        #[cfg(feature = "zstd")]
        assert_eq!(zstd::decode_all(&*packed(Coding::Zstd)).unwrap(), bytes);
    }
}
