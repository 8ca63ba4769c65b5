//! Reproducible random draws.

use rand_core::RngCore as _;
use rand_xoshiro::Xoshiro256PlusPlus;

/// A number below `count`; the remainder biases some by one part in 2^64 / `count`.
pub(crate) fn below(random: &mut Xoshiro256PlusPlus, count: usize) -> usize {
    usize::try_from(random.next_u64() % count.max(1) as u64).unwrap_or(0)
}

/// An integer of an exponential distribution with this mean.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a size is small and not below 0"
)]
pub(crate) fn exponential(random: &mut Xoshiro256PlusPlus, mean: f64) -> usize {
    let uniform = (random.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
    (-(1.0 - uniform).ln() * mean) as usize
}
