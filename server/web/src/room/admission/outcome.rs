//! Forms that act once: each carries a key, by which a form that is sent again gets the first result.

use std::{
    collections::VecDeque,
    sync::{Mutex, MutexGuard, PoisonError},
};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use rand_core::{OsRng, RngCore as _};
use tokio::sync::watch;

/// Most results that are kept; the oldest ones are forgotten, except those of actions that run.
const KEPT_MAX: usize = 512;

/// Characters of a key: 128 bits.
const KEY_CHARS: usize = 22;

/// A new key for a form.
pub(crate) fn key() -> String {
    let mut bytes = [0; 16];
    OsRng.fill_bytes(&mut bytes);
    URL_SAFE_NO_PAD.encode(bytes)
}

/// Reason why an action was not done, in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Undone {
    /// Nothing was changed.
    Nothing(String),
    /// It is not known whether it was done, or only a part was done.
    Unknown(String),
}

/// A sentence about a request that changed nothing.
impl From<String> for Undone {
    fn from(text: String) -> Self {
        Self::Nothing(text)
    }
}

impl From<&str> for Undone {
    fn from(text: &str) -> Self {
        Self::Nothing(text.to_owned())
    }
}

/// Advice that follows on an outcome that is not known.
const LOOK: &str = "This form does not act again: look whether it was done before you open the page for a new one.";

impl From<bookstore::Fault> for Undone {
    fn from(fault: bookstore::Fault) -> Self {
        use bookstore::Fault;
        match fault {
            Fault::OutcomeUnknown => {
                Self::Unknown(format!("The store failed while it committed, so the outcome is unknown. {LOOK}"))
            }
            Fault::Stopped(_) | Fault::ImportStopped { .. } => {
                Self::Unknown(format!("{fault}. This form does not act again; open the page anew."))
            }
            _ => Self::Nothing(format!("{fault}.")),
        }
    }
}

impl From<kv::Fault> for Undone {
    fn from(fault: kv::Fault) -> Self {
        use kv::Fault;
        match fault {
            Fault::OutcomeUnknown => Self::Unknown(format!("{fault}. {LOOK}")),
            Fault::Exists | Fault::Missing | Fault::Conflict(_) => {
                Self::Nothing(format!("{fault}. Nothing was written."))
            }
            _ => Self::Nothing(format!("{fault}.")),
        }
    }
}

/// Sentence about what was done, or the reason why not.
pub(crate) type Done = Result<String, Undone>;

/// The result of an operator's action for a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) is_good: bool,
    pub(crate) text: String,
}

impl From<Done> for Outcome {
    fn from(done: Done) -> Self {
        match done {
            Ok(text) => Self { is_good: true, text },
            Err(Undone::Nothing(text) | Undone::Unknown(text)) => Self { is_good: false, text },
        }
    }
}

/// A result; `None` while the action runs.
pub(crate) type Awaited = watch::Receiver<Option<Done>>;

/// The result of an action that ended without one.
fn fault() -> Done {
    Err(Undone::Unknown(format!("The action ended in a fault of the server. {LOOK}")))
}

/// The result if the action has ended.
fn ended(result: &Awaited) -> Option<Done> {
    let is_running = result.has_changed().is_ok();
    result.borrow().clone().or_else(|| (!is_running).then(fault))
}

/// Waits for the end of an action.
pub(crate) async fn wait(mut result: Awaited) {
    // An error means that it ended without a result.
    let _ = result.wait_for(Option::is_some).await;
}

/// Start of a form's action.
#[derive(Debug)]
pub(crate) enum Begun {
    /// The form acts, and its result goes here.
    First(watch::Sender<Option<Done>>, Awaited),
    /// It acts or has acted already.
    Again(Awaited),
    /// Too many actions run.
    Crowded,
}

/// Results of forms by their keys.
#[derive(Debug, Default)]
pub(crate) struct Outcomes(Mutex<VecDeque<(String, Awaited)>>);

impl Outcomes {
    fn lock(&self) -> MutexGuard<'_, VecDeque<(String, Awaited)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins the action of the form with this key, unless it was sent before and may have changed something.
    pub(crate) fn begin(&self, key: &str) -> Begun {
        let (mut kept, (sender, result)) = (self.lock(), watch::channel(None));
        if let Some((_, known)) = kept.iter_mut().find(|(known, _)| known == key) {
            if !matches!(ended(known), Some(Err(Undone::Nothing(_)))) {
                return Begun::Again(known.clone());
            }
            *known = result.clone();
            return Begun::First(sender, result);
        }
        if kept.len() >= KEPT_MAX {
            let Some(oldest) = kept.iter().position(|(_, result)| ended(result).is_some()) else {
                return Begun::Crowded;
            };
            kept.remove(oldest);
        }
        kept.push_back((key.to_owned(), result.clone()));
        Begun::First(sender, result)
    }

