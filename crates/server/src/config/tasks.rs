//! The section `[tasks]`: as it is written, and turned into what is valid.

use serde::{Deserialize, Serialize};

use super::{
    Bad, IsNamed, Port, bytes_within, listening, ports, seconds,
    units::{Bytes, Seconds},
    within,
};

/// The task server; every value is valid.
#[derive(Clone, Debug)]
pub(crate) struct Tasks {
    pub listen: Port,
    /// Threads that serve its connections.
    pub threads: usize,
    pub service: tasks::Settings,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Raw {
    enabled: bool,
    listen: String,
    threads: u64,
    concurrency: Concurrency,
    cache: bool,
    cache_entries: u64,
    cpu_tasks: u64,
    connections: u64,
    in_flight: u64,
    waiting: u64,
    line_bytes: Bytes,
    idle_seconds: Seconds,
    unread_seconds: Seconds,
}

#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
enum Concurrency {
    None,
    Client,
    Task,
}

impl Default for Raw {
    fn default() -> Self {
        let limits = tasks::Limits::default();
        let wide = |number: usize| u64::try_from(number).unwrap_or(u64::MAX);
        Self {
            enabled: true,
            listen: format!("127.0.0.1:{}", ports::TASKS),
            threads: 1,
            concurrency: Concurrency::Task,
            cache: true,
            cache_entries: wide(limits.cache_entries),
            cpu_tasks: wide(limits.cpu_tasks),
            connections: wide(limits.connections),
            in_flight: wide(limits.in_flight),
            waiting: wide(limits.waiting),
            line_bytes: limits.line_bytes.into(),
            idle_seconds: limits.idle.into(),
            unread_seconds: limits.unread.into(),
        }
    }
}

/// None if the service is off; its other values must be valid all the same.
pub(super) fn validate(raw: &Raw, is_named: IsNamed<'_>) -> Result<Option<Tasks>, Bad> {
    let address = listening("tasks.listen", &raw.listen, ports::TASKS)?;
    let listen = Port { address, is_named: is_named("tasks.listen") };
    let service = tasks::Settings {
        concurrency: match raw.concurrency {
            Concurrency::None => tasks::Concurrency::None,
            Concurrency::Client => tasks::Concurrency::Client,
            Concurrency::Task => tasks::Concurrency::Task,
        },
        cache: raw.cache,
        limits: tasks::Limits {
            cache_entries: within("tasks.cache_entries", raw.cache_entries, 1, 1 << 30)?,
            cpu_tasks: within("tasks.cpu_tasks", raw.cpu_tasks, 1, 1024)?,
            connections: within("tasks.connections", raw.connections, 1, 1 << 20)?,
            in_flight: within("tasks.in_flight", raw.in_flight, 1, 1 << 16)?,
            waiting: within("tasks.waiting", raw.waiting, 0, 1 << 24)?,
            line_bytes: bytes_within("tasks.line_bytes", raw.line_bytes, 32, 1 << 16)?,
            idle: seconds("tasks.idle_seconds", raw.idle_seconds)?,
            unread: seconds("tasks.unread_seconds", raw.unread_seconds)?,
        },
    };
    let threads = within("tasks.threads", raw.threads, 1, 256)?;
    Ok(raw.enabled.then_some(Tasks { listen, threads, service }))
}
