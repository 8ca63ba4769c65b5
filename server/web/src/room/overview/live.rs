//! Live parts by server-sent events: one stream a page, and one task that looks at the server for all of them, once a
//! second and only while there are streams.

use std::{convert::Infallible, sync::Arc, time::Duration};

use axum::body::Body;
use bookstore::{
    Bookstore,
    domain::{Entry, LogFilter},
};
use bytes::{Bytes, BytesMut};
use futures_util::{Stream, stream};
use hosting::{Client, Share, Shares};
use operate::Operate;
use tokio::{
    sync::{Notify, watch},
    time::timeout,
};

use crate::room::{
    entries::{self, PAGE_ENTRIES},
    moment::{Moment, Part, event},
    parts::LogPart,
};
use crate::{locale::Locale, visit::rendered};

/// Most streams at once, shared fairly by clients.
pub const STREAMS_MAX: usize = 256;

/// Longest pause between two looks at the server.
const PAUSE: Duration = Duration::from_millis(1500);

/// Longest silence of a stream, so that a connection that is gone is noticed.
const SILENCE_MAX: Duration = Duration::from_secs(15);

/// Checks that the session of a stream is open. A stream does not keep it in use.
pub(crate) type IsOpen = Box<dyn Fn() -> bool + Send>;

/// The streams of the room; clones share them.
#[derive(Clone, Debug)]
pub(crate) struct RoomLive(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    store: Bookstore,
    operate: Operate,
    places: Shares,
    moments: watch::Sender<Arc<Moment>>,
    /// Turns true when the server stops.
    ending: watch::Sender<bool>,
    opened: Notify,
}

impl RoomLive {
    pub(crate) fn new(store: Bookstore, operate: Operate) -> Self {
        let (moments, ending) = (watch::Sender::new(Arc::default()), watch::Sender::new(false));
        let places = Shares::new(STREAMS_MAX);
        Self(Arc::new(Shared { store, operate, places, moments, ending, opened: Notify::new() }))
    }

    /// The server now.
    pub(crate) async fn moment(&self) -> Arc<Moment> {
        let shared = &*self.0;
        let newest = Arc::clone(&shared.moments.borrow());
        if newest.is_new() {
            return newest;
        }
        Arc::new(Moment::now(&shared.store, &shared.operate, &newest).await)
    }

    /// Looks at the server for the streams.
    pub(crate) async fn run(self) {
        let Shared { store, operate, moments, opened, .. } = &*self.0;
        let mut samples = operate.newest();
        loop {
            // Registered before the count is read, so that no stream is missed.
            let next = opened.notified();
            if moments.receiver_count() == 0 {
                next.await;
            }
            while moments.receiver_count() > 0 {
                let before = Arc::clone(&moments.borrow());
                let now = Moment::now(store, operate, &before).await;
                moments.send_replace(Arc::new(now));
                // The first sample may be a while in coming.
                let _ = timeout(PAUSE, samples.changed()).await;
            }
        }
    }

    /// Ends every stream.
    pub(crate) fn end(&self) {
        self.0.ending.send_replace(true);
    }

    /// Opens a stream of these parts, and of the chosen entries of the log; `None` if too many are open. It begins with all of
    /// them.
    pub(crate) fn open(
        &self,
        parts: Vec<Part>,
        log: Option<LogFilter>,
        locale: Locale,
        client: Client,
        is_open: IsOpen,
    ) -> Option<Body> {
        let share = self.0.places.take(client)?;
        let follower = Follower {
            parts: parts.into_iter().map(|part| (part, Bytes::new())).collect(),
            log: log.map(|filter| FollowedLog { filter, seen: None, rows: Vec::new(), is_more: false }),
            store: self.0.store.clone(),
            locale,
            moments: self.0.moments.subscribe(),
            ending: self.0.ending.subscribe(),
            is_open,
            is_over: false,
            _share: share,
        };
        self.0.opened.notify_one();
        Some(Body::from_stream(follower.events()))
    }
}

