//! Messages of requests: encoded once if they are constant, else made for each turn.

use std::sync::Arc;

use anyhow::{Context as _, anyhow, bail, ensure};
use bytes::Bytes;
use prost::Message as _;
use prost_reflect::{DynamicMessage, EnumValueDescriptor, FieldDescriptor, Kind, MessageDescriptor};
use quire_rpc::client::{Codec, PathRef};
use serde::de::DeserializeSeed as _;
use serde_json::{Map, Value, json};
use serde_path_to_error::{Deserializer, Path, Segment, Track};

use super::schema::listed;
use crate::template::{Sources, Template, Turn};

/// Maximum size of `--data`, and of a request made from it.
pub const DATA_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// Maximum messages of a request.
pub const MESSAGES_MAX: usize = 1_000_000;
/// Turns whose data is tried before a run. Data of later turns may still fail to fit.
const TURNS_TRIED: u64 = 100;

/// The requests of a load.
#[derive(Clone)]
pub enum Requests {
    /// The same encoded messages every time.
    Constant(Arc<[Bytes]>),
    /// One encoded message, made for each turn before the clock starts, with its method if that is not the workload's:
    /// a mix of unary calls.
    Made(Arc<dyn Fn(Turn) -> (Option<PathRef>, Bytes) + Send + Sync>),
    /// Data with placeholders, filled in before the clock starts.
    Rendered(Arc<Payload>),
}

impl Requests {
    /// One message, the same every time.
    pub fn constant(encoded: impl Into<Bytes>) -> Self {
        Self::Constant(Arc::new([encoded.into()]))
    }
}

/// Messages in JSON with placeholders.
#[derive(Clone, Debug)]
pub struct Payload {
    template: Template,
    descriptor: MessageDescriptor,
    codec: Codec,
    is_stream: bool,
    repeat: usize,
}

impl Payload {
    /// Parses `data` as JSON: a message; for a method that takes a stream, a list of messages or messages one after
    /// another, which are sent `repeat` times over.
    pub fn read(
        data: &str,
        sources: &Sources,
        descriptor: &MessageDescriptor,
        codec: Codec,
        is_stream: bool,
        repeat: usize,
    ) -> anyhow::Result<Requests> {
        let template = Template::parse(data, sources).context("--data")?;
        let payload = Self { template, descriptor: descriptor.clone(), codec, is_stream, repeat };
        let first = payload.render(Turn { number: 0, client: 0, worker: 0 })?;
        if payload.template.constant().is_some() {
            return Ok(Requests::Constant(first.into()));
        }
        for number in 1..TURNS_TRIED {
            payload.render(Turn { number, client: 0, worker: 0 })?;
        }
        Ok(Requests::Rendered(Arc::new(payload)))
    }

    /// The encoded messages of a turn.
    pub(super) fn render(&self, turn: Turn) -> anyhow::Result<Vec<Bytes>> {
        let mut text = String::new();
        self.template.render(turn, &mut text);
        let mut values: Vec<Value> = serde_json::Deserializer::from_str(&text)
            .into_iter()
            .collect::<Result<_, _>>()
            .context("--data is not JSON")?;
        if let [Value::Array(_)] = &values[..]
            && self.is_stream
            && let Some(Value::Array(items)) = values.pop()
        {
            values = items;
        }
        match values.len() {
            0 => bail!("--data holds no message; write {{}} for an empty one"),
            1 => {}
            count if !self.is_stream => bail!("--data holds {count} messages; this method takes one"),
            _ => {}
        }
        let repeat = if self.is_stream { self.repeat } else { 1 };
        let count = values.len().saturating_mul(repeat);
        ensure!(count <= MESSAGES_MAX, "a request has {count} messages; it may have {MESSAGES_MAX}");
        let encode = |(at, value)| {
            let message = message_from_json(value, &self.descriptor);
            let message = message.map_err(|misfit| anyhow!("--data does not fit: {}", self.placed(at, misfit)))?;
            Ok(match self.codec {
                Codec::Proto => message.encode_to_vec().into(),
                Codec::Json => serde_json::to_vec(&message)?.into(),
            })
        };
        let encoded: Vec<Bytes> = values.iter().enumerate().map(encode).collect::<anyhow::Result<_>>()?;
        Ok(encoded.iter().cycle().take(count).cloned().collect())
    }

    /// Adds the position of the message to the error, if there are several.
    fn placed(&self, at: usize, misfit: Misfit) -> Misfit {
        if !self.is_stream {
            return misfit;
        }
        let dot = if misfit.path.is_empty() { "" } else { "." };
        Misfit { path: format!("[{at}]{dot}{}", misfit.path), ..misfit }
    }
}

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

/// Converts JSON to a message (the protocol's JSON mapping); errors name the field and the expected type.
///
/// prost-reflect builds the message, and serde reports where it failed; the expected type is looked up in the contract.
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

/// Maximum nesting of an example, because contracts may be recursive.
const DEPTH_MAX: usize = 4;

/// An example message in JSON, with every field, but only the first of each `oneof`.
pub fn example(descriptor: &MessageDescriptor) -> Value {
    message(descriptor, 0)
}

fn message(descriptor: &MessageDescriptor, depth: usize) -> Value {
    match descriptor.full_name() {
        "google.protobuf.Timestamp" => return json!("1970-01-01T00:00:00Z"),
        "google.protobuf.Duration" => return json!("1s"),
        "google.protobuf.FieldMask" => return json!(""),
        "google.protobuf.ListValue" => return json!([]),
        "google.protobuf.Value" => return Value::Null,
        "google.protobuf.Struct" | "google.protobuf.Any" => return json!({}),
        name if name.starts_with("google.protobuf.") && name.ends_with("Value") => {
            return descriptor.get_field(1).map_or(Value::Null, |field| single(&field.kind(), depth));
        }
        _ => {}
    }
    let mut members = Map::new();
    for field in descriptor.fields() {
        let excluded = field
            .containing_oneof()
            .filter(|oneof| !oneof.is_synthetic())
            .is_some_and(|oneof| oneof.fields().next().is_some_and(|first| first.number() != field.number()));
        let too_deep = depth + 1 >= DEPTH_MAX && matches!(field.kind(), Kind::Message(_));
        if !excluded && !too_deep {
            members.insert(field.name().to_owned(), value(&field, depth));
        }
    }
    Value::Object(members)
}

fn value(field: &FieldDescriptor, depth: usize) -> Value {
    match field.kind() {
        Kind::Message(entry) if field.is_map() => {
            let key = match single(&entry.map_entry_key_field().kind(), depth) {
                Value::String(_) => "key".to_owned(),
                other => other.to_string(),
            };
            json!({ key: single(&entry.map_entry_value_field().kind(), depth + 1) })
        }
        kind if field.is_list() => json!([single(&kind, depth)]),
        kind => single(&kind, depth),
    }
}

fn single(kind: &Kind, depth: usize) -> Value {
    match kind {
        Kind::Message(descriptor) => message(descriptor, depth + 1),
        Kind::Enum(descriptor) => json!(descriptor.default_value().name()),
        Kind::Bool => json!(false),
        Kind::String | Kind::Bytes => json!(""),
        Kind::Float | Kind::Double => json!(0.0),
        _ => json!(0),
    }
}
