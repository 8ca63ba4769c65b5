//! The settings `rpcgame.…`: ports, and limits of games and lean connections.

use std::time::Duration;

use hosting::{Live, Meanings, Port, Reader, Refused};

/// Default port for gRPC beside the main port.
pub const PORT: u16 = 29381;

/// Default port for the lean protocol.
pub const LEAN_PORT: u16 = 29382;

/// Settings of the game.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Port for gRPC, beside the main port.
    pub listen: Option<Port>,
    /// Port for the lean protocol.
    pub lean_listen: Option<Port>,
    /// True to stop the server when the first game has ended.
    pub once: bool,
    /// Limits of games.
    pub games: GameLimits,
    /// Limits of lean clients.
    pub lean: LeanLimits,
}

/// Grouping of callers into games, unless they name one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// By connection.
    Connection,
    /// By address, with all its connections.
    Address,
    /// All callers play one game.
    Server,
}

/// Limits of games.
#[derive(Clone, Debug)]
pub struct GameLimits {
    /// Grouping of callers.
    pub group: Group,
    /// Maximum distance of a waiting message from the next serial.
    pub window_messages: u64,
    /// Time that a message waits for those before it.
    pub wait: Duration,
    /// Memory of all games' waiting messages.
    pub waiting_bytes_max: usize,
    /// Maximum length of a message's name.
    pub name_bytes_max: usize,
    /// Concurrent games.
    pub games_max: Live,
    /// Idle time after which a game ends.
    pub idle: Duration,
}

/// Limits of lean clients.
#[derive(Clone, Debug)]
pub struct LeanLimits {
    /// Concurrent connections; further ones get an error and are closed.
    pub connections_max: Live,
    /// Time without a complete frame after which the server closes a connection.
    pub idle: Duration,
    /// Time limit for a client to accept output.
    pub write_timeout: Duration,
    /// Limits of each connection.
    pub session: SessionLimits,
}

/// Limits of a lean connection's memory.
#[derive(Clone, Debug)]
pub struct SessionLimits {
    /// Unanswered messages; eight bytes each are held for a client that does not read.
    pub window_messages: u64,
    /// Length of a frame's body, and so of an unfinished one that is held.
    pub frame_bytes_max: usize,
    /// Length of a name.
    pub name_bytes_max: usize,
    /// Limits of the table of names.
    pub table: TableLimits,
}

/// Size of a table of names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TableLimits {
    /// Number of names.
    pub names_max: usize,
    /// Total length of the names, plus [`ENTRY_BYTES`](crate::lean::ENTRY_BYTES) for each.
    pub bytes_max: usize,
}

/// Size at which a client closes a frame.
pub const FRAME_BYTES_TARGET: usize = 16 * 1024;

/// Room of a frame besides a name of maximum length: a client closes a frame at [`FRAME_BYTES_TARGET`], and the last
/// name may have any length.
pub(crate) const FRAME_BYTES_BESIDE_NAME: usize = FRAME_BYTES_TARGET + 64;

/// Name in logs of the limit of connections at the gRPC port.
pub(crate) const PORT_CONNECTIONS: &str = "limits.connections, at rpcgame.listen,";

/// Time limit for a client to accept output.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);

impl hosting::Settings for Settings {
    const MEANINGS: Meanings = &[
        ("rpcgame.enabled", "`false`: without the RPC game"),
        ("rpcgame.listen", "further port for gRPC"),
        ("rpcgame.lean_listen", "port of the lean protocol; with TLS it speaks TLS beyond loopback"),
        ("rpcgame.once", "stops the server after the first game"),
        (
            "rpcgame.group",
            "callers that play together, unless they name a game: of one connection, of one address, or all",
        ),
        ("rpcgame.window_messages", "distance of a waiting message from the next serial"),
        ("rpcgame.wait_seconds", "time that a message waits for those before it"),
        ("rpcgame.waiting_bytes_max", "memory of waiting messages of all games: 256 bytes each, and the name"),
        (
            "rpcgame.name_bytes_max",
            "length of a name; `limits.message_bytes` bounds the whole message, `rpcgame.lean_frame_bytes` a lean name",
        ),
        ("rpcgame.games", "games at once"),
        ("rpcgame.idle_seconds", "time without a message after which a game or a lean connection ends"),
        ("rpcgame.lean_connections", "open lean connections"),
        ("rpcgame.lean_window_messages", "unanswered messages of a lean connection, 8 bytes each"),
        ("rpcgame.lean_frame_bytes", "length of a lean frame; a name has at least 16,448 bytes less"),
        ("rpcgame.lean_table_names", "names kept for a lean connection"),
        ("rpcgame.lean_table_bytes", "memory of the names kept for a lean connection"),
    ];

    fn read(from: &mut Reader<'_>) -> Result<Self, Refused> {
        let listen = from.port_or_none("rpcgame.listen", PORT)?;
        if listen.is_some() {
            from.connections_again(PORT_CONNECTIONS);
        }
        let lean_listen = from.port_or_none("rpcgame.lean_listen", LEAN_PORT)?;
        let groups = [("connection", Group::Connection), ("address", Group::Address), ("server", Group::Server)];
        let games = GameLimits {
            group: from.choice("rpcgame.group", &groups)?,
            window_messages: from.whole("rpcgame.window_messages", 65_536, 1..=1 << 24)? as u64,
            wait: from.seconds("rpcgame.wait_seconds", Duration::from_secs(10))?,
            waiting_bytes_max: from.bytes("rpcgame.waiting_bytes_max", 64 << 20, 1..=1 << 34)?,
            name_bytes_max: from.bytes("rpcgame.name_bytes_max", 4 << 20, 1..=1 << 26)?,
            games_max: from.live("rpcgame.games", 1024, 1..=1 << 20)?,
            idle: from.seconds("rpcgame.idle_seconds", Duration::from_mins(5))?,
        };
        let frame_bytes = FRAME_BYTES_BESIDE_NAME as u64 + 1..=1 << 27;
        let frame_bytes_max = from.bytes("rpcgame.lean_frame_bytes", 2 << 20, frame_bytes)?;
        let lean = LeanLimits {
            connections_max: from.connections("rpcgame.lean_connections", 256)?,
            idle: games.idle,
            write_timeout: WRITE_TIMEOUT.min(games.idle),
            session: SessionLimits {
                window_messages: from.whole("rpcgame.lean_window_messages", 65_536, 1..=1 << 20)? as u64,
                frame_bytes_max,
                // A frame with one message must be able to hold the longest name.
                name_bytes_max: games.name_bytes_max.min(frame_bytes_max - FRAME_BYTES_BESIDE_NAME),
                table: TableLimits {
                    names_max: from.whole("rpcgame.lean_table_names", 4096, 0..=1 << 20)?,
                    bytes_max: from.bytes("rpcgame.lean_table_bytes", 1 << 20, 0..=1 << 30)?,
                },
            },
        };
        Ok(Self { listen, lean_listen, once: from.switch("rpcgame.once", false)?, games, lean })
    }
}

impl Default for Settings {
    fn default() -> Self {
        hosting::defaults()
    }
}

impl Default for GameLimits {
    fn default() -> Self {
        Settings::default().games
    }
}

impl Default for LeanLimits {
    fn default() -> Self {
        Settings::default().lean
    }
}

impl Default for SessionLimits {
    fn default() -> Self {
        Settings::default().lean.session
    }
}
