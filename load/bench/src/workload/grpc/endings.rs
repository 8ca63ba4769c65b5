//! Endings of calls as numbers: the statuses, then data that does not fit, then the workload's own.

use std::borrow::Cow;
use std::sync::Arc;

use prost_reflect::{DynamicMessage, FieldDescriptor, MessageDescriptor, Value};
use quire_rpc::Code;
use quire_rpc::client::Codec;
use serde::de::DeserializeSeed as _;

use super::schema::listed;
use crate::workload::{ENDINGS_MAX, Ending, Values};

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
pub enum Endings {
    /// By status alone; answers are not read.
    #[default]
    Status,
    Classified {
        labels: Arc<[String]>,
        classify: Classify,
    },
    /// By the value of a field.
    Field(OutcomeField),
}

impl Endings {
    /// `classify` returns [`Endings::own`] numbers, or those of a status; `labels` names the own ones.
    pub fn classified(labels: impl IntoIterator<Item = String>, classify: Classify) -> Self {
        Self::Classified { labels: labels.into_iter().collect(), classify }
    }

    /// The workload's own ending with this number, from 0, the index of its label.
    pub fn own(number: u16, is_error: bool) -> Ending {
        Ending { number: OWN_ENDINGS_FIRST.saturating_add(number), is_error }
    }

    /// True if answers are read.
    pub(super) fn reads_replies(&self) -> bool {
        !matches!(self, Self::Status)
    }

    pub(super) fn of_reply(&self, message: &[u8], codec: Codec) -> Ending {
        match self {
            Self::Status => ending_of(Code::Ok),
            Self::Classified { classify, .. } => classify(message),
            Self::Field(field) => {
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
        let label = match self {
            Self::Status => None,
            Self::Classified { labels, .. } => labels.get(usize::from(own)).cloned(),
            Self::Field(field) => field.label(own),
        };
        label.unwrap_or_else(|| format!("ending {number}"))
    }
}

pub(super) fn ending_of(code: Code) -> Ending {
    Ending { number: code as u16, is_error: code != Code::Ok }
}

/// Maximum characters of a value in a label.
const VALUE_CHARACTERS_MAX: usize = 40;
/// Maximum distinct values; later ones count as `other`, the last.
pub(super) const VALUES_MAX: u16 = 256;

/// A field of the answer, found by its path.
#[derive(Clone, Debug)]
pub struct OutcomeField {
    descriptor: MessageDescriptor,
    fields: Arc<[FieldDescriptor]>,
    name: String,
    values: Arc<Values>,
}

impl OutcomeField {
    /// Finds the field at a path such as `order.state`, or returns the reason that there is none.
    pub fn find(path: &str, descriptor: &MessageDescriptor) -> Result<Self, String> {
        let mut fields = Vec::new();
        let mut within = Some(descriptor.clone());
        for name in path.split('.') {
            let Some(message) = within.take() else {
                return Err(format!("{path}: the field before {name} has no fields"));
            };
            let found = message.get_field_by_name(name).or_else(|| message.get_field_by_json_name(name));
            let Some(field) = found else {
                let there: Vec<FieldDescriptor> = message.fields().collect();
                let there = listed(there.iter().map(FieldDescriptor::name), name);
                return Err(format!("{path}: no field {name} in {}; it has {there}", message.full_name()));
            };
            if let prost_reflect::Kind::Message(inner) = field.kind()
                && !field.is_list()
                && !field.is_map()
            {
                within = Some(inner);
            }
            fields.push(field);
        }
        if within.is_some() {
            return Err(format!("{path}: this is a message: name one of its fields"));
        }
        let (descriptor, name) = (descriptor.clone(), path.to_owned());
        Ok(Self { descriptor, fields: fields.into(), name, values: Arc::new(Values::new(VALUES_MAX - 1)) })
    }

    /// Number of an answer's value; `None` if the answer cannot be read.
    pub(super) fn number(&self, message: &[u8], codec: Codec) -> Option<u16> {
        let descriptor = self.descriptor.clone();
        let decoded = match codec {
            Codec::Proto => DynamicMessage::decode(descriptor, message).ok()?,
            Codec::Json => descriptor.deserialize(&mut serde_json::Deserializer::from_slice(message)).ok()?,
        };
        Some(self.values.number(text(&self.walk(&decoded), self.fields.last()).as_bytes()))
    }

    fn walk<'a>(&self, message: &'a DynamicMessage) -> Cow<'a, Value> {
        let mut fields = self.fields.iter();
        let mut value = fields.next().map_or(Cow::Owned(Value::Bool(false)), |field| message.get_field(field));
        for field in fields {
            value = match value {
                Cow::Borrowed(Value::Message(inner)) => inner.get_field(field),
                Cow::Owned(Value::Message(inner)) => Cow::Owned(inner.get_field(field).into_owned()),
                other => other,
            };
        }
        value
    }

    pub(super) fn label(&self, number: u16) -> Option<String> {
        if number == VALUES_MAX - 1 {
            return Some(format!("{}: other", self.name));
        }
        Some(format!("{}={}", self.name, String::from_utf8_lossy(&self.values.value(number)?)))
    }
}

fn text(value: &Value, field: Option<&FieldDescriptor>) -> String {
    match value {
        Value::Bool(value) => value.to_string(),
        Value::I32(value) => value.to_string(),
        Value::I64(value) => value.to_string(),
        Value::U32(value) => value.to_string(),
        Value::U64(value) => value.to_string(),
        Value::F32(value) => value.to_string(),
        Value::F64(value) => value.to_string(),
        Value::String(value) => value.chars().take(VALUE_CHARACTERS_MAX).collect(),
        Value::Bytes(value) => format!("{} bytes", value.len()),
        Value::EnumNumber(number) => {
            let name = field.and_then(|field| Some(field.kind().as_enum()?.get_value(*number)?.name().to_owned()));
            name.unwrap_or_else(|| number.to_string())
        }
        Value::List(items) => format!("{} items", items.len()),
        Value::Map(items) => format!("{} items", items.len()),
        Value::Message(_) => "a message".to_owned(),
    }
}
