//! Keys, values and entries, with their memory use, and the clock for their expiry: wall-clock time, because entries
//! outlive the process.

use std::{
    fmt,
    num::NonZeroU64,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{SystemTime, UNIX_EPOCH},
};

use bytes::Bytes;

/// A key; the map and its index share it.
pub type Key = Arc<[u8]>;

/// Values from this size on stay in the buffer they came in; shorter ones are cheaper to copy.
const SHARED_BYTES_MIN: usize = 16 << 10;

/// A buffer may exceed its value by one part in this many; otherwise the value is copied.
const SLACK_PARTS: usize = 8;

/// Memory of an entry beside its key and value: its slots in map and index, and the allocator's overhead for the two
/// blocks. Measured with a million entries; see docs/kv.md.
pub(crate) const ENTRY_BYTES: usize = 264;

/// Number of the write that made an entry: greater for later writes of the same key, and never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version(pub u64);

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A value, and the memory it keeps alive.
#[derive(Clone, Debug, Default)]
pub struct Value {
    bytes: Bytes,
    held_bytes: usize,
}

impl Value {
    /// A value from a message whose fields share a buffer of `buffer_bytes`; 0 if each field has its own memory. A
    /// small value does not keep a large buffer alive.
    pub fn received(bytes: Bytes, buffer_bytes: usize) -> Self {
        let slack = buffer_bytes.saturating_sub(bytes.len());
        if buffer_bytes == 0 {
            let held_bytes = bytes.len();
            Self { bytes, held_bytes }
        } else if bytes.len() >= SHARED_BYTES_MIN && slack <= bytes.len() / SLACK_PARTS {
            Self { bytes, held_bytes: buffer_bytes }
        } else {
            Self::copied(&bytes)
        }
    }

    /// Copies a value.
    pub fn copied(bytes: &[u8]) -> Self {
        Self { bytes: Bytes::copy_from_slice(bytes), held_bytes: bytes.len() }
    }

    /// The value's bytes.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }
}

/// A key's value, version and expiry.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The value.
    pub value: Value,
    /// The write that made it.
    pub version: Version,
    /// Expiry in milliseconds since 1970.
    pub expires_at_ms: Option<NonZeroU64>,
}

impl Entry {
    pub(crate) fn is_expired(&self, now_ms: impl FnOnce() -> u64) -> bool {
        self.expires_at_ms.is_some_and(|at| at.get() <= now_ms())
    }
}

/// Memory of an entry, as counted by the limit `total_bytes`.
pub(crate) fn entry_bytes(key: &[u8], value: &Value) -> usize {
    ENTRY_BYTES + key.len() + value.held_bytes
}

/// Milliseconds since 1970.
#[derive(Clone, Debug, Default)]
pub enum Clock {
    /// The machine's clock.
    #[default]
    Wall,
    /// A time set by a test.
    Manual(Arc<AtomicU64>),
}

impl Clock {
    pub(crate) fn now_ms(&self) -> u64 {
        match self {
            Self::Wall => {
                let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
            }
            Self::Manual(time) => time.load(Ordering::SeqCst),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_value_does_not_keep_a_large_buffer() {
        let buffer = Bytes::from(vec![7; 1 << 20]);
        let value = Value::received(buffer.slice(10..1000), buffer.len());
        assert_eq!((value.bytes.len(), value.held_bytes), (990, 990));
        assert_ne!(value.bytes.as_ptr(), buffer[10..].as_ptr());
    }

    #[test]
    fn large_value_stays_where_it_came_and_counts_its_whole_buffer() {
        let buffer = Bytes::from(vec![7; 1 << 20]);
        let value = Value::received(buffer.slice(30..), buffer.len());
        assert_eq!((value.bytes.as_ptr(), value.held_bytes), (buffer[30..].as_ptr(), 1 << 20));
        let half = Value::received(buffer.slice(..1 << 19), buffer.len());
        assert_eq!(half.held_bytes, 1 << 19, "a buffer with as much beside the value is not kept");
    }

    #[test]
    fn value_with_memory_of_its_own_is_taken_as_it_is() {
        let bytes = Bytes::from(vec![1, 2, 3]);
        let value = Value::received(bytes.clone(), 0);
        assert_eq!((value.bytes.as_ptr(), value.held_bytes), (bytes.as_ptr(), 3));
    }
}