/// One page's stream.
struct Follower {
    /// Each with the event that was sent last.
    parts: Vec<(Part, Bytes)>,
    log: Option<FollowedLog>,
    store: Bookstore,
    locale: Locale,
    moments: watch::Receiver<Arc<Moment>>,
    ending: watch::Receiver<bool>,
    is_open: IsOpen,
    is_over: bool,
    _share: Share,
}

impl Follower {
    fn events(self) -> impl Stream<Item = Result<Bytes, Infallible>> {
        stream::unfold((self, true), async |(mut follower, is_first)| {
            let bytes = follower.next(is_first).await?;
            Some((Ok(bytes), (follower, false)))
        })
    }

    /// Waits for a change, or for the time to show that the stream is open; `None` at the end.
    async fn next(&mut self, is_first: bool) -> Option<Bytes> {
        if is_first {
            let start = b"retry: 2000\n\n";
            let newest = Arc::clone(&self.moments.borrow_and_update());
            let parts = if newest.is_new() { self.changed(&newest).await } else { Bytes::new() };
            return Some([&start[..], &parts].concat().into());
        }
        if self.is_over {
            return None;
        }
        let quiet = timeout(SILENCE_MAX, async {
            loop {
                tokio::select! {
                    changed = self.moments.changed() => changed.ok()?,
                    _ = self.ending.wait_for(|ending| *ending) => return None,
                }
                if !(self.is_open)() {
                    self.is_over = true;
                    return Some(Bytes::from_static(b"event: over\ndata:\n\n"));
                }
                let newest = Arc::clone(&self.moments.borrow_and_update());
                let bytes = self.changed(&newest).await;
                if !bytes.is_empty() {
                    return Some(bytes);
                }
            }
        });
        quiet.await.unwrap_or_else(|_| Some(Bytes::from_static(b":\n\n")))
    }

    /// The events that differ from those that were sent.
    async fn changed(&mut self, moment: &Moment) -> Bytes {
        let mut bytes = BytesMut::new();
        for (part, sent) in &mut self.parts {
            let event = moment.event(*part, self.locale);
            if event != *sent {
                bytes.extend_from_slice(&event);
                *sent = event;
            }
        }
        if let Some(log) = &mut self.log
            && log.follow(moment, &self.store).await
        {
            let html = rendered(&LogPart { rows: entries::rows(&log.rows, self.locale), is_more: log.is_more });
            bytes.extend_from_slice(&event("log", &html.unwrap_or_default()));
        }
        bytes.freeze()
    }
}

/// The chosen entries of the log on a page.
struct FollowedLog {
    filter: LogFilter,
    /// Number of the newest entry that was looked at.
    seen: Option<i64>,
    rows: Vec<(Entry, String)>,
    is_more: bool,
}

impl FollowedLog {
    /// Brings the rows up to a moment; true if they are to be sent. Looks into the store only for the first rows, and if more
    /// entries came than a moment holds.
    async fn follow(&mut self, moment: &Moment, store: &Bookstore) -> bool {
        let Self { filter, seen, rows, is_more } = self;
        if seen.is_some_and(|seen| seen >= moment.log_number()) {
            return false;
        }
        if let Some(added) = seen.and_then(|seen| moment.entries_after(seen)) {
            *seen = Some(moment.log_number());
            let chosen = added.filter(|entry| entries::is_chosen(filter, entry)).take(PAGE_ENTRIES).cloned().collect();
            let mut newest = entries::titled(store, chosen).await;
            let is_any = !newest.is_empty();
            newest.append(rows);
            newest.truncate(PAGE_ENTRIES);
            *rows = newest;
            return is_any;
        }
        // A store that cannot be read is asked again at the next moment.
        let Ok(page) = entries::page(store, i64::MAX, filter, PAGE_ENTRIES).await else { return false };
        *is_more = page.next.is_some();
        let newest = page.items.first().map_or(0, |entry| entry.number);
        *seen = Some(newest.max(moment.log_number()));
        *rows = entries::titled(store, page.items).await;
        true
    }
}
