//! An example message that fits a contract.

use prost_reflect::{FieldDescriptor, Kind, MessageDescriptor};
use serde_json::{Map, Value, json};

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
