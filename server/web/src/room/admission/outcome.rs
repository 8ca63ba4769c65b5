//! Forms that act once: each carries a key, by which a form that is sent again gets the first result.

use std::{
    collections::VecDeque,
    sync::{Mutex, MutexGuard, PoisonError},
};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use rand_core::{OsRng, RngCore as _};

/// Most results that are kept; older ones are forgotten.
const KEPT_MAX: usize = 512;

/// Characters of a key: 128 bits.
const KEY_CHARS: usize = 22;

/// A new key for a form.
pub(crate) fn key() -> String {
    let mut bytes = [0; 16];
    OsRng.fill_bytes(&mut bytes);
    URL_SAFE_NO_PAD.encode(bytes)
}

/// The result of an operator's action, in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) is_good: bool,
    pub(crate) text: String,
}

/// Forms by their keys; `None` while the action runs.
#[derive(Debug, Default)]
pub(crate) struct Outcomes(Mutex<VecDeque<(String, Option<Outcome>)>>);

impl Outcomes {
    fn lock(&self) -> MutexGuard<'_, VecDeque<(String, Option<Outcome>)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True if the form with this key may act: it has not been sent before, or failed.
    pub(crate) fn begin(&self, key: &str) -> bool {
        let mut kept = self.lock();
        if let Some((_, result)) = kept.iter_mut().find(|(known, _)| known == key) {
            let has_failed = result.as_ref().is_some_and(|outcome| !outcome.is_good);
            if has_failed {
                *result = None;
            }
            return has_failed;
        }
        if kept.len() >= KEPT_MAX {
            kept.pop_front();
        }
        kept.push_back((key.to_owned(), None));
        true
    }

    /// Keeps the result of the form with this key.
    pub(crate) fn end(&self, key: &str, outcome: Outcome) {
        if let Some((_, result)) = self.lock().iter_mut().find(|(known, _)| known == key) {
            *result = Some(outcome);
        }
    }

    /// The result of the form with this key; `None` if it is not known.
    pub(crate) fn get(&self, key: &str) -> Option<Outcome> {
        let running =
            Outcome { is_good: true, text: "This is being done. Load the page again in a moment.".to_owned() };
        let kept = self.lock();
        let (_, result) = kept.iter().find(|(known, _)| known == key)?;
        Some(result.clone().unwrap_or(running))
    }
}

/// True for text of the form of a key.
pub(crate) fn is_key(text: &str) -> bool {
    text.len() == KEY_CHARS && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::{KEPT_MAX, Outcome, Outcomes, is_key, key};

    #[test]
    fn a_form_acts_once_unless_it_failed() {
        let (outcomes, form) = (Outcomes::default(), key());
        let outcome = |is_good| Outcome { is_good, text: "done".to_owned() };
        assert!(is_key(&form) && outcomes.begin(&form) && !outcomes.begin(&form));
        assert!(outcomes.get(&form).is_some_and(|running| running.text.contains("being done")));
        outcomes.end(&form, outcome(false));
        assert!(outcomes.begin(&form) && !outcomes.begin(&form));
        outcomes.end(&form, outcome(true));
        assert!(!outcomes.begin(&form));
        assert_eq!(outcomes.get(&form), Some(outcome(true)));
        assert_eq!(outcomes.get(&key()), None);
    }

    #[test]
    fn the_oldest_results_are_forgotten() {
        let outcomes = Outcomes::default();
        let keys: Vec<String> = (0..=KEPT_MAX).map(|_| key()).collect();
        assert!(keys.iter().all(|key| outcomes.begin(key)));
        assert!(outcomes.get(&keys[0]).is_none() && outcomes.get(&keys[1]).is_some());
    }
}
