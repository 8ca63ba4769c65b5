//! Seeded random orders, and uniform numbers for them.
//!
//! Sides are measured in random order, which nothing on the machine can follow: a side that always goes first meets a
//! cooler processor or an emptier cache each time.

use rand_core::{RngCore, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// Generator of random orders.
#[derive(Clone, Debug)]
pub struct Orders {
    random: Xoshiro256PlusPlus,
}

impl Orders {
    /// Equal seeds give equal orders.
    pub fn new(seed: u64) -> Self {
        Self { random: Xoshiro256PlusPlus::seed_from_u64(seed) }
    }

    /// The numbers below `count` in random order, each order equally likely (Fisher and Yates; Knuth's algorithm P).
    pub fn order(&mut self, count: usize) -> Vec<usize> {
        let mut order: Vec<usize> = (0..count).collect();
        for last in (1..count).rev() {
            order.swap(last, self.below(last + 1));
        }
        order
    }

    /// A number below `count`, each equally likely.
    fn below(&mut self, count: usize) -> usize {
        let count = count as u64;
        // Values above the last whole multiple of `count` would favour the small remainders.
        let limit = u64::MAX - u64::MAX % count;
        loop {
            let value = self.random.next_u64();
            if value < limit {
                return usize::try_from(value % count).expect("below a count that was a usize");
            }
        }
    }

    /// Uniform between 0 and 1, both excluded.
    #[cfg(test)]
    #[expect(clippy::cast_precision_loss, reason = "53 bits fit exactly")]
    pub(crate) fn uniform(&mut self) -> f64 {
        ((self.random.next_u64() >> 11) as f64 + 0.5) / (1_u64 << 53) as f64
    }

    /// Standard normal (Box and Muller 1958): noise for simulated runs.
    #[cfg(test)]
    pub(crate) fn normal(&mut self) -> f64 {
        (-2.0 * self.uniform().ln()).sqrt() * (std::f64::consts::TAU * self.uniform()).cos()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_repeats_the_orders_and_another_does_not() {
        let orders = |seed| {
            let mut orders = Orders::new(seed);
            (0..8).map(|_| orders.order(20)).collect::<Vec<_>>()
        };
        assert_eq!(orders(7), orders(7));
        assert_ne!(orders(7), orders(8));
    }

    #[test]
    fn an_order_has_every_number_once() {
        for count in [0, 1, 2, 50] {
            let mut order = Orders::new(3).order(count);
            order.sort_unstable();
            assert_eq!(order, (0..count).collect::<Vec<_>>());
        }
    }

    #[test]
    fn each_of_six_orders_of_three_comes_equally_often() {
        let mut orders = Orders::new(1);
        let mut seen = std::collections::BTreeMap::new();
        for _ in 0..6_000 {
            *seen.entry(orders.order(3)).or_insert(0_u32) += 1;
        }
        // Each count is binomial(6000, 1/6), of deviation 28.9: five deviations to each side are allowed.
        assert_eq!(seen.len(), 6);
        assert!(seen.values().all(|count| (855..=1145).contains(count)), "{seen:?}");
    }
}
