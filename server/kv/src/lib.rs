//! A key-value service: a concurrent map that is atomic per key, in memory or on disk as well.
//!
//! A transport ([`grpc`]) converts a request to domain types, calls a [`KeyValue`], and converts the answer back. The
//! [`KeyValue`] reads the table and writes to it, through the journal for durable writes. The crate opens no socket,
//! reads no configuration file and prints nothing.
//!
//! ```
//! use kv::{Clock, Fault, KeyValue, Settings, Value};
//!
//! # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
//! // In memory, so the folder is not looked at.
//! let kv = KeyValue::open("unused".as_ref(), Settings::default(), Clock::Wall)?;
//! let first = kv.create(b"stock", Value::copied(b"7"), None).await?;
//! let second = kv.update(b"stock", Value::copied(b"6"), Some(first), None).await?;
//! // A caller that has not seen the second version overwrites nothing.
//! let late = kv.update(b"stock", Value::copied(b"5"), Some(first), None).await;
//! assert_eq!(late, Err(Fault::Conflict(second)));
//! assert_eq!(kv.retrieve(b"stock").await?.value.bytes(), "6");
//! assert!(kv.delete(b"stock", None).await?);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![cfg_attr(not(feature = "journal"), expect(dead_code, reason = "only the journal needs all of the table"))]

mod entry;
mod fault;
pub mod grpc;
#[cfg(feature = "journal")]
mod journal;
#[cfg(not(feature = "journal"))]
#[path = "without_journal.rs"]
mod journal;
mod key_value;
mod metrics;
mod service;
mod settings;
mod snapshot;
mod table;
mod timer;
mod watch;
mod write;

pub use entry::Clock;
pub use entry::{Entry, Key, Value, Version};
pub use fault::{Fault, Limit};
pub use journal::OpenError;
pub use key_value::{KeyValue, Scan};
pub use metrics::Levels;
pub use service::{ADDRESS_FILE, FOLDER_NAME, KvService};
pub use settings::{Durability, Limits, Settings, StoreKind};
pub use snapshot::{Restore, RestoreError, Snapshot, SnapshotPage};
pub use timer::sleep;
pub use watch::{Event, EventKind, Watch};
