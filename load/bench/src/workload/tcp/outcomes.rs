//! Replies by their text, each kind numbered when it is first seen; the number of kinds is bounded.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use crate::workload::Ending;

pub(super) const CONNECTION: u16 = 0;
pub(super) const CLOSED: u16 = 1;
pub(super) const OVERLONG: u16 = 2;
pub(super) const UNASKED: u16 = 3;
pub(super) const REPLY: u16 = 4;
pub(super) const OTHER: u16 = 5;
/// Outcomes are numbered from here on.
pub(super) const OUTCOME_MIN: u16 = 6;

/// Maximum kinds of replies: every single byte, and as many others.
pub const OUTCOMES_MAX: usize = 512;
/// Bytes of a reply that distinguish it.
pub const OUTCOME_BYTES_MAX: usize = 64;

/// The kinds seen by all sessions of a load.
#[derive(Debug)]
pub(super) struct Outcomes {
    known: Mutex<Vec<Box<[u8]>>>,
    /// Good replies; if there are any, every other counts as an error.
    good: Vec<Vec<u8>>,
}

impl Outcomes {
    pub(super) fn new(good: Vec<Vec<u8>>) -> Self {
        Self { known: Mutex::new(Vec::new()), good }
    }

    /// The reply with this number; bytes that are not text are escaped.
    pub(super) fn text(&self, number: u16) -> String {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(usize::from(number)).map(|reply| reply.escape_ascii().to_string()).unwrap_or_default()
    }

    fn ending(&self, reply: &[u8]) -> Option<Ending> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let place = known.iter().position(|other| &**other == reply).or_else(|| {
            (known.len() < OUTCOMES_MAX).then(|| {
                known.push(reply.into());
                known.len() - 1
            })
        })?;
        let number = OUTCOME_MIN + u16::try_from(place).ok()?;
        Some(Ending { number, is_error: self.is_error(reply) })
    }

    fn is_error(&self, reply: &[u8]) -> bool {
        !self.good.is_empty() && !self.good.iter().any(|good| good == reply)
    }
}

/// Kinds known to one session: it takes the lock only for a kind that is new to it.
#[derive(Debug)]
pub(super) struct Seen {
    outcomes: Arc<Outcomes>,
    endings: HashMap<Box<[u8]>, Ending>,
    /// True if no kind can be added and this session knows them all.
    is_full: bool,
}

impl Seen {
    pub(super) fn new(outcomes: Arc<Outcomes>) -> Self {
        Self { outcomes, endings: HashMap::new(), is_full: false }
    }

    pub(super) fn ending(&mut self, reply: &[u8]) -> Ending {
        if let Some(ending) = self.endings.get(reply) {
            return *ending;
        }
        if !self.is_full {
            if let Some(ending) = self.outcomes.ending(reply) {
                self.endings.insert(reply.into(), ending);
                return ending;
            }
            self.learn_all();
        }
        Ending { number: OTHER, is_error: self.outcomes.is_error(reply) }
    }

    fn learn_all(&mut self) {
        let known = self.outcomes.known.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for reply in known {
            if let Some(ending) = self.outcomes.ending(&reply) {
                self.endings.insert(reply, ending);
            }
        }
        self.is_full = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_sessions_number_the_same_reply_alike() {
        let outcomes = Arc::new(Outcomes::new(vec![b"OK".to_vec()]));
        let (mut one, mut other) = (Seen::new(Arc::clone(&outcomes)), Seen::new(Arc::clone(&outcomes)));
        let ok = one.ending(b"OK");
        assert!(!ok.is_error);
        assert!(other.ending(b"\xff").is_error);
        assert_eq!(other.ending(b"OK"), ok);
        assert_eq!(outcomes.text(1), "\\xff");
    }

    #[test]
    fn beyond_the_limit_every_new_reply_is_another() {
        let outcomes = Arc::new(Outcomes::new(Vec::new()));
        let (mut one, mut other) = (Seen::new(Arc::clone(&outcomes)), Seen::new(outcomes));
        let numbers: Vec<u16> = (0..OUTCOMES_MAX).map(|n| one.ending(n.to_string().as_bytes()).number).collect();
        assert!(!numbers.contains(&OTHER));
        assert_eq!(one.ending(b"new").number, OTHER);
        assert_eq!(other.ending(b"newer").number, OTHER);
        assert_eq!(other.ending(b"7").number, numbers[7]);
    }
}
