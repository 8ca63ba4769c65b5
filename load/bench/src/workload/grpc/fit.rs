//! Converts JSON to messages (the protocol's JSON mapping), with errors that name the field and the expected type.
//!
//! prost-reflect builds the message, and serde reports where it failed; the expected type is looked up in the contract.

use prost_reflect::{DynamicMessage, EnumValueDescriptor, FieldDescriptor, Kind, MessageDescriptor};
use serde::de::DeserializeSeed as _;
use serde_json::Value;
use serde_path_to_error::{Deserializer, Path, Segment, Track};

use super::schema::listed;

/// Maximum characters of a value in an error.
const SHOWN_MAX: usize = 40;

/// A value that does not fit, and its place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}{reason}", if path.is_empty() { String::new() } else { format!("{path}: ") })]
pub struct Misfit {
    /// Field names from the message down, as `order.items[2].count`; empty for the message itself.
    pub path: String,
    /// The expected and the actual value.
    pub reason: String,
}

/// Converts `json` to a message.
pub fn message_from_json(json: &Value, descriptor: &MessageDescriptor) -> Result<DynamicMessage, Misfit> {
    let mut track = Track::new();
    let made = descriptor.clone().deserialize(Deserializer::new(json, &mut track));
    made.map_err(|error| misfit(json, descriptor, &track.path(), &error))
}

fn misfit(mut json: &Value, descriptor: &MessageDescriptor, path: &Path, error: &serde_json::Error) -> Misfit {
    let mut kind = Kind::Message(descriptor.clone());
    // The list or map that `json` should be.
    let mut collection: Option<FieldDescriptor> = None;
    for segment in path {
        match (segment, &kind) {
            (Segment::Seq { index }, _) => (json, collection) = (&json[*index], None),
            (Segment::Map { key }, Kind::Message(entry)) if collection.is_some() => {
                (json, collection) = (&json[key], None);
                kind = entry.map_entry_value_field().kind();
            }
            (Segment::Map { key }, Kind::Message(message)) => {
                let Some(field) = field_of(message, key) else { break };
                (json, kind) = (&json[key], field.kind());
                collection = (field.is_list() || field.is_map()).then_some(field);
            }
            _ => break,
        }
    }
    let mut path = if path.iter().len() == 0 { String::new() } else { path.to_string() };
    let reason = match (collection, &kind) {
        (Some(field), _) if field.is_list() => wants(&format!("a list of {}", name_of(&kind)), json),
        (Some(_), Kind::Message(entry)) if json.is_object() => {
            wants(&format!("keys that are {}", with_article(&entry.map_entry_key_field().kind())), json)
        }
        (Some(_), _) => wants("an object of keys and values", json),
        // Timestamps, wrappers and the like have forms that only prost-reflect knows.
        (None, Kind::Message(message)) if message.package_name() == "google.protobuf" => error.to_string(),
        (None, Kind::Message(message)) => match json.as_object().map(|members| unknown(message, members.keys())) {
            None => wants(&format!("an object ({})", message.full_name()), json),
            Some(None) => error.to_string(),
            Some(Some(name)) => {
                path = if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
                let fields: Vec<FieldDescriptor> = message.fields().collect();
                let names = listed(fields.iter().map(FieldDescriptor::name), name);
                format!("no such field; {} has {names}", message.full_name())
            }
        },
        (None, Kind::Enum(named)) => {
            let values: Vec<EnumValueDescriptor> = named.values().collect();
            let names = listed(values.iter().map(EnumValueDescriptor::name), json.as_str().unwrap_or_default());
            wants(&format!("a {} ({names})", named.full_name()), json)
        }
        (None, kind) => wants(&with_article(kind), json),
    };
    Misfit { path, reason }
}

fn field_of(message: &MessageDescriptor, name: &str) -> Option<FieldDescriptor> {
    message.get_field_by_json_name(name).or_else(|| message.get_field_by_name(name))
}

fn unknown<'a>(message: &MessageDescriptor, mut names: impl Iterator<Item = &'a String>) -> Option<&'a str> {
    names.find(|name| field_of(message, name).is_none() && !name.starts_with('[')).map(String::as_str)
}

fn wants(wanted: &str, got: &Value) -> String {
    let text = got.to_string();
    let shown: String = text.chars().take(SHOWN_MAX).collect();
    let cut = if shown.len() < text.len() { "…" } else { "" };
    format!("wants {wanted}, got {shown}{cut}")
}

fn with_article(kind: &Kind) -> String {
    let article = match kind {
        Kind::Bytes => "",
        Kind::Int32 | Kind::Int64 => "an ",
        _ => "a ",
    };
    format!("{article}{}", name_of(kind))
}

fn name_of(kind: &Kind) -> String {
    match kind {
        Kind::Message(message) => message.full_name().to_owned(),
        Kind::Enum(named) => named.full_name().to_owned(),
        Kind::Bool => "bool: true or false".to_owned(),
        Kind::Bytes => "bytes in base64".to_owned(),
        scalar => format!("{scalar:?}").to_lowercase(),
    }
}
