//! Choices by a seed.

use rand_core::RngCore as _;
use rand_xoshiro::Xoshiro256PlusPlus;

pub(crate) trait Random {
    /// A number below `bound`, which is above 0.
    fn below(&mut self, bound: u32) -> u32;

    /// A place below `bound`, which is above 0.
    fn place(&mut self, bound: usize) -> usize;

    fn one_in(&mut self, parts: u32) -> bool {
        self.below(parts) == 0
    }

    /// One of a list; `None` if it is empty.
    fn pick<'a, T>(&mut self, from: &'a [T]) -> Option<&'a T> {
        if from.is_empty() { None } else { from.get(self.place(from.len())) }
    }

    /// One of several.
    fn any<T: Copy, const N: usize>(&mut self, of: [T; N]) -> T {
        of[self.place(N)]
    }
}

impl Random for Xoshiro256PlusPlus {
    fn below(&mut self, bound: u32) -> u32 {
        self.next_u32() % bound
    }

    fn place(&mut self, bound: usize) -> usize {
        usize::try_from(self.next_u64() % bound as u64).expect("below a usize")
    }
}
