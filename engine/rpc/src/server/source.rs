//! A message that is made while it is sent.
//!
//! Must not know where it goes.
//!
//! Implements: no specification.

use bytes::Bytes;

/// A message that is made while it is sent.
pub(crate) struct Source {
    pub(super) left_bytes: usize,
    pub(super) chunks: Box<dyn Iterator<Item = Bytes> + Send>,
}
