//! Set of the members that an object has had so far.

/// A set of small numbers.
pub(super) struct Seen {
    first: u64,
    /// Allocated only for messages of more than 64 members and oneofs.
    more: Vec<u64>,
}

impl Seen {
    #[inline]
    pub(super) fn new(len: usize) -> Self {
        Self { first: 0, more: vec![0; len.saturating_sub(64).div_ceil(64)] }
    }

    /// Inserts an index; false if it was present.
    #[inline]
    pub(super) fn insert(&mut self, index: usize) -> bool {
        let word = if index < 64 { &mut self.first } else { &mut self.more[index / 64 - 1] };
        let bit = 1 << (index % 64);
        let is_new = *word & bit == 0;
        *word |= bit;
        is_new
    }
}
