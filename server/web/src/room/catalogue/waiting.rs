//! Files whose import was shown and is not confirmed yet.

use std::{
    collections::VecDeque,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use bytes::Bytes;
use hosting::Client;

use crate::room::outcome::key;

/// Files that wait for their confirmation, one a client; of more, the oldest is forgotten.
const WAITING_MAX: usize = 4;

/// Time after which a file is forgotten.
const KEPT: Duration = Duration::from_hours(1);

/// Files whose preview was shown, by the key of the form that confirms them.
#[derive(Debug, Default)]
pub(crate) struct Waiting(Mutex<VecDeque<Entry>>);

#[derive(Debug)]
struct Entry {
    key: String,
    client: Client,
    file: Bytes,
    since: Instant,
}

impl Waiting {
    fn lock(&self, now: Instant) -> MutexGuard<'_, VecDeque<Entry>> {
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.retain(|entry| now.saturating_duration_since(entry.since) < KEPT);
        waiting
    }

    /// Keeps a file in place of the client's earlier one; returns its key.
    pub(crate) fn keep(&self, client: Client, file: Bytes, now: Instant) -> String {
        let (key, mut waiting) = (key(), self.lock(now));
        waiting.retain(|entry| entry.client != client);
        if waiting.len() >= WAITING_MAX {
            waiting.pop_front();
        }
        waiting.push_back(Entry { key: key.clone(), client, file, since: now });
        key
    }

    /// The file with this key.
    pub(crate) fn get(&self, key: &str, now: Instant) -> Option<Bytes> {
        self.lock(now).iter().find(|entry| entry.key == key).map(|entry| entry.file.clone())
    }

    /// Forgets a file that was imported.
    pub(crate) fn forget(&self, key: &str) {
        self.lock(Instant::now()).retain(|entry| entry.key != key);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use bytes::Bytes;
    use hosting::Client;

    use super::{KEPT, WAITING_MAX, Waiting};

    #[test]
    fn a_client_has_one_file_and_the_oldest_of_too_many_is_forgotten() {
        let (waiting, now, file) = (Waiting::default(), Instant::now(), Bytes::from_static(b"id"));
        let client = |number: usize| Client::Credential(number.to_string().into());
        let keys: Vec<String> =
            (0..=WAITING_MAX).map(|number| waiting.keep(client(number), file.clone(), now)).collect();
        assert!(waiting.get(&keys[0], now).is_none());
        assert!(waiting.get(&keys[1], now).is_some() && waiting.get(&keys[1], now).is_some());
        let again = waiting.keep(client(1), file, now);
        assert!(waiting.get(&keys[1], now).is_none() && waiting.get(&keys[2], now).is_some());
        waiting.forget(&again);
        assert!(waiting.get(&again, now).is_none());
        assert!(waiting.get(&keys[2], now + KEPT).is_none());
    }
}
