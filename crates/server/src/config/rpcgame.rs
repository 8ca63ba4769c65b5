//! The section `[rpcgame]`: as it is written, and as it is valid.

use std::time::Duration;

use rpcgame::{Group, Settings, lean};
use serde::{Deserialize, Serialize};

use super::{
    Bad, IsNamed, Port, bad, bytes_within, listening, ports, seconds,
    units::{Bytes, Seconds},
    within,
};

/// Ports and limits of the RPC game; every value is valid.
#[derive(Clone, Debug)]
pub(crate) struct RpcGame {
    /// gRPC, beside the main port.
    pub listen: Option<Port>,
    /// The lean protocol.
    pub lean_listen: Option<Port>,
    pub games: Settings,
    pub lean: lean::Limits,
    /// The server stops when the first game has ended.
    pub once: bool,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Raw {
    enabled: bool,
    listen: String,
    lean_listen: String,
    once: bool,
    group: GroupName,
    window_messages: u64,
    wait_seconds: Seconds,
    waiting_bytes_max: Bytes,
    name_bytes_max: Bytes,
    games: u64,
    idle_seconds: Seconds,
    lean_connections: u64,
    lean_window_messages: u64,
    lean_frame_bytes: Bytes,
    lean_table_names: u64,
    lean_table_bytes: Bytes,
}

#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
enum GroupName {
    Connection,
    Address,
    Server,
}

fn wide(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

impl Default for Raw {
    fn default() -> Self {
        let (games, lean) = (Settings::default(), lean::Limits::default());
        Self {
            enabled: true,
            listen: format!("127.0.0.1:{}", ports::GAME),
            lean_listen: format!("127.0.0.1:{}", ports::LEAN),
            once: false,
            group: GroupName::Connection,
            window_messages: games.window_messages,
            wait_seconds: games.wait.into(),
            waiting_bytes_max: games.waiting_bytes_max.into(),
            name_bytes_max: games.name_bytes_max.into(),
            games: wide(games.games_max),
            idle_seconds: games.idle.into(),
            lean_connections: wide(lean.connections_max),
            lean_window_messages: lean.session.window_messages,
            lean_frame_bytes: lean.session.frame_bytes_max.into(),
            lean_table_names: wide(lean.session.table.names_max),
            lean_table_bytes: lean.session.table.bytes_max.into(),
        }
    }
}

/// Empty for none.
fn port(key: &'static str, text: &str, usual_port: u16, is_named: IsNamed<'_>) -> Result<Option<Port>, Bad> {
    if text.is_empty() {
        return Ok(None);
    }
    let address = listening(key, text, usual_port);
    let named = address.map(|address| Some(Port { address, is_named: is_named(key) }));
    named.map_err(|bad| Bad { want: format!("{}, or empty for no port", bad.want), ..bad })
}

impl Raw {
    /// Nothing if the game is not to be served.
    pub(super) fn validate(&self, has_tls: bool, is_named: IsNamed<'_>) -> Result<Option<RpcGame>, Bad> {
        let listen = port("rpcgame.listen", &self.listen, ports::GAME, is_named)?;
        let lean_listen = port("rpcgame.lean_listen", &self.lean_listen, ports::LEAN, is_named)?;
        let is_open = lean_listen.is_some_and(|port| !port.address.ip().is_loopback());
        if has_tls && is_open {
            let want = "an address of the loopback, or empty: the lean protocol has no TLS and [tls] is set";
            return bad("rpcgame.lean_listen", &self.lean_listen, want);
        }
        let idle = seconds("rpcgame.idle_seconds", self.idle_seconds)?;
        let name_bytes_max = bytes_within("rpcgame.name_bytes_max", self.name_bytes_max, 1, 1 << 26)?;
        // A frame with one message must be able to hold the longest name.
        let frame_least = self.name_bytes_max.0 + wide(lean::FRAME_BYTES_BESIDE_NAME);
        let games = Settings {
            group: match self.group {
                GroupName::Connection => Group::Connection,
                GroupName::Address => Group::Address,
                GroupName::Server => Group::Server,
            },
            window_messages: wide(within("rpcgame.window_messages", self.window_messages, 1, 1 << 24)?),
            wait: seconds("rpcgame.wait_seconds", self.wait_seconds)?,
            waiting_bytes_max: bytes_within("rpcgame.waiting_bytes_max", self.waiting_bytes_max, 1, 1 << 34)?,
            name_bytes_max,
            games_max: within("rpcgame.games", self.games, 1, 1 << 20)?,
            idle,
        };
        let lean = lean::Limits {
            connections_max: within("rpcgame.lean_connections", self.lean_connections, 1, 1 << 20)?,
            idle,
            write_timeout: Duration::from_secs(30).min(idle),
            session: lean::SessionLimits {
                window_messages: wide(within("rpcgame.lean_window_messages", self.lean_window_messages, 1, 1 << 20)?),
                frame_bytes_max: bytes_within("rpcgame.lean_frame_bytes", self.lean_frame_bytes, frame_least, 1 << 27)?,
                name_bytes_max,
                table: lean::TableLimits {
                    names_max: within("rpcgame.lean_table_names", self.lean_table_names, 0, 1 << 20)?,
                    bytes_max: bytes_within("rpcgame.lean_table_bytes", self.lean_table_bytes, 0, 1 << 30)?,
                },
            },
        };
        let game = RpcGame { listen, lean_listen, games, lean, once: self.once };
        Ok(self.enabled.then_some(game))
    }
}