    /// The result of the form with this key; `None` if it is not known.
    pub(crate) fn get(&self, key: &str) -> Option<Outcome> {
        let kept = self.lock();
        let (_, result) = kept.iter().find(|(known, _)| known == key)?;
        let running = || Ok("This is being done. Load the page again in a moment.".to_owned());
        Some(ended(result).unwrap_or_else(running).into())
    }
}

/// True for text of the form of a key.
pub(crate) fn is_key(text: &str) -> bool {
    text.len() == KEY_CHARS && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
}

#[cfg(test)]
mod tests {
    use tokio::sync::watch;

    use super::{Awaited, Begun, Done, KEPT_MAX, Outcomes, Undone, is_key, key, wait};

    fn first(outcomes: &Outcomes, key: &str) -> (watch::Sender<Option<Done>>, Awaited) {
        match outcomes.begin(key) {
            Begun::First(sender, result) => (sender, result),
            other => panic!("{other:?}"),
        }
    }

    fn is_again(outcomes: &Outcomes, key: &str) -> bool {
        matches!(outcomes.begin(key), Begun::Again(_))
    }

    #[test]
    fn a_form_acts_once_unless_nothing_was_done() {
        let (outcomes, form) = (Outcomes::default(), key());
        assert!(is_key(&form) && outcomes.get(&form).is_none());
        let (running, _) = first(&outcomes, &form);
        assert!(is_again(&outcomes, &form));
        assert!(outcomes.get(&form).is_some_and(|running| running.text.contains("being done")));
        running.send_replace(Some(Err("Nothing was changed.".into())));
        drop(running);
        assert!(outcomes.get(&form).is_some_and(|failed| !failed.is_good));
        let (running, _) = first(&outcomes, &form);
        running.send_replace(Some(Ok("Done.".to_owned())));
        drop(running);
        assert!(is_again(&outcomes, &form));
        assert!(outcomes.get(&form).is_some_and(|done| done.is_good && done.text == "Done."));
    }

    #[test]
    fn a_form_whose_outcome_is_not_known_does_not_act_again() {
        let outcomes = Outcomes::default();
        let unknown = [
            Some(Undone::from(bookstore::Fault::OutcomeUnknown)),
            Some(bookstore::Fault::Stopped(7).into()),
            Some(kv::Fault::OutcomeUnknown.into()),
            // It panicked.
            None,
        ];
        for undone in unknown {
            let form = key();
            let (running, _) = first(&outcomes, &form);
            running.send_replace(undone.map(Err));
            drop(running);
            assert!(is_again(&outcomes, &form));
            let shown = outcomes.get(&form).unwrap();
            assert!(!shown.is_good && shown.text.contains("does not act again"), "{shown:?}");
        }
        for nothing in [Undone::from(bookstore::Fault::Late), kv::Fault::Missing.into()] {
            assert!(matches!(nothing, Undone::Nothing(_)), "{nothing:?}");
        }
    }

    #[tokio::test]
    async fn a_second_click_waits_for_the_result() {
        let (outcomes, form) = (Outcomes::default(), key());
        let (running, _) = first(&outcomes, &form);
        let Begun::Again(second) = outcomes.begin(&form) else { panic!("it acts twice") };
        let click = tokio::spawn(wait(second));
        tokio::task::yield_now().await;
        assert!(!click.is_finished());
        running.send_replace(Some(Ok("Done.".to_owned())));
        click.await.unwrap();
    }

    #[test]
    fn the_oldest_results_are_forgotten_and_no_action_that_runs() {
        let outcomes = Outcomes::default();
        let keys: Vec<String> = (0..KEPT_MAX).map(|_| key()).collect();
        let mut running: Vec<_> = keys.iter().map(|key| first(&outcomes, key)).collect();
        assert!(matches!(outcomes.begin(&key()), Begun::Crowded));
        drop(running.swap_remove(7));
        drop(first(&outcomes, &key()));
        assert!(outcomes.get(&keys[7]).is_none());
        assert!(keys.iter().filter(|key| outcomes.get(key).is_some()).count() == KEPT_MAX - 1);
    }
}
