//! Counts of checked replies, by kind.

use std::collections::BTreeMap;

#[derive(Default)]
pub struct Tally(BTreeMap<String, u64>);

impl Tally {
    pub fn add(&mut self, kind: impl Into<String>, replies: u64) {
        *self.0.entry(kind.into()).or_default() += replies;
    }

    pub fn total(&self) -> u64 {
        self.0.values().sum()
    }

    pub fn kinds(&self) -> impl Iterator<Item = (&String, &u64)> {
        self.0.iter()
    }
}
