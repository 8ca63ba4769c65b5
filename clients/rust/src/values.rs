//! The key-value store: its calls, and what they answer.

use std::time::Duration;

use bytes::Bytes;
use quire_rpc::{Code, Streaming};

use crate::{
    attempts::{READ, WATCH, WRITE, ask, within},
    client::Client,
    error::Error,
    items::Items,
    wire::kv::{
        CreateRequest, DeleteRequest, Entry as WireEntry, PutRequest, RetrieveRequest, RetrieveResponse, ScanRequest,
        UpdateRequest, WatchEvent, WatchEventKind, WatchRequest,
    },
};

/// What a key has.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Value {
    /// The bytes.
    pub value: Bytes,
    /// Of the write that made it; no other write has the same.
    pub version: u64,
    /// Until the entry expires, if it does.
    pub time_left: Option<Duration>,
}

/// A key with what it has.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Entry {
    /// The key.
    pub key: Bytes,
    /// The bytes; empty if only keys were asked for.
    pub value: Bytes,
    /// Of the write that made it.
    pub version: u64,
    /// Until the entry expires, if it does.
    pub time_left: Option<Duration>,
}

/// What came of [`Client::create`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Created {
    /// The entry is there, with this version.
    Version(u64),
    /// The key had an entry before.
    Exists,
}

/// What came of [`Client::update`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Updated {
    /// The entry has this version now.
    Version(u64),
    /// The key has no entry.
    NoSuchKey,
    /// The entry has another version than the expected one; the server's message names it.
    AnotherVersion(String),
}

/// What came of [`Client::delete`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Deleted {
    /// There was an entry, and it is gone.
    Done,
    /// The key had no entry.
    NoSuchKey,
    /// The entry has another version than the expected one; the server's message names it.
    AnotherVersion(String),
}

/// A change that a watch tells.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// The watch has begun: every change after this is told.
    Started,
    /// A key was created, or has another value.
    Put {
        /// The key.
        key: Bytes,
        /// The value; none if it is too large for an event. [`Client::retrieve`] has it.
        value: Option<Bytes>,
        /// Of the change.
        version: u64,
    },
    /// A key was deleted.
    Deleted {
        /// The key.
        key: Bytes,
        /// Of the change.
        version: u64,
    },
    /// The time of an entry was over.
    Expired {
        /// The key.
        key: Bytes,
        /// Of the change.
        version: u64,
    },
    /// A change of a kind that this library does not know.
    Other,
}

/// Keys and values are any bytes. A time to live is from 1 ms; without one the entry stays.
impl Client {
    /// Sets the value of a new key.
    pub async fn create(
        &self,
        key: impl AsRef<[u8]>,
        value: impl Into<Bytes>,
        time_to_live: Option<Duration>,
    ) -> Result<Created, Error> {
        let (key, value, time_to_live_ms) = (bytes(key), value.into(), milliseconds(time_to_live)?);
        let request = || CreateRequest { key: key.clone(), value: value.clone(), time_to_live_ms, want_details: true };
        match ask(&self.lanes, &self.terms, WRITE, |lane, by| lane.values.create(within(request(), by))).await {
            Ok(reply) => Ok(Created::Version(reply.version)),
            Err(Error::Refused(fault)) if fault.code == Code::AlreadyExists => Ok(Created::Exists),
            Err(error) => Err(error),
        }
    }

    /// Sets the value of a key, new or not. Returns the version of the entry.
    pub async fn put(
        &self,
        key: impl AsRef<[u8]>,
        value: impl Into<Bytes>,
        time_to_live: Option<Duration>,
    ) -> Result<u64, Error> {
        let (key, value, time_to_live_ms) = (bytes(key), value.into(), milliseconds(time_to_live)?);
        let request = || PutRequest { key: key.clone(), value: value.clone(), time_to_live_ms };
        Ok(ask(&self.lanes, &self.terms, WRITE, |lane, by| lane.range.put(within(request(), by))).await?.version)
    }

