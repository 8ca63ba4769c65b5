//! Ids and topics seen in answers, for completion; a bounded number.

use std::collections::BTreeSet;

use quire_terminal::shell::CANDIDATES_MAX;

use crate::Book;

/// Maximum number of ids, and of topics.
const SEEN_MAX: usize = 10_000;

#[derive(Debug, Default)]
pub(super) struct Seen {
    ids: BTreeSet<String>,
    topics: BTreeSet<String>,
    has_asked: bool,
}

impl Seen {
    pub(super) fn books(&mut self, books: &[Book]) {
        for book in books.iter().take(SEEN_MAX) {
            self.topic(&book.topic);
            if self.ids.len() < SEEN_MAX {
                self.ids.insert(book.id.to_string());
            }
        }
    }

    /// True the first time: then topics must be requested from the server.
    pub(super) fn begin_topics(&mut self) -> bool {
        !std::mem::replace(&mut self.has_asked, true)
    }

    pub(super) fn topic(&mut self, topic: &str) {
        if self.topics.len() < SEEN_MAX && !self.topics.contains(topic) {
            self.topics.insert(topic.to_owned());
        }
    }

    /// Completions of `typed` as the argument of a command.
    pub(super) fn arguments(&self, command: &str, typed: &str) -> Vec<String> {
        let known = match command {
            "search" | "topics" => &self.topics,
            "lookup" | "buy" => &self.ids,
            _ => return Vec::new(),
        };
        let from = known.range(typed.to_owned()..);
        from.take_while(|known| known.starts_with(typed)).take(CANDIDATES_MAX).cloned().collect()
    }
}
