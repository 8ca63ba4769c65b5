//! Random values that are a function of a seed and a request's number: no state is shared or carried over.
//!
//! `SplitMix64` (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014).

const GOLDEN_GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;

/// The values for one request, one after another.
pub(crate) struct Draws {
    state: u64,
}

/// A seed for one template: two templates of a request must not draw the same values.
pub(crate) fn seed(seed: u64, template: &str) -> u64 {
    template.bytes().fold(mix(seed.wrapping_add(GOLDEN_GAMMA)), |hash, byte| mix(hash ^ u64::from(byte)))
}

impl Draws {
    /// The values for request `number`. Both are mixed, so that neighbours are not shifted copies of each other.
    pub(crate) fn new(seed: u64, number: u64) -> Self {
        Self { state: mix(seed ^ mix(number.wrapping_add(GOLDEN_GAMMA))) }
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(GOLDEN_GAMMA);
        mix(self.state)
    }

    /// An integer from `low` to `high`, both included. Scaling 64 random bits prefers some values by at most one part
    /// in 2^64 / (high - low): nothing that a load could show.
    pub(crate) fn between(&mut self, low: i64, high: i64) -> i64 {
        let span = u128::from(high.abs_diff(low)) + 1;
        let offset = (u128::from(self.next()) * span) >> 64;
        low.wrapping_add_unsigned(u64::try_from(offset).unwrap_or_default())
    }
}

fn mix(mut value: u64) -> u64 {
    value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}