    /// What a key has, if it has an entry.
    pub async fn retrieve(&self, key: impl AsRef<[u8]>) -> Result<Option<Value>, Error> {
        let key = bytes(key);
        let request = || RetrieveRequest { key: key.clone(), want_details: true };
        match ask(&self.lanes, &self.terms, READ, |lane, by| lane.values.retrieve(within(request(), by))).await {
            Ok(RetrieveResponse { value, version, time_to_live_ms }) => {
                Ok(Some(Value { value, version, time_left: time_to_live_ms.map(Duration::from_millis) }))
            }
            Err(Error::Refused(fault)) if fault.code == Code::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Replaces the value of a key, with `expected_version` only if the entry has that version.
    pub async fn update(
        &self,
        key: impl AsRef<[u8]>,
        value: impl Into<Bytes>,
        expected_version: Option<u64>,
        time_to_live: Option<Duration>,
    ) -> Result<Updated, Error> {
        let (key, value, time_to_live_ms) = (bytes(key), value.into(), milliseconds(time_to_live)?);
        let request = || UpdateRequest {
            key: key.clone(),
            value: value.clone(),
            expected_version,
            time_to_live_ms,
            want_details: true,
        };
        match ask(&self.lanes, &self.terms, WRITE, |lane, by| lane.values.update(within(request(), by))).await {
            Ok(reply) => Ok(Updated::Version(reply.version)),
            Err(Error::Refused(fault)) if fault.code == Code::NotFound => Ok(Updated::NoSuchKey),
            Err(Error::Refused(fault)) if fault.code == Code::Aborted => Ok(Updated::AnotherVersion(fault.message)),
            Err(error) => Err(error),
        }
    }

    /// Removes an entry, with `expected_version` only if it has that version.
    pub async fn delete(&self, key: impl AsRef<[u8]>, expected_version: Option<u64>) -> Result<Deleted, Error> {
        let key = bytes(key);
        let request = || DeleteRequest { key: key.clone(), expected_version, want_details: true };
        match ask(&self.lanes, &self.terms, WRITE, |lane, by| lane.values.delete(within(request(), by))).await {
            Ok(reply) if reply.deleted => Ok(Deleted::Done),
            Ok(_) => Ok(Deleted::NoSuchKey),
            Err(Error::Refused(fault)) if fault.code == Code::Aborted => Ok(Deleted::AnotherVersion(fault.message)),
            Err(error) => Err(error),
        }
    }

    /// The entries whose keys begin with `prefix`, in the order of their keys. Each is as it was when it was read.
    pub fn scan(&self, prefix: impl AsRef<[u8]>) -> Items<Entry> {
        self.scan_pages(bytes(prefix), false)
    }

    /// As [`Client::scan`], without the values.
    pub fn scan_keys(&self, prefix: impl AsRef<[u8]>) -> Items<Entry> {
        self.scan_pages(bytes(prefix), true)
    }

    fn scan_pages(&self, prefix: Bytes, keys_only: bool) -> Items<Entry> {
        let client = self.clone();
        Items::of_pages(None, move |start_after: Option<Bytes>| {
            let (client, prefix) = (client.clone(), prefix.clone());
            async move {
                let page_size = client.page_size()?.unsigned_abs();
                let request = ScanRequest { prefix, start_after, page_size, keys_only };
                let page =
                    ask(&client.lanes, &client.terms, READ, |lane, by| lane.range.scan(within(request.clone(), by)))
                        .await?;
                let mut entries = Vec::with_capacity(page.entries.len());
                for entry in page.entries {
                    entries.extend(client.whole(entry).await?);
                }
                Ok((entries, page.next_start_after.map(Some)))
            }
        })
    }

    /// An entry with its value, which may be too large for a page; none if the entry has gone meanwhile.
    async fn whole(&self, entry: WireEntry) -> Result<Option<Entry>, Error> {
        let WireEntry { key, value, version, time_to_live_ms, value_left_out } = entry;
        if value_left_out {
            let found = self.retrieve(&key).await?;
            return Ok(found.map(|Value { value, version, time_left }| Entry { key, value, version, time_left }));
        }
        Ok(Some(Entry { key, value, version, time_left: time_to_live_ms.map(Duration::from_millis) }))
    }

    /// Changes of the keys that begin with `prefix`, from now on. The first event says that the watch has begun; without a
    /// timeout it lasts until it is dropped. A watcher that does not keep up is refused; scan and watch again then.
    pub async fn watch(&self, prefix: impl AsRef<[u8]>) -> Result<Items<Event>, Error> {
        let prefix = bytes(prefix);
        let request = || WatchRequest { prefix: prefix.clone() };
        let events: Streaming<_> =
            ask(&self.lanes, &self.terms, WATCH, |lane, by| lane.range.watch(within(request(), by))).await?;
        Ok(Items::of_stream(events, Event::from))
    }
}

impl From<WatchEvent> for Event {
    fn from(event: WatchEvent) -> Self {
        let (kind, WatchEvent { key, value, version, value_left_out, .. }) = (event.kind(), event);
        match kind {
            WatchEventKind::Started => Self::Started,
            WatchEventKind::Put => Self::Put { key, value: (!value_left_out).then_some(value), version },
            WatchEventKind::Deleted => Self::Deleted { key, version },
            WatchEventKind::Expired => Self::Expired { key, version },
            WatchEventKind::Unspecified => Self::Other,
        }
    }
}

fn bytes(key: impl AsRef<[u8]>) -> Bytes {
    Bytes::copy_from_slice(key.as_ref())
}

/// A time to live as requests have it: 0 for none.
fn milliseconds(time_to_live: Option<Duration>) -> Result<u64, Error> {
    let Some(time) = time_to_live else { return Ok(0) };
    match u64::try_from(time.as_millis()) {
        Ok(time_ms @ 1..) => Ok(time_ms),
        _ => Err(Error::Argument(format!("the time to live is {time:?}; it must be from 1 ms"))),
    }
}
