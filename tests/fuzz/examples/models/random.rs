//! Random numbers of a history: equal seeds give equal histories on any machine.

/// SplitMix64.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`, which is not 0.
    pub fn below(&mut self, bound: usize) -> usize {
        (self.number() % bound as u64) as usize
    }

    pub fn one_in(&mut self, chances: usize) -> bool {
        self.below(chances) == 0
    }

    pub fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }

    /// Random bytes, mostly few.
    pub fn bytes(&mut self, bytes_max: usize) -> Vec<u8> {
        let length = if self.one_in(4) { self.below(bytes_max + 1) } else { self.below(bytes_max.min(20) + 1) };
        (0..length).map(|_| self.number() as u8).collect()
    }
}
