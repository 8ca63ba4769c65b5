//! Live stock and prices by server-sent events (HTML Living Standard section 9.2): one stream a page.
//!
//! One task for all streams compares the number of the newest log entry, only while there are streams, and wakes them
//! when it has grown. Each then reads its books in memory and sends what differs from what it sent last.

use std::{convert::Infallible, fmt::Write as _, sync::Arc, time::Duration};

use axum::body::Body;
use bookstore::{BookId, Bookstore, Cents};
use futures_util::{Stream, stream};
use hosting::{Client, Share, Shares, access::Admitted};
use serde_json::json;
use tokio::{
    sync::{Notify, watch},
    time::{MissedTickBehavior, interval, timeout},
};

use crate::{locale::Locale, views::Stock};

/// Most streams at once, shared fairly by clients.
pub const STREAMS_MAX: usize = 1024;

/// Most books of one stream.
pub(crate) const BOOKS_MAX: usize = 64;

/// Interval of the comparison: several times faster than a shopper notices.
const TICK: Duration = Duration::from_millis(200);

/// Longest silence of a stream, so that a connection that is gone is noticed.
const SILENCE_MAX: Duration = Duration::from_secs(15);

/// The streams of a server; clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Live(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    store: Bookstore,
    places: Shares,
    /// Counts up when a stock or a price may have changed.
    changes: watch::Sender<u64>,
    /// Turns true when the server stops.
    ending: watch::Sender<bool>,
    opened: Notify,
}

impl Live {
    pub(crate) fn new(store: Bookstore) -> Self {
        let (places, changes, ending) = (Shares::new(STREAMS_MAX), watch::Sender::new(0), watch::Sender::new(false));
        Self(Arc::new(Shared { store, places, changes, ending, opened: Notify::new() }))
    }

    /// Wakes the streams after each change.
    pub(crate) async fn run(self) {
        let shared = &*self.0;
        loop {
            // Registered before the count is read, so that no stream is missed.
            let opened = shared.opened.notified();
            if shared.changes.receiver_count() == 0 {
                opened.await;
            }
            self.watch_until_unused().await;
        }
    }

    async fn watch_until_unused(&self) {
        let Shared { store, changes, .. } = &*self.0;
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut newest, mut has_changed) = (0, false);
        while changes.receiver_count() > 0 {
            ticks.tick().await;
            let now = store.levels().log_number;
            // Once more after the last change, because the number may be published before the catalogue is.
            if now != newest || has_changed {
                changes.send_modify(|count| *count += 1);
            }
            has_changed = now != newest;
            newest = now;
        }
    }

    /// Ends every stream.
    pub(crate) fn end(&self) {
        self.0.ending.send_replace(true);
    }

    /// Opens a stream of these books; `None` if too many are open. It begins with all books.
    pub(crate) fn open(
        &self,
        books: Vec<BookId>,
        locale: Locale,
        client: Client,
        admitted: Option<Admitted>,
    ) -> Option<Body> {
        let share = self.0.places.take(client)?;
        let shared = &*self.0;
        let follower = Follower {
            store: shared.store.clone(),
            locale,
            books: books.into_iter().map(|id| (id, None)).collect(),
            changes: shared.changes.subscribe(),
            ending: shared.ending.subscribe(),
            _share: share,
        };
        shared.opened.notify_one();
        Some(Body::from_stream(follower.events(admitted)))
    }
}

/// One page's stream.
struct Follower {
    store: Bookstore,
    locale: Locale,
    /// Each with what was sent last.
    books: Vec<(BookId, Option<(u32, Cents)>)>,
    changes: watch::Receiver<u64>,
    ending: watch::Receiver<bool>,
    _share: Share,
}

impl Follower {
    fn events(self, admitted: Option<Admitted>) -> impl Stream<Item = Result<String, Infallible>> {
        let revoked = async move {
            match admitted {
                Some(admitted) => admitted.revoked().await,
                None => std::future::pending().await,
            }
        };
        let revoked = Box::pin(revoked);
        stream::unfold((self, revoked, true), async |(mut follower, mut revoked, is_first)| {
            let text = tokio::select! {
                text = follower.next(is_first) => text?,
                () = &mut revoked => return None,
            };
            Some((Ok(text), (follower, revoked, false)))
        })
    }

    /// Waits for a change of a book, or for the time to show that the stream is open; `None` when the server stops.
    async fn next(&mut self, is_first: bool) -> Option<String> {
        if is_first {
            let all = self.changed().await;
            return Some(format!("retry: 2000\n\n{all}"));
        }
        let quiet = timeout(SILENCE_MAX, async {
            loop {
                tokio::select! {
                    changed = self.changes.changed() => changed.ok()?,
                    _ = self.ending.wait_for(|ending| *ending) => return None,
                }
                let text = self.changed().await;
                if !text.is_empty() {
                    return Some(text);
                }
            }
        });
        quiet.await.unwrap_or_else(|_| Some(":\n\n".to_owned()))
    }

    /// An event for each book that differs from what was sent.
    async fn changed(&mut self) -> String {
        let mut text = String::new();
        for (id, sent) in &mut self.books {
            // After a failed read the book stays as it is until the next change.
            let Ok(Some(book)) = self.store.lookup(*id).await else { continue };
            let now = (book.stock(), book.price());
            if sent.replace(now) == Some(now) {
                continue;
            }
            let stock = Stock::new(now.0, self.locale);
            let data = json!({
                "book": id.get(),
                "stock": stock.text,
                "level": stock.level,
                "price": self.locale.price(now.1),
            });
            // Writing to a string cannot fail.
            let _ = write!(text, "event: book\ndata: {data}\n\n");
        }
        text
    }
}
