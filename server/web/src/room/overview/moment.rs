//! The server at one moment, and its parts of pages, each made once for each form of numbers.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use bookstore::{Bookstore, domain::Entry, store::Page};
use bytes::Bytes;
use operate::{Figures, OpenConnection, Operate, Point};
use serde_json::json;

use crate::room::{entries, figures, parts::LogPart};
use crate::{locale::Locale, visit::rendered};

/// Entries in the part with the newest ones.
const RECENT: usize = 12;

/// Interval of the larger parts.
const SLOW: Duration = Duration::from_secs(2);

/// In place of a verdict before the first sample.
const UNKNOWN: &str = "<p class=\"empty\">The first figures follow in a second.</p>";

/// A part of a page that changes while one looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Part {
    Lost,
    Healthy,
    Sparks,
    Methods,
    Recent,
    Callers,
}

impl Part {
    const ALL: [Self; 6] = [Self::Lost, Self::Healthy, Self::Sparks, Self::Methods, Self::Recent, Self::Callers];

    /// The identifier of its element.
    const fn name(self) -> &'static str {
        match self {
            Self::Lost => "lost",
            Self::Healthy => "healthy",
            Self::Sparks => "sparks",
            Self::Methods => "methods",
            Self::Recent => "recent",
            Self::Callers => "callers",
        }
    }

    /// Parts by their names, with commas between, each once; others are left out.
    pub(crate) fn list(names: &str) -> Vec<Self> {
        Self::ALL.into_iter().filter(|part| names.split(',').any(|name| name == part.name())).collect()
    }
}

/// Large parts that change often.
#[derive(Debug, Default)]
struct Large {
    taken: Option<Instant>,
    figures: Arc<Figures>,
    points: Vec<Arc<Point>>,
    connections: Vec<OpenConnection>,
}

/// Entries that came into the log since an earlier moment.
#[derive(Debug, Default)]
struct Added {
    /// Number of the newest entry then.
    after: i64,
    /// Oldest first.
    entries: Vec<Entry>,
}

/// The server at one moment.
#[derive(Debug, Default)]
pub(crate) struct Moment {
    taken: Option<Instant>,
    figures: Arc<Figures>,
    large: Arc<Large>,
    log_number: i64,
    added: Added,
    /// The newest entries, with the titles of their books.
    recent: Arc<Vec<(Entry, String)>>,
    events: Mutex<HashMap<(Part, Locale), Bytes>>,
}

impl Moment {
    /// The server now; what has not changed is that of `before`.
    pub(crate) async fn now(store: &Bookstore, operate: &Operate, before: &Self) -> Self {
        let (now, figures) = (Instant::now(), operate.newest().borrow().clone());
        let is_fresh = before.large.taken.is_some_and(|taken| now.saturating_duration_since(taken) < SLOW);
        let large = if is_fresh {
            Arc::clone(&before.large)
        } else {
            Arc::new(Large {
                taken: Some(now),
                figures: Arc::clone(&figures),
                points: operate.history(),
                connections: operate.connections(),
            })
        };
        let (log_number, added, recent) = if let Some((added, recent)) = news(store, before).await {
            (recent.first().map_or(0, |(entry, _)| entry.number), added, Arc::new(recent))
        } else {
            let added = Added { after: before.log_number, entries: Vec::new() };
            (before.log_number, added, Arc::clone(&before.recent))
        };
        Self { taken: Some(now), figures, large, log_number, added, recent, events: Mutex::default() }
    }

    /// True if it was taken lately.
    pub(crate) fn is_new(&self) -> bool {
        self.taken.is_some_and(|taken| taken.elapsed() < SLOW)
    }

    /// A part as HTML.
    pub(crate) fn html(&self, part: Part, locale: Locale) -> String {
        let Large { figures: earlier, points, connections, .. } = &*self.large;
        let html = match part {
            Part::Lost | Part::Healthy if self.figures.time_ms == 0 => Some(UNKNOWN.to_owned()),
            Part::Lost => rendered(&figures::lost(&self.figures, locale)),
            Part::Healthy => rendered(&figures::healthy(&self.figures, locale)),
            Part::Sparks => rendered(&figures::sparks(earlier, points, locale)),
            Part::Methods => rendered(&figures::methods(earlier, locale)),
            Part::Recent => rendered(&LogPart { rows: entries::rows(&self.recent, locale), is_more: false }),
            Part::Callers => rendered(&figures::callers(connections, locale)),
        };
        html.unwrap_or_default()
    }

    /// Number of the newest entry of the log.
    pub(crate) fn log_number(&self) -> i64 {
        self.log_number
    }

    /// Entries with greater numbers, newest first; `None` if not all of them are known here.
    pub(crate) fn entries_after(&self, number: i64) -> Option<impl Iterator<Item = &Entry>> {
        let is_all = self.added.after <= number;
        is_all.then(|| self.added.entries.iter().rev().take_while(move |entry| entry.number > number))
    }

    /// The event that carries a part.
    pub(crate) fn event(&self, part: Part, locale: Locale) -> Bytes {
        let mut events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        let made = events.entry((part, locale)).or_insert_with(|| event(part.name(), &self.html(part, locale)));
        made.clone()
    }
}

/// The entries that came since `before`, and the newest ones of all with the titles of their books; `None` if there is nothing new
/// or the log cannot be read. Reads at most a page.
async fn news(store: &Bookstore, before: &Moment) -> Option<(Added, Vec<(Entry, String)>)> {
    if before.taken.is_some() {
        if before.log_number == store.levels().log_number {
            return None;
        }
        let page = store.log(Page::After(before.log_number), 0).await.ok()?;
        if page.next.is_none() && !page.items.is_empty() {
            let newest = page.items.iter().rev().take(RECENT).cloned().collect();
            let mut recent = entries::titled(store, newest).await;
            recent.extend(before.recent.iter().take(RECENT - recent.len()).cloned());
            return Some((Added { after: before.log_number, entries: page.items }, recent));
        }
    }
    // There are too many to follow each.
    let page = store.log(Page::Before(i64::MAX), RECENT).await.ok()?;
    let after = page.items.first().map_or(0, |entry| entry.number);
    Some((Added { after, entries: Vec::new() }, entries::titled(store, page.items).await))
}

/// The event that carries the content of the element with this identifier.
pub(crate) fn event(id: &str, html: &str) -> Bytes {
    format!("event: part\ndata: {}\n\n", json!({ "id": id, "html": html })).into()
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderMap;

    use super::{Moment, Part, UNKNOWN, event};
    use crate::locale::Locale;

    #[test]
    fn there_is_no_verdict_before_the_first_sample() {
        let moment = Moment::default();
        for part in [Part::Lost, Part::Healthy] {
            assert_eq!(moment.html(part, Locale::of(&HeaderMap::new())), UNKNOWN);
        }
    }

    #[test]
    fn parts_are_named_once() {
        assert_eq!(Part::list("lost,x,,callers"), [Part::Lost, Part::Callers]);
        assert_eq!(Part::list(&"lost,sparks,".repeat(50)), [Part::Lost, Part::Sparks]);
    }

    #[test]
    fn an_event_is_one_line_of_data() {
        let sent = String::from_utf8(event("a", "<p>\n").to_vec()).unwrap();
        let data = sent.strip_prefix("event: part\ndata: ").and_then(|rest| rest.strip_suffix("\n\n")).unwrap();
        let part: serde_json::Value = serde_json::from_str(data).unwrap();
        assert!(!data.contains('\n') && part["id"] == "a" && part["html"] == "<p>\n", "{sent}");
    }
}
