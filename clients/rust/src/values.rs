//! Calls of the key-value store, and their results.

use std::time::Duration;

use bytes::Bytes;
use quire_rpc::{Code, Streaming};

use crate::{
    attempts::{READ, WATCH, WRITE, within},
    client::Client,
    error::Error,
    items::Items,
    wire::kv::{
        CreateRequest, DeleteRequest, Entry as WireEntry, PutRequest, RetrieveRequest, RetrieveResponse, ScanRequest,
        UpdateRequest, WatchEvent, WatchEventKind, WatchRequest,
    },
};

/// Value of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Value {
    /// The bytes.
    pub value: Bytes,
    /// Version set by the write; unique to it.
    pub version: u64,
    /// Time until the entry expires, if it does.
    pub time_left: Option<Duration>,
}

/// A key with its value.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Entry {
    /// The key.
    pub key: Bytes,
    /// The bytes; empty if only keys were requested.
    pub value: Bytes,
    /// Version set by the write.
    pub version: u64,
    /// Time until the entry expires, if it does.
    pub time_left: Option<Duration>,
}

/// Result of [`Client::create`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Created {
    /// The entry was created with this version.
    Version(u64),
    /// The key already had an entry.
    Exists,
}

/// Result of [`Client::update`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Updated {
    /// The entry now has this version.
    Version(u64),
    /// The key has no entry.
    NoSuchKey,
    /// The entry has another version than expected; the server's message names it.
    AnotherVersion(String),
}

/// Result of [`Client::delete`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Deleted {
    /// The entry was deleted.
    Done,
    /// The key had no entry.
    NoSuchKey,
    /// The entry has another version than expected; the server's message names it.
    AnotherVersion(String),
}

/// A change reported by a watch.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// The watch has begun: every later change is reported.
    Started,
    /// A key was created, or its value changed.
    Put {
        /// The key.
        key: Bytes,
        /// The value; none if too large for an event: use [`Client::get`].
        value: Option<Bytes>,
        /// Version of the change.
        version: u64,
    },
    /// A key was deleted.
    Deleted {
        /// The key.
        key: Bytes,
        /// Version of the change.
        version: u64,
    },
    /// An entry expired.
    Expired {
        /// The key.
        key: Bytes,
        /// Version of the change.
        version: u64,
    },
    /// A kind of change unknown to this library.
    Other,
}

/// Keys and values are any bytes. A time to live is at least 1 ms; without one the entry stays.
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
        match self.ask(WRITE, |lane, by| lane.values.create(within(request(), by))).await {
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
        Ok(self.ask(WRITE, |lane, by| lane.range.put(within(request(), by))).await?.version)
    }

    /// The value of a key, if it has an entry.
    pub async fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Value>, Error> {
        let key = bytes(key);
        let request = || RetrieveRequest { key: key.clone(), want_details: true };
        match self.ask(READ, |lane, by| lane.values.retrieve(within(request(), by))).await {
            Ok(RetrieveResponse { value, version, time_to_live_ms }) => {
                Ok(Some(Value { value, version, time_left: time_to_live_ms.map(Duration::from_millis) }))
            }
            Err(Error::Refused(fault)) if fault.code == Code::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Another name of [`Client::get`].
    pub async fn retrieve(&self, key: impl AsRef<[u8]>) -> Result<Option<Value>, Error> {
        self.get(key).await
    }

    /// Replaces the value of a key; with `expected_version`, only if the entry has that version.
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
        match self.ask(WRITE, |lane, by| lane.values.update(within(request(), by))).await {
            Ok(reply) => Ok(Updated::Version(reply.version)),
            Err(Error::Refused(fault)) if fault.code == Code::NotFound => Ok(Updated::NoSuchKey),
            Err(Error::Refused(fault)) if fault.code == Code::Aborted => Ok(Updated::AnotherVersion(fault.message)),
            Err(error) => Err(error),
        }
    }

    /// Removes an entry; with `expected_version`, only if it has that version.
    pub async fn delete(&self, key: impl AsRef<[u8]>, expected_version: Option<u64>) -> Result<Deleted, Error> {
        let key = bytes(key);
        let request = || DeleteRequest { key: key.clone(), expected_version, want_details: true };
        match self.ask(WRITE, |lane, by| lane.values.delete(within(request(), by))).await {
            Ok(reply) if reply.deleted => Ok(Deleted::Done),
            Ok(_) => Ok(Deleted::NoSuchKey),
            Err(Error::Refused(fault)) if fault.code == Code::Aborted => Ok(Deleted::AnotherVersion(fault.message)),
            Err(error) => Err(error),
        }
    }

    /// Entries whose keys begin with `prefix`, ordered by key. Each is as it was when it was read.
    pub fn scan(&self, prefix: impl AsRef<[u8]>) -> Items<Entry> {
        self.scan_pages(bytes(prefix), false)
    }

    /// Like [`Client::scan`], without the values.
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
                let page = client.ask(READ, |lane, by| lane.range.scan(within(request.clone(), by))).await?;
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
            let found = self.get(&key).await?;
            return Ok(found.map(|Value { value, version, time_left }| Entry { key, value, version, time_left }));
        }
        Ok(Some(Entry { key, value, version, time_left: time_to_live_ms.map(Duration::from_millis) }))
    }

    /// Changes of the keys that begin with `prefix`, from now on. The first event marks the beginning; without a
    /// timeout the watch lasts until it is dropped. A watch that falls behind fails; scan and watch again then.
    pub async fn watch(&self, prefix: impl AsRef<[u8]>) -> Result<Items<Event>, Error> {
        let prefix = bytes(prefix);
        let request = || WatchRequest { prefix: prefix.clone() };
        let events: Streaming<_> = self.ask(WATCH, |lane, by| lane.range.watch(within(request(), by))).await?;
        Ok(Items::of_stream(self.lanes.address(), events, Event::from))
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

/// A time to live in the form of requests: 0 for none.
fn milliseconds(time_to_live: Option<Duration>) -> Result<u64, Error> {
    let Some(time) = time_to_live else { return Ok(0) };
    match u64::try_from(time.as_millis()) {
        Ok(time_ms @ 1..) => Ok(time_ms),
        _ => Err(Error::Argument(format!("the time to live is {time:?}; it must be from 1 ms"))),
    }
}
