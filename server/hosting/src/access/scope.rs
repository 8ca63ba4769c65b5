//! What a credential may be for. Must not know who holds one.

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
    /// What operators do, in every service.
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

    /// The setting that lets everyone in; `None` if nothing does.
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

    /// Reads names with commas between; the error is the name that is none.
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
