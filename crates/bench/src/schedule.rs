//! When requests are due.

/// The rate over time: phases one after another.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    /// In order; never empty.
    pub phases: Vec<Phase>,
}

/// A time over which the rate changes linearly, or not at all.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Phase {
    /// Requests a second at its beginning.
    pub from: f64,
    /// Requests a second at its end.
    pub to: f64,
    /// How long it is, in seconds; infinite only in the last.
    pub seconds: f64,
}
