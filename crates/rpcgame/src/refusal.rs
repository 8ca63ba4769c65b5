//! Everything that can be refused, in words that name it. Must not know how a transport says it.

use crate::number::NumberFault;

/// A number of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field {
    /// The message's place in the game.
    Serial,
    /// The number beside its name.
    Count,
}

impl std::fmt::Display for Field {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Serial => "serial",
            Self::Count => "count",
        })
    }
}

/// Why a message was not handled. The game goes on after each of them.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// A number that is none.
    #[error("the {field} {fault}: it must be digits only, for a number below 2^64")]
    Number {
        /// Which one.
        field: Field,
        /// What is wrong with it.
        fault: NumberFault,
    },
    /// Serials begin at 1.
    #[error("the serial is 0: the first message of a game has the serial 1")]
    SerialZero,
    /// The serial was handled already, or another message with it waits.
    #[error("serial {serial} came before: each serial comes once in a game, and the next is {next}")]
    Duplicate {
        /// The serial that came again.
        serial: u64,
        /// The first one that is not there yet.
        next: u64,
    },
    /// A name that has to be text and is not.
    #[error(
        "the name is not UTF-8: this transport takes text only; RPCGameStream and the lean protocol take any bytes"
    )]
    NotText,
    /// A name over the limit.
    #[error("the name has {bytes} bytes: the server's limit rpcgame.name_bytes_max is {bytes_max}")]
    NameTooLong {
        /// What it has.
        bytes: usize,
        /// What it may have.
        bytes_max: usize,
    },
    /// A message that is none of the contract's.
    #[error("the message cannot be read: {0}")]
    Malformed(&'static str),
    /// Names and counts of a frame do not pair up.
    #[error("the frame has {names} names and {counts} counts: it must have as many of one as of the other")]
    Unpaired {
        /// Names in the frame.
        names: usize,
        /// Counts in the frame.
        counts: usize,
    },
    /// So far ahead that it is not worth waiting for what is missing.
    #[error(
        "serial {missing} is missing, and serial {serial} is {window_messages} or more ahead of it, the server's limit \
         rpcgame.window_messages"
    )]
    TooFarAhead {
        /// The serial that was refused.
        serial: u64,
        /// The one it would have to wait for.
        missing: u64,
        /// How far ahead a message may be.
        window_messages: u64,
    },
    /// What waits already, in all games, leaves no room.
    #[error(
        "serial {missing} is missing, and there is no room for more to wait for it: the server's limit \
         rpcgame.waiting_bytes_max is {bytes_max}"
    )]
    NoRoomToWait {
        /// The serial that is missing.
        missing: u64,
        /// Bytes that may wait.
        bytes_max: usize,
    },
    /// It waited, and what it waited for did not come.
    #[error(
        "serial {missing} is missing: it did not come within rpcgame.wait_seconds, {wait_ms} ms; send it, then the others again"
    )]
    Missing {
        /// The serial that did not come.
        missing: u64,
        /// How long it was waited for.
        wait_ms: u64,
    },
    /// The game ended while the message waited.
    #[error("the game ended before serial {missing} came: Done was called")]
    Over {
        /// The serial that was missing at the end.
        missing: u64,
    },
    /// One game more than allowed, or than the client's share of them.
    #[error(
        "the server's limit rpcgame.games is {games_max}: end a game with Done or try again later; a client gets three \
         quarters of what others leave"
    )]
    TooManyGames {
        /// How many there may be.
        games_max: usize,
    },
    /// The name of a game itself.
    #[error("the game's name has {bytes} bytes: it must have from 1 to {bytes_max}")]
    GameName {
        /// What it has.
        bytes: usize,
        /// What it may have.
        bytes_max: usize,
    },
}

impl Refusal {
    /// Every reason's name, in the order of the variants; for metrics that show them all from the start.
    pub const NAMES: [&'static str; 13] = [
        "number",
        "serial zero",
        "duplicate",
        "not text",
        "name too long",
        "malformed",
        "unpaired",
        "too far ahead",
        "no room to wait",
        "missing",
        "over",
        "too many games",
        "game name",
    ];

    /// The place of its reason among [`Self::NAMES`].
    pub(crate) const fn place(&self) -> usize {
        match self {
            Self::Number { .. } => 0,
            Self::SerialZero => 1,
            Self::Duplicate { .. } => 2,
            Self::NotText => 3,
            Self::NameTooLong { .. } => 4,
            Self::Malformed(_) => 5,
            Self::Unpaired { .. } => 6,
            Self::TooFarAhead { .. } => 7,
            Self::NoRoomToWait { .. } => 8,
            Self::Missing { .. } => 9,
            Self::Over { .. } => 10,
            Self::TooManyGames { .. } => 11,
            Self::GameName { .. } => 12,
        }
    }
}
