//! The commands and their arguments.

use clap::{Args, Subcommand, value_parser};

use crate::Key;

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Tests the connection
    Ping,
    /// The topics, or those near a [text]
    Topics {
        #[arg(allow_hyphen_values = true)]
        text: Vec<String>,
    },
    /// The books of a <topic>
    Search {
        #[arg(required = true, allow_hyphen_values = true)]
        topic: Vec<String>,
    },
    /// The book with an <id>
    Lookup {
        #[arg(value_parser = value_parser!(i32).range(1..), allow_negative_numbers = true)]
        id: i32,
    },
    /// Buys [quantity] copies of the book with an <id>; one if absent
    Buy(Copies),
    /// The receipt of the purchase with a <number> and a <key>; `quire receipt FILE --key KEY` checks it
    Receipt {
        #[arg(value_parser = value_parser!(i64).range(1..), allow_negative_numbers = true)]
        number: i64,
        #[command(flatten)]
        named: Named,
    },
    /// Holds [quantity] copies of the book with an <id> for some [seconds]
    Reserve {
        #[command(flatten)]
        copies: Copies,
        #[arg(value_parser = value_parser!(u64).range(1..), allow_negative_numbers = true)]
        seconds: Option<u64>,
    },
    /// Buys what the reservation with a <key> holds
    Confirm(Named),
    /// Gives back what the reservation with a <key> holds
    Release(Named),
    /// This list
    #[command(visible_alias = "?")]
    Help,
    /// Leaves
    #[command(visible_alias = "quit")]
    Exit,
}

#[derive(Clone, Copy, Debug, Args)]
pub(super) struct Copies {
    #[arg(value_parser = value_parser!(i32).range(1..), allow_negative_numbers = true)]
    pub(super) id: i32,
    #[arg(default_value_t = 1, value_parser = value_parser!(i32).range(1..), allow_negative_numbers = true)]
    pub(super) quantity: i32,
}

#[derive(Debug, Args)]
pub(super) struct Named {
    #[arg(value_parser = |text: &str| Key::new(text), allow_hyphen_values = true)]
    pub(super) key: Key,
}
