//! Settings that are read again at each SIGHUP and each Reload. Those of the log and of traces and the numbers
//! that may change are applied; others that changed are named.

use std::sync::Arc;

use hosting::{Connections, Numbers, SettingsInForce};
use operate::{Reloaded, traces::Traces};
use tokio::sync::Mutex;

use super::{Config, LIVE};
use crate::{
    cli::ServeArgs,
    process::Descriptors,
    telemetry::{CallLog, Filter},
};

/// The settings of a running server.
pub(crate) struct Current {
    args: ServeArgs,
    in_force: SettingsInForce,
    live: Numbers,
    admin_token: Option<Arc<str>>,
    filter: Filter,
    calls: Arc<CallLog>,
    /// `None` if they were off at the start.
    traces: Option<Traces>,
    descriptors: Descriptors,
    connections: Connections,
    /// Held while settings are read and applied, on threads that may block.
    reading: Mutex<()>,
}

impl Current {
    pub(crate) fn new(
        args: ServeArgs,
        config: &Config,
        filter: Filter,
        (calls, traces): (Arc<CallLog>, Option<Traces>),
        (descriptors, connections): (Descriptors, Connections),
    ) -> Self {
        let (in_force, live) = (config.in_force.clone(), config.live.clone());
        let admin_token = config.admin_token.clone();
        Self {
            args,
            in_force,
            live,
            admin_token,
            filter,
            calls,
            traces,
            descriptors,
            connections,
            reading: Mutex::default(),
        }
    }

    /// Reads all settings again, after those who do so already. If any is invalid, none is applied.
    pub(crate) fn read_in_turn(&self) {
        let _turn = self.reading.blocking_lock();
        // The log has the outcome.
        let _ = self.read();
    }

    /// The same, unless they are being read: a file may hang.
    pub(crate) fn read_now(&self) -> Result<Reloaded, String> {
        let turn = self.reading.try_lock();
        turn.map_or_else(
            |_| Err("the settings are being read already; try again after a pause".to_owned()),
            |_turn| self.read(),
        )
    }

    fn read(&self) -> Result<Reloaded, String> {
        let read = Config::of_server(&self.args).map_err(|error| format!("{error:#}"));
        let (config, _) = read.inspect_err(|error| {
            tracing::error!(error, "the settings cannot be read again; the last ones hold");
        })?;
        let is_applied = |key: &str| match key {
            "trace.sample" | "trace.callers_per_second" => self.traces.is_some(),
            _ => LIVE.contains(&key) || self.live.contains_key(key),
        };
        let changes = self.in_force.change(&config.in_force, is_applied);
        let mut waiting: Vec<_> = changes.iter().filter(|(_, applied)| !applied).map(|(one, _)| one.key).collect();
        // A secret's value is not shown.
        if self.admin_token != config.admin_token && !waiting.contains(&"admin.token") {
            waiting.push("admin.token");
        }
        let applied = changes.iter().filter(|(_, applied)| *applied);
        let applied: Vec<_> =
            applied.map(|(one, _)| format!("{}={}", one.key, one.value.as_deref().unwrap_or_default())).collect();
        for (number, now) in self.live.iter().filter_map(|(key, number)| Some((number, config.live.get(key)?))) {
            number.set(now.get());
        }
        self.calls.set(config.log.calls);
        if let Some(traces) = &self.traces {
            traces.set(config.traced);
        }
        // Before the lines below, so that they are filtered as they are wanted now.
        if let Err(error) = self.filter.set(&config.log.filter) {
            tracing::error!(%error, "the level of the log cannot be changed");
        }
        // Warnings, so that every usual level logs them.
        if !applied.is_empty() {
            tracing::warn!(settings = applied.join(", "), "settings that have changed hold from now on");
            self.descriptors.warn(&config.connections_set, &self.connections);
        }
        if !waiting.is_empty() {
            let settings = waiting.join(", ");
            tracing::warn!(settings, "settings that have changed since the start hold from the next start on");
        }
        Ok(Reloaded { applied, waiting: waiting.into_iter().map(str::to_owned).collect() })
    }
}
