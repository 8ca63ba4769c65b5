//! Tasks, and the parts of their results that need no computation.

use std::time::Duration;

use rand::Rng as _;
use rand_chacha::{ChaCha20Rng, rand_core::SeedableRng as _};

/// Longest wait of an I/O-bound task.
pub const WAIT_MS_MAX: usize = 2000;

/// The resource that a task uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Computes in a MiB of memory.
    Cpu,
    /// Waits.
    Io,
}

impl Kind {
    /// Every kind, in the order of their numbers on the wire.
    pub const ALL: [Self; 2] = [Self::Cpu, Self::Io];

    /// Name in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Io => "io",
        }
    }

    /// Kind with this number on the wire.
    pub fn from_number(number: usize) -> Option<Self> {
        Self::ALL.get(number).copied()
    }

    /// Number on the wire.
    pub const fn number(self) -> usize {
        self as usize
    }
}

/// A request for work; equal tasks have equal results.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Task {
    /// The resource that it uses.
    pub kind: Kind,
    /// Only input of its result.
    pub seed: u64,
}

impl Task {
    /// Creates a task.
    pub const fn new(kind: Kind, seed: u64) -> Self {
        Self { kind, seed }
    }

    /// Time that it waits without using a processor.
    pub fn wait(self) -> Duration {
        match self.kind {
            Kind::Cpu => Duration::ZERO,
            Kind::Io => Io::new(self.seed).wait,
        }
    }
}

/// An I/O-bound task: both draws are known before it begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Io {
    /// Duration.
    pub wait: Duration,
    /// Result.
    pub result: u8,
}

impl Io {
    /// Draws the wait first and the result second; the order is a part of the contract.
    pub fn new(seed: u64) -> Self {
        let mut numbers = ChaCha20Rng::seed_from_u64(seed);
        let wait_ms = numbers.gen_range(0..=WAIT_MS_MAX);
        let result = numbers.r#gen();
        Self { wait: Duration::from_millis(u64::try_from(wait_ms).unwrap_or(u64::MAX)), result }
    }
}
