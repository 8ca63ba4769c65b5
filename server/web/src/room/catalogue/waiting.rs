//! Files whose import was shown and is not confirmed yet.

use std::{
    collections::VecDeque,
    sync::{Mutex, MutexGuard, PoisonError},
};

use bytes::Bytes;

use crate::room::outcome::key;

/// Files that wait for their confirmation; of more, the oldest is forgotten.
const WAITING_MAX: usize = 2;

/// Files whose preview was shown, by the key of the form that confirms them.
#[derive(Debug, Default)]
pub(crate) struct Waiting(Mutex<VecDeque<(String, Bytes)>>);

impl Waiting {
    fn lock(&self) -> MutexGuard<'_, VecDeque<(String, Bytes)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a file; returns its key.
    pub(crate) fn keep(&self, file: Bytes) -> String {
        let (key, mut waiting) = (key(), self.lock());
        if waiting.len() >= WAITING_MAX {
            waiting.pop_front();
        }
        waiting.push_back((key.clone(), file));
        key
    }

    /// The file with this key, once.
    pub(crate) fn take(&self, key: &str) -> Option<Bytes> {
        let mut waiting = self.lock();
        let place = waiting.iter().position(|(known, _)| known == key)?;
        waiting.remove(place).map(|(_, file)| file)
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::{WAITING_MAX, Waiting};

    #[test]
    fn a_file_is_taken_once_and_the_oldest_is_forgotten() {
        let waiting = Waiting::default();
        let keys: Vec<String> = (0..=WAITING_MAX).map(|_| waiting.keep(Bytes::from_static(b"id"))).collect();
        assert!(waiting.take(&keys[0]).is_none());
        assert!(waiting.take(&keys[1]).is_some() && waiting.take(&keys[1]).is_none());
    }
}
