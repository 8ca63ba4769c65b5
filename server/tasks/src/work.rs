//! Fast implementation of the CPU-bound task.
//!
//! By definition each round adds a drawn byte to a byte of a zeroed MiB, at a drawn index shifted by `dep`, and adds
//! the sum to `dep`. Done literally, each round waits for the previous one, since the index depends on a sum from
//! memory. Three optimisations make it three times as fast:
//!
//! - While few bytes have been touched the old byte is almost always 0, and then the sum is the drawn byte. A branch
//!   lets the processor predict that, so rounds overlap; see [`add_to`].
//! - Later the prediction fails too often. But `dep` is a byte, so a round's index is known to within 256 bytes before
//!   earlier rounds are done, and that window is prefetched into the nearest cache.
//! - Memory is kept zeroed between tasks. After a short task only the touched bytes are reset.

use rand_xoshiro::{
    Xoshiro256StarStar,
    rand_core::{RngCore as _, SeedableRng as _},
};

/// Bytes that a task computes in.
pub const MEMORY_BYTES: usize = 1 << 20;

/// Rounds of the shortest task; all others are multiples of it.
pub const ROUNDS_MIN: usize = 4096;

/// Number of times [`ROUNDS_MIN`] that a task runs, chosen by its first draw.
pub const MULTIPLES: [usize; 16] = [1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 4, 16, 64, 256];

/// Rounds after which an eighth of the bytes has been touched and predicting zeros no longer pays.
const BETTING_ROUNDS: usize = MEMORY_BYTES / 8;

/// Rounds drawn ahead of those being done. Their windows, 10 KiB, fit into the nearest cache beside the rest.
const AHEAD: usize = 32;

/// Reads that bring an unaligned window of 256 bytes into the cache: lines have 64 bytes.
const LINES: usize = 5;

/// Memory for one task at a time, zeroed while none runs.
#[derive(Debug)]
pub struct Workspace {
    memory: Box<[u8; MEMORY_BYTES]>,
    /// Indexes that a short task touched.
    touched: Box<[u32; ROUNDS_MIN]>,
}

/// Draw of a round: an index before the shift, and a byte.
type Draw = (usize, u8);

impl Default for Workspace {
    fn default() -> Self {
        // Through vectors, because arrays of this size do not belong on a stack.
        let memory = vec![0; MEMORY_BYTES].into_boxed_slice().try_into();
        let touched = vec![0; ROUNDS_MIN].into_boxed_slice().try_into();
        match (memory, touched) {
            (Ok(memory), Ok(touched)) => Self { memory, touched },
            _ => unreachable!("the lengths are those of the types"),
        }
    }
}

/// Final state of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    /// The task's result. It is 0 for most seeds, because few tasks touch most of their memory.
    pub result: u8,
    /// The sum that depends on every round; it shows tests more than the result.
    pub dep: u8,
}

impl Workspace {
    /// Result of the CPU-bound task with this seed.
    pub fn run(&mut self, seed: u64) -> u8 {
        self.end_of(seed).result
    }

    /// Like [`Self::run`], with the last sum.
    pub fn end_of(&mut self, seed: u64) -> End {
        let mut numbers = Numbers(Xoshiro256StarStar::seed_from_u64(seed));
        let rounds = ROUNDS_MIN * MULTIPLES[numbers.size() % MULTIPLES.len()];
        if rounds == ROUNDS_MIN {
            return self.run_short(&mut numbers);
        }
        let bets = rounds.min(BETTING_ROUNDS);
        let mut dep = 0;
        for _ in 0..bets {
            let (place, byte) = numbers.draw();
            add_to(&mut self.memory[shifted(place, dep)], byte, &mut dep);
        }
        self.run_windowed(&mut numbers, rounds - bets, &mut dep);
        let result = self.memory[shifted(numbers.size(), dep)];
        self.memory.fill(0);
        End { result, dep }
    }

    fn run_short(&mut self, numbers: &mut Numbers) -> End {
        let mut dep = 0;
        for touched in self.touched.iter_mut() {
            let (place, byte) = numbers.draw();
            let place = shifted(place, dep);
            // An index is below 1 MiB.
            #[expect(clippy::cast_possible_truncation, reason = "places have 20 bits")]
            let kept = place as u32;
            *touched = kept;
            add_to(&mut self.memory[place], byte, &mut dep);
        }
        let result = self.memory[shifted(numbers.size(), dep)];
        for place in self.touched.iter() {
            self.memory[*place as usize % MEMORY_BYTES] = 0;
        }
        End { result, dep }
    }

    /// Runs rounds whose windows are prefetched one block ahead; their number is a multiple of a block's.
    fn run_windowed(&mut self, numbers: &mut Numbers, rounds: usize, dep: &mut u8) {
        debug_assert!(rounds.is_multiple_of(AHEAD));
        let memory = &mut *self.memory;
        let mut read = 0;
        let (mut now, mut next): ([Draw; AHEAD], [Draw; AHEAD]) = ([(0, 0); AHEAD], [(0, 0); AHEAD]);
        let blocks = rounds / AHEAD;
        if blocks > 0 {
            now.fill_with(|| numbers.draw());
        }
        for _ in 1..blocks {
            for (done, drawn) in now.iter().zip(&mut next) {
                *drawn = numbers.draw();
                for line in 0..LINES {
                    read ^= memory[(drawn.0 + line * 64) % MEMORY_BYTES];
                }
                add_plainly(memory, *done, dep);
            }
            std::mem::swap(&mut now, &mut next);
        }
        if blocks > 0 {
            for done in now {
                add_plainly(memory, done, dep);
            }
        }
        // The reads are for their effect on the cache; unused, they would be optimised away.
        std::hint::black_box(read);
    }
}

/// The task's random numbers, drawn as `rand` 0.8 draws them.
struct Numbers(Xoshiro256StarStar);

impl Numbers {
    fn size(&mut self) -> usize {
        // Only its low bits are used, so the result is the same on machines with a narrower word.
        #[expect(clippy::cast_possible_truncation, reason = "a drawn usize is the low part of a drawn u64")]
        let size = self.0.next_u64() as usize;
        size
    }

    fn draw(&mut self) -> Draw {
        let place = self.size() % MEMORY_BYTES;
        #[expect(clippy::cast_possible_truncation, reason = "a drawn u8 is the low part of a drawn u32")]
        let byte = self.0.next_u32() as u8;
        (place, byte)
    }
}

const fn shifted(place: usize, dep: u8) -> usize {
    (place + dep as usize) % MEMORY_BYTES
}

fn add_plainly(memory: &mut [u8; MEMORY_BYTES], (place, byte): Draw, dep: &mut u8) {
    let cell = &mut memory[shifted(place, *dep)];
    *cell = cell.wrapping_add(byte);
    *dep = dep.wrapping_add(*cell);
}

/// Adds `byte` to a cell that most likely holds 0: then the next round does not wait for the cell.
fn add_to(cell: &mut u8, byte: u8, dep: &mut u8) {
    let sum = if *cell == 0 { byte } else { sum(*cell, byte) };
    *cell = sum;
    *dep = dep.wrapping_add(sum);
}

/// Not inlined, or else the compiler would see that adding to 0 gives the same, and drop the branch.
#[cold]
#[inline(never)]
const fn sum(old: u8, byte: u8) -> u8 {
    old.wrapping_add(byte)
}
