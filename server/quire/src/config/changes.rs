//! Settings that are read again at each SIGHUP: those of the log are applied, and others that changed are named.

use std::sync::{Arc, Mutex, PoisonError};

use hosting::SettingsInForce;

use super::{Config, LIVE};
use crate::{
    cli::ServeArgs,
    telemetry::{CallLog, Filter},
};

/// The settings of a running server.
pub(crate) struct Current {
    args: ServeArgs,
    at_start: SettingsInForce,
    admin_token: Option<Arc<str>>,
    filter: Filter,
    /// The text of the filter.
    level: Mutex<String>,
    /// `None` if it was off at the start.
    calls: Option<Arc<CallLog>>,
}

impl Current {
    pub(crate) fn new(args: ServeArgs, config: &Config, filter: Filter, calls: Option<Arc<CallLog>>) -> Self {
        let (at_start, admin_token) = (config.in_force.clone(), config.admin_token.clone());
        Self { args, at_start, admin_token, filter, level: Mutex::new(config.log.filter.clone()), calls }
    }

    /// Reads all settings again. If any is invalid, none is applied.
    pub(crate) fn read_again(&self) {
        let config = match Config::of_server(&self.args) {
            Ok((config, _)) => config,
            Err(error) => {
                let error = format!("{error:#}");
                return tracing::error!(error, "the settings cannot be read again; the last ones hold");
            }
        };
        let mut waiting = self.waiting(&config);
        // First, so that the lines below are filtered as they are wanted now.
        self.set_level(&config.log.filter);
        if let Some(log) = &self.calls {
            if log.set(config.log.calls) {
                tracing::warn!("the log of calls has changed");
            }
        } else if config.log.calls.log().is_some() {
            waiting.push("log.calls");
        }
        if !waiting.is_empty() {
            let settings = waiting.join(", ");
            tracing::warn!(settings, "settings that have changed since the start hold from the next start on");
        }
    }

    /// Names of settings that differ from those of the start and are not applied.
    fn waiting(&self, config: &Config) -> Vec<&'static str> {
        let pairs = self.at_start.0.iter().zip(config.in_force.0.iter());
        let changed = pairs.filter(|(before, now)| before.value != now.value && !LIVE.contains(&before.key));
        let mut names: Vec<_> = changed.map(|(before, _)| before.key).collect();
        // A secret's value is not shown.
        if self.admin_token != config.admin_token && !names.contains(&"admin.token") {
            names.push("admin.token");
        }
        names
    }

    fn set_level(&self, filter: &str) {
        let mut level = self.level.lock().unwrap_or_else(PoisonError::into_inner);
        if *level == filter {
            return;
        }
        match self.filter.set(filter) {
            Ok(()) => {
                filter.clone_into(&mut level);
                // A warning, so that every usual level logs it.
                tracing::warn!(level = filter, "the level of the log has changed");
            }
            Err(error) => tracing::error!(%error, "the level of the log cannot be changed"),
        }
    }
}
