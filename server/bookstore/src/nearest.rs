//! Finds the topics nearest to a typed text.

use std::sync::Arc;

/// Work limit for one text, in pairs of letters compared: about 10 ms, or 50,000 topics of average length.
const WORK_MAX: usize = 8 << 20;
/// Work after which the caller should yield.
const WORK_AT_ONCE: usize = 1 << 17;
/// Fixed cost of a topic.
const WORK_A_TOPIC: usize = 32;
/// Greatest number of differing letters.
const DISTANCE_MAX: usize = 3;

/// Collects the topics nearest to a text, within the work limit.
#[derive(Debug)]
pub(crate) struct Nearest {
    text: String,
    letters: usize,
    most: usize,
    /// In ascending order.
    best: Vec<(usize, Arc<str>)>,
    work: usize,
    turn: usize,
}

impl Nearest {
    /// Collects up to `most`.
    pub(crate) fn new(text: &str, most: usize) -> Self {
        let text = text.trim().to_lowercase();
        Self { letters: text.chars().count(), text, most, best: Vec::new(), work: 0, turn: 0 }
    }

    /// True if the work limit is reached.
    pub(crate) fn is_spent(&self) -> bool {
        self.work >= WORK_MAX
    }

    /// Adds a topic if it is near; true if the caller should yield.
    pub(crate) fn look(&mut self, topic: &Arc<str>) -> bool {
        let before = self.work;
        let rank = self.rank(topic);
        self.turn += self.work - before;
        if let Some(rank) = rank {
            let place = self.best.partition_point(|(other, name)| (*other, name) < (rank, topic));
            let known = self.best.get(place).is_some_and(|(_, name)| name == topic);
            if place < self.most && !known {
                self.best.insert(place, (rank, Arc::clone(topic)));
                self.best.truncate(self.most);
            }
        }
        let pause = self.turn >= WORK_AT_ONCE;
        if pause {
            self.turn = 0;
        }
        pause
    }

    /// The topics, best first.
    pub(crate) fn found(self) -> impl Iterator<Item = Arc<str>> {
        self.best.into_iter().map(|(_, topic)| topic)
    }

    /// 0 for the text itself, 1 if the topic begins with it, 2 if one of its words does or a letter differs; 3 if a
    /// letter of one of its words differs.
    fn rank(&mut self, topic: &str) -> Option<usize> {
        let topic = topic.to_lowercase();
        self.work += WORK_A_TOPIC + topic.len();
        if topic == self.text {
            return Some(0);
        }
        if topic.starts_with(&self.text) {
            return Some(1);
        }
        if topic.split_whitespace().any(|word| word.starts_with(&self.text)) {
            return Some(2);
        }
        let whole = self.slips(&topic).map(|letters| letters + 1);
        topic.split_whitespace().filter_map(|word| self.slips(word).map(|letters| letters + 2)).chain(whole).min()
    }

    /// Number of letters in which a topic or one of its words differs; `None` if too many.
    fn slips(&mut self, part: &str) -> Option<usize> {
        let letters = part.chars().count();
        let allowed = DISTANCE_MAX.min(self.letters / 3);
        if letters.abs_diff(self.letters) > allowed {
            return None;
        }
        self.work += letters * self.letters;
        Some(strsim::osa_distance(part, &self.text)).filter(|distance| *distance <= allowed)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::Nearest;

    fn nearest(text: &str, most: usize) -> Vec<String> {
        let topics = ["cooking", "college life", "Collage", "databases", "distributed systems", "poetry"];
        let mut nearest = Nearest::new(text, most);
        for topic in topics.map(Arc::from) {
            nearest.look(&topic);
            nearest.look(&topic);
        }
        nearest.found().map(|topic| topic.to_string()).collect()
    }

    #[test]
    fn case_a_beginning_a_word_and_a_slip_of_the_pen_are_near() {
        assert_eq!(nearest("College Life", 5), ["college life"]);
        assert_eq!(nearest("coll", 5), ["Collage", "college life"]);
        assert_eq!(nearest("systems", 5), ["distributed systems"]);
        assert_eq!(nearest("databsaes", 5), ["databases"]);
        assert_eq!(nearest("sistems", 5), ["distributed systems"]);
        assert_eq!(nearest("colege", 5), ["Collage", "college life"]);
        assert_eq!(nearest("college", 5), ["college life", "Collage"]);
        assert_eq!(nearest("co", 2), ["Collage", "college life"]);
        assert_eq!(nearest("astronomy", 5), [""; 0]);
    }

    #[test]
    fn looking_ends_when_the_work_is_done() {
        let mut nearest = Nearest::new(&"a".repeat(256), 5);
        let topics: Vec<Arc<str>> =
            (0..100_000).map(|number| format!("{}{number:06}", "b".repeat(250)).into()).collect();
        let (mut looked, mut pauses) = (0, 0);
        for topic in &topics {
            if nearest.is_spent() {
                break;
            }
            looked += 1;
            pauses += u32::from(nearest.look(topic));
        }
        assert!(looked < 1000 && pauses > 10, "{looked} {pauses}");
    }
}
