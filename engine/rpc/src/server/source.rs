//! A message produced while it is sent.

use bytes::Bytes;

/// A message produced while it is sent.
pub(crate) struct Source {
    pub(super) left_bytes: usize,
    pub(super) chunks: Box<dyn Iterator<Item = Bytes> + Send>,
}
