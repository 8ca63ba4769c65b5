//! Scopes of credentials.

use std::fmt;

/// A part of the server that callers are admitted to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scope {
    /// Searches and purchases.
    Shop,
    /// The key-value service.
    Kv,
    /// Queries of records.
    Records,
    /// The RPC game.
    Play,
    /// Tasks.
    Tasks,
    /// The page `/metrics`.
    Metrics,
    /// Operator actions of every service.
    Admin,
}

impl Scope {
    /// Every scope.
    pub const ALL: [Self; 7] =
        [Self::Shop, Self::Kv, Self::Records, Self::Play, Self::Tasks, Self::Metrics, Self::Admin];

    /// Its name in files and flags.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Shop => "shop",
            Self::Kv => "kv",
            Self::Records => "records",
            Self::Play => "play",
            Self::Tasks => "tasks",
            Self::Metrics => "metrics",
            Self::Admin => "admin",
        }
    }

    /// The setting that opens the scope to everyone; `None` if it cannot be opened.
    pub const fn open_setting(self) -> Option<&'static str> {
        match self {
            Self::Shop => Some("shop.open"),
            Self::Kv => Some("kv.open"),
            Self::Records => Some("records.open"),
            Self::Play => Some("rpcgame.open"),
            Self::Tasks => Some("tasks.open"),
            Self::Metrics => Some("metrics.open"),
            Self::Admin => None,
        }
    }

    /// Parses names separated by commas; the error is the unknown name.
    pub fn list(text: &str) -> Result<Vec<Self>, &str> {
        let named = |name: &str| Self::ALL.into_iter().find(|scope| scope.name() == name);
        text.split(',').map(str::trim).map(|name| named(name).ok_or(name)).collect()
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
