//! Everything that can be refused, with its error text.

use crate::number::NumberFault;

/// A numeric field of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field {
    /// The message's position in the game.
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

/// Reason why a message was not handled. The game continues after each.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// An invalid number.
    #[error("the {field} {fault}: it must be digits only, for a number below 2^64")]
    Number {
        /// The field.
        field: Field,
        /// The fault.
        fault: NumberFault,
    },
    /// Serials begin at 1.
    #[error("the serial is 0: the first message of a game has the serial 1")]
    SerialZero,
    /// The serial was handled already, or another message with it waits.
    #[error("serial {serial} came before: each serial comes once in a game, and the next is {next}")]
    Duplicate {
        /// The repeated serial.
        serial: u64,
        /// The first serial that has not come yet.
        next: u64,
    },
    /// A name that must be UTF-8 and is not.
    #[error(
        "the name is not UTF-8: this transport takes text only; RPCGameStream and the lean protocol take any bytes"
    )]
    NotText,
    /// A name over the limit.
    #[error("the name has {bytes} bytes: the server's limit rpcgame.name_bytes_max is {bytes_max}")]
    NameTooLong {
        /// Its length.
        bytes: usize,
        /// The limit.
        bytes_max: usize,
    },
    /// Not a message of the contract.
    #[error("the message cannot be read: {0}")]
    Malformed(&'static str),
    /// Names and counts of a frame differ in number.
    #[error("the frame has {names} names and {counts} counts: it must have as many of one as of the other")]
    Unpaired {
        /// Names in the frame.
        names: usize,
        /// Counts in the frame.
        counts: usize,
    },
    /// Too far ahead of the missing serial.
    #[error(
        "serial {missing} is missing, and serial {serial} is {window_messages} or more ahead of it, the server's limit \
         rpcgame.window_messages"
    )]
    TooFarAhead {
        /// The refused serial.
        serial: u64,
        /// The serial it would have to wait for.
        missing: u64,
        /// Limit of the distance.
        window_messages: u64,
    },
    /// Waiting messages of all games leave no room.
    #[error(
        "serial {missing} is missing, and there is no room for more to wait for it: the server's limit \
         rpcgame.waiting_bytes_max is {bytes_max}"
    )]
    NoRoomToWait {
        /// The missing serial.
        missing: u64,
        /// Limit of waiting bytes.
        bytes_max: usize,
    },
    /// The serial that it waited for did not come.
    #[error(
        "serial {missing} is missing: it did not come within rpcgame.wait_seconds, {wait_ms} ms; send it, then the others again"
    )]
    Missing {
        /// The missing serial.
        missing: u64,
        /// Waiting time.
        wait_ms: u64,
    },
    /// The game ended while the message waited.
    #[error("the game ended before serial {missing} came: Done was called")]
    Over {
        /// The serial that was missing at the end.
        missing: u64,
    },
    /// The limit of games, or the client's share of it, was reached.
    #[error(
        "the server's limit rpcgame.games is {games_max}: end a game with Done or try again later; a client gets three \
         quarters of what others leave"
    )]
    TooManyGames {
        /// The limit.
        games_max: usize,
    },
    /// A game's name over the limit.
    #[error("the game's name has {bytes} bytes: it must have from 1 to {bytes_max}")]
    GameName {
        /// Its length.
        bytes: usize,
        /// The limit.
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

    /// Index of its reason in [`Self::NAMES`].
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
