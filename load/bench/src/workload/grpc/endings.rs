//! Endings of calls as numbers: the statuses, then data that does not fit, then the workload's own.

use std::sync::Arc;

use quire_rpc::Code;
use quire_rpc::client::Codec;

use super::outcome::{OutcomeField, VALUES_MAX};
use crate::workload::{ENDINGS_MAX, Ending};

/// A call that was not made, because its data does not fit the message.
pub(super) const DATA: u16 = 17;
/// Endings from this number on are the workload's own.
pub const OWN_ENDINGS_FIRST: u16 = DATA + 1;
const _: () = assert!(OWN_ENDINGS_FIRST + VALUES_MAX < ENDINGS_MAX, "a run can count every value's number");

/// Classifies a call by the bytes of its answer's message, or of a stream's last. Called only for answers with status
/// OK.
pub type Classify = Arc<dyn Fn(&[u8]) -> Ending + Send + Sync>;

/// Classification of calls.
#[derive(Clone, Default)]
pub struct Endings(Kind);

#[derive(Clone, Default)]
enum Kind {
    /// By status alone; answers are not read.
    #[default]
    Status,
    Classified {
        labels: Arc<[String]>,
        classify: Classify,
    },
    Field(OutcomeField),
}

impl Endings {
    /// `classify` returns [`Endings::own`] numbers, or those of a status; `labels` names the own ones.
    pub fn classified(labels: impl IntoIterator<Item = String>, classify: Classify) -> Self {
        Self(Kind::Classified { labels: labels.into_iter().collect(), classify })
    }

    /// By the value of a field.
    pub fn by_field(field: OutcomeField) -> Self {
        Self(Kind::Field(field))
    }

    /// The workload's own ending with this number, from 0, the index of its label.
    pub fn own(number: u16, is_error: bool) -> Ending {
        Ending { number: OWN_ENDINGS_FIRST.saturating_add(number), is_error }
    }

    /// True if answers are read.
    pub(super) fn reads_replies(&self) -> bool {
        !matches!(self.0, Kind::Status)
    }

    pub(super) fn of_reply(&self, message: &[u8], codec: Codec) -> Ending {
        match &self.0 {
            Kind::Status => ending_of(Code::Ok),
            Kind::Classified { classify, .. } => classify(message),
            Kind::Field(field) => {
                let number = field.number(message, codec);
                number.map_or_else(|| ending_of(Code::Internal), |number| Self::own(number, false))
            }
        }
    }

    pub(super) fn label(&self, number: u16) -> String {
        if number == DATA {
            return "data does not fit".to_owned();
        }
        let Some(own) = number.checked_sub(OWN_ENDINGS_FIRST) else {
            return Code::from_number(number.into()).name().to_owned();
        };
        let label = match &self.0 {
            Kind::Status => None,
            Kind::Classified { labels, .. } => labels.get(usize::from(own)).cloned(),
            Kind::Field(field) => field.label(own),
        };
        label.unwrap_or_else(|| format!("ending {number}"))
    }
}

pub(super) fn ending_of(code: Code) -> Ending {
    Ending { number: code as u16, is_error: code != Code::Ok }
}
