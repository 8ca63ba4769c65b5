//! The settings `rpcgame.…`: ports, and what games and lean connections are allowed. Must not know where their values
//! come from.

use std::time::Duration;

use hosting::{Port, Reader, Refused};

/// The usual port for gRPC beside the main port.
pub const PORT: u16 = 29381;

/// The usual port for the lean protocol.
pub const LEAN_PORT: u16 = 29382;

/// How the game is served.
#[derive(Clone, Debug)]
pub struct Settings {
    /// For gRPC, beside the main port.
    pub listen: Option<Port>,
    /// For the lean protocol.
    pub lean_listen: Option<Port>,
    /// The server stops when the first game has ended.
    pub once: bool,
    /// What games are allowed.
    pub games: GameLimits,
    /// What lean clients are allowed.
    pub lean: LeanLimits,
}

/// Which callers play one game together when they name none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// Those of one connection.
    Connection,
    /// Those of one address, however many connections it has.
    Address,
    /// All.
    Server,
}

/// What games are allowed.
#[derive(Clone, Debug)]
pub struct GameLimits {
    /// Which callers play together.
    pub group: Group,
    /// How far ahead of the next serial a message may be and wait.
    pub window_messages: u64,
    /// How long a message waits for those before it.
    pub wait: Duration,
    /// What the waiting messages of all games cost together.
    pub waiting_bytes_max: usize,
    /// The longest name of a message.
    pub name_bytes_max: usize,
    /// Games at once.
    pub games_max: usize,
    /// A game in which nothing happens ends after this time.
    pub idle: Duration,
}

/// What lean clients are allowed.
#[derive(Clone, Debug)]
pub struct LeanLimits {
    /// Connections at once; the server tells further ones and closes them.
    pub connections_max: usize,
    /// The server closes a connection on which no frame is finished for so long.
    pub idle: Duration,
    /// The server closes a connection whose client takes no bytes for so long.
    pub write_timeout: Duration,
    /// Limits of each connection.
    pub session: SessionLimits,
}

/// What a lean connection may have the server hold.
#[derive(Clone, Debug)]
pub struct SessionLimits {
    /// Messages without an answer on its way; eight bytes each are held for a client that does not read.
    pub window_messages: u64,
    /// The body of a frame; so much of an unfinished one is held.
    pub frame_bytes_max: usize,
    /// A name.
    pub name_bytes_max: usize,
    /// The table of names.
    pub table: TableLimits,
}

/// The size of a table of names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TableLimits {
    /// Names in it.
    pub names_max: usize,
    /// Their bytes, with [`ENTRY_BYTES`](crate::lean::ENTRY_BYTES) for each.
    pub bytes_max: usize,
}

/// Where a client closes a frame.
pub const FRAME_BYTES_TARGET: usize = 16 * 1024;

/// What a frame must hold beside a name of the greatest length: a client closes a frame when it has
/// [`FRAME_BYTES_TARGET`], and the last name may be as long as any.
pub(crate) const FRAME_BYTES_BESIDE_NAME: usize = FRAME_BYTES_TARGET + 64;

/// What bounds the connections of the port for gRPC, in logs.
pub(crate) const PORT_CONNECTIONS: &str = "limits.connections, at rpcgame.listen,";

/// The longest that a client may take no bytes.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);

impl hosting::Settings for Settings {
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
            games_max: from.whole("rpcgame.games", 1024, 1..=1 << 20)?,
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
