//! The rules of writes: the effect of each on a key's present state.

use std::num::NonZeroU64;

use crate::{
    entry::{Value, Version},
    fault::Fault,
};

/// A write to a key.
#[derive(Clone, Debug)]
pub(crate) enum Action {
    Create {
        value: Value,
        expires_at_ms: Option<NonZeroU64>,
    },
    Update {
        value: Value,
        expires_at_ms: Option<NonZeroU64>,
        expected: Option<Version>,
    },
    /// Creates or replaces.
    Put {
        value: Value,
        expires_at_ms: Option<NonZeroU64>,
    },
    Delete {
        expected: Option<Version>,
    },
    /// Removes the entry with this version, because it has expired.
    Expire {
        version: Version,
    },
}

/// The answer to a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Put(Version),
    Removed,
    /// The key did not exist.
    Nothing,
}

/// Effect of a write on the entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    Put,
    Remove,
    Nothing,
}

/// The state of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Present {
    Absent,
    Live(Version),
    /// Expired and not yet removed.
    Expired(Version),
}

impl Action {
    /// The rules of the calls that write.
    pub(crate) fn decide(&self, present: Present) -> Result<Effect, Fault> {
        let live = match present {
            Present::Live(version) => Some(version),
            Present::Absent | Present::Expired(_) => None,
        };
        match (self, live) {
            (Self::Create { .. }, Some(_)) => Err(Fault::Exists),
            (Self::Update { .. }, None) => Err(Fault::Missing),
            (Self::Update { expected: Some(expected), .. } | Self::Delete { expected: Some(expected) }, Some(is))
                if is != *expected =>
            {
                Err(Fault::Conflict(is))
            }
            (Self::Create { .. }, None) | (Self::Update { .. }, Some(_)) | (Self::Put { .. }, _) => Ok(Effect::Put),
            (Self::Delete { .. }, Some(_)) => Ok(Effect::Remove),
            (Self::Delete { .. }, None) => Ok(Effect::Nothing),
            (Self::Expire { version }, _) => {
                Ok(if present == Present::Expired(*version) { Effect::Remove } else { Effect::Nothing })
            }
        }
    }

    /// The value to put, if any.
    pub(crate) fn value(&self) -> Option<(&Value, Option<NonZeroU64>)> {
        match self {
            Self::Create { value, expires_at_ms }
            | Self::Update { value, expires_at_ms, .. }
            | Self::Put { value, expires_at_ms } => Some((value, *expires_at_ms)),
            Self::Delete { .. } | Self::Expire { .. } => None,
        }
    }
}
