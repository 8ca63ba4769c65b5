//! Random values as a function of a seed and a request's number, without state.

use rand_core::{RngCore as _, SeedableRng as _};
use rand_xoshiro::SplitMix64;

/// A seed for one template: two templates of a request must not draw the same values.
pub(crate) fn seed(seed: u64, template: &str) -> u64 {
    template.bytes().fold(mixed(seed), |hash, byte| mixed(hash ^ u64::from(byte)))
}

/// Generator for request `number`. Both are mixed, so that neighbours are not shifted copies of each other.
pub(crate) fn draws(seed: u64, number: u64) -> SplitMix64 {
    SplitMix64::seed_from_u64(mixed(seed ^ mixed(number)))
}

/// An integer from `low` to `high`, both included. Scaling 64 random bits favours some values by at most one part in
/// 2^64 / (high - low), which no load could show.
pub(crate) fn between(draws: &mut SplitMix64, low: i64, high: i64) -> i64 {
    let span = u128::from(high.abs_diff(low)) + 1;
    let offset = (u128::from(draws.next_u64()) * span) >> 64;
    low.wrapping_add_unsigned(u64::try_from(offset).unwrap_or_default())
}

fn mixed(value: u64) -> u64 {
    SplitMix64::seed_from_u64(value).next_u64()
}
