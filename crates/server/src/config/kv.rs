//! The section `[kv]`.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Bad, bad, bytes_within, units::Bytes, within};

/// As it is written.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Raw {
    enabled: bool,
    store: Store,
    durability: Durability,
    read_delay_ms: u64,
    write_delay_ms: u64,
    key_bytes: Bytes,
    value_bytes: Bytes,
    entries: u64,
    total_bytes: Bytes,
    page_entries: u64,
    page_bytes: Bytes,
    watchers: u64,
    watch_events: u64,
    watch_bytes: Bytes,
    writes_queued: u64,
}

#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
enum Store {
    Mutex,
    Concurrent,
}

#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
enum Durability {
    Memory,
    Log,
}

impl Default for Raw {
    fn default() -> Self {
        let limits = kv::Limits::default();
        let wide = |number: usize| u64::try_from(number).unwrap_or(u64::MAX);
        Self {
            enabled: true,
            store: Store::Concurrent,
            durability: Durability::Memory,
            read_delay_ms: 0,
            write_delay_ms: 0,
            key_bytes: limits.key_bytes.into(),
            value_bytes: limits.value_bytes.into(),
            entries: wide(limits.entries),
            total_bytes: limits.total_bytes.into(),
            page_entries: wide(limits.page_entries),
            page_bytes: limits.page_bytes.into(),
            watchers: wide(limits.watchers),
            watch_events: wide(limits.watch_events),
            watch_bytes: limits.watch_bytes.into(),
            writes_queued: wide(limits.writes_queued),
        }
    }
}

/// Simulated work, and not a way to hang a caller.
const DELAY_MS_MAX: u64 = 60_000;

/// What the store on disk can take as a key.
const KEY_BYTES_MAX: u64 = 60_000;

fn delay(key: &'static str, value: u64) -> Result<Duration, Bad> {
    if value <= DELAY_MS_MAX {
        Ok(Duration::from_millis(value))
    } else {
        bad(key, &value, format!("milliseconds from 0 to {DELAY_MS_MAX}"))
    }
}

/// `None` when the service is off.
pub(super) fn validate(raw: &Raw) -> Result<Option<kv::Settings>, Bad> {
    let settings = kv::Settings {
        store: match raw.store {
            Store::Mutex => kv::StoreKind::Mutex,
            Store::Concurrent => kv::StoreKind::Concurrent,
        },
        durability: match raw.durability {
            Durability::Memory => kv::Durability::Memory,
            Durability::Log => kv::Durability::Log,
        },
        read_delay: delay("kv.read_delay_ms", raw.read_delay_ms)?,
        write_delay: delay("kv.write_delay_ms", raw.write_delay_ms)?,
        limits: kv::Limits {
            key_bytes: bytes_within("kv.key_bytes", raw.key_bytes, 0, KEY_BYTES_MAX)?,
            value_bytes: bytes_within("kv.value_bytes", raw.value_bytes, 0, 1 << 30)?,
            entries: within("kv.entries", raw.entries, 1, 1 << 40)?,
            total_bytes: bytes_within("kv.total_bytes", raw.total_bytes, 1, 1 << 50)?,
            page_entries: within("kv.page_entries", raw.page_entries, 1, 100_000)?,
            page_bytes: bytes_within("kv.page_bytes", raw.page_bytes, 1, 1 << 30)?,
            watchers: within("kv.watchers", raw.watchers, 0, 1 << 16)?,
            watch_events: within("kv.watch_events", raw.watch_events, 1, 1 << 20)?,
            watch_bytes: bytes_within("kv.watch_bytes", raw.watch_bytes, 1, 1 << 30)?,
            writes_queued: within("kv.writes_queued", raw.writes_queued, 1, 1 << 24)?,
        },
    };
    Ok(raw.enabled.then_some(settings))
}
