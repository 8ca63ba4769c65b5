//! Messages and enums as JSON Schema.
//!
//! Implements: protobuf's "`ProtoJSON` Format", as recommended for writers.

use std::collections::BTreeSet;

use quire_rpc::prost_types::{
    EnumValueDescriptorProto, FieldDescriptorProto, MessageOptions,
    field_descriptor_proto::{Label, Type},
};
use serde_json::{Map, Value, json};

use crate::contracts::{Contracts, Enum, Message};

/// Schemas that a document needs: those it refers to, directly or indirectly.
pub(crate) struct Schemas<'a> {
    contracts: &'a Contracts,
    referred: BTreeSet<String>,
}

impl<'a> Schemas<'a> {
    pub(crate) fn new(contracts: &'a Contracts) -> Self {
        Self { contracts, referred: BTreeSet::new() }
    }

    /// Reference to the schema of a message or an enum by its name, with or without a leading dot.
    pub(crate) fn refer(&mut self, name: &str) -> Value {
        let name = name.trim_start_matches('.');
        if let Some(known) = well_known(name) {
            return known;
        }
        self.referred.insert(name.to_owned());
        json!({ "$ref": format!("#/components/schemas/{name}") })
    }

    /// All schemas referred to.
    pub(crate) fn into_components(mut self) -> Map<String, Value> {
        let mut components = Map::new();
        while let Some(name) = self.referred.iter().find(|name| !components.contains_key(*name)).cloned() {
            let contracts = self.contracts;
            let schema = match (contracts.messages.get(&name), contracts.enums.get(&name)) {
                (Some(message), _) => self.object(message),
                (None, Some(descriptor)) => names(descriptor),
                (None, None) => json!({}),
            };
            components.insert(name, schema);
        }
        components
    }

    fn object(&mut self, message: &Message) -> Value {
        let mut properties = Map::new();
        for (place, field) in message.descriptor.field.iter().enumerate() {
            let schema = described(self.field(field), message.comment_of(place));
            properties.insert(field.json_name().to_owned(), schema);
        }
        let mut schema = json!({ "type": "object", "properties": properties });
        let choices: Vec<Value> =
            (0..message.descriptor.oneof_decl.len()).filter_map(|at| choice(message, at)).collect();
        if !choices.is_empty() {
            schema["allOf"] = choices.into();
        }
        described(schema, message.comment())
    }

    fn field(&mut self, field: &FieldDescriptorProto) -> Value {
        if field.label() != Label::Repeated {
            return self.single(field);
        }
        let entry = self.contracts.messages.get(field.type_name().trim_start_matches('.'));
        match entry.map(|message| &message.descriptor) {
            Some(entry) if entry.options.as_ref().is_some_and(MessageOptions::map_entry) => {
                let values = entry.field.get(1).map_or(json!({}), |value| self.single(value));
                json!({ "type": "object", "additionalProperties": values })
            }
            _ => json!({ "type": "array", "items": self.single(field) }),
        }
    }

    fn single(&mut self, field: &FieldDescriptorProto) -> Value {
        match field.r#type() {
            Type::Message | Type::Enum | Type::Group => self.refer(field.type_name()),
            scalar_type => scalar(scalar_type),
        }
    }
}

/// Allows at most one field of a oneof; `None` for the synthetic oneof of an `optional`.
fn choice(message: &Message, place: usize) -> Option<Value> {
    let place = i32::try_from(place).ok();
    let fields = message.descriptor.field.iter().filter(|field| field.oneof_index == place && !field.proto3_optional());
    let alone: Vec<Value> = fields.map(|field| json!({ "required": [field.json_name()] })).collect();
    let none = json!({ "not": { "anyOf": alone } });
    let choices = [&alone[..], &[none]].concat();
    (!alone.is_empty()).then(|| json!({ "oneOf": choices }))
}

fn names(descriptor: &Enum) -> Value {
    let values = &descriptor.descriptor.value;
    let names: Vec<&str> = values.iter().map(EnumValueDescriptorProto::name).collect();
    let mut lines = vec![descriptor.comment().to_owned()];
    for (place, name) in names.iter().enumerate() {
        let comment = descriptor.comment_of(place);
        lines.extend((!comment.is_empty()).then(|| format!("`{name}`: {comment}")));
    }
    lines.retain(|line| !line.is_empty());
    described(json!({ "type": "string", "enum": names }), &lines.join("\n\n"))
}

fn described(mut schema: Value, comment: &str) -> Value {
    if !comment.is_empty() {
        schema["description"] = comment.into();
    }
    schema
}

fn scalar(scalar: Type) -> Value {
    let whole = |least: i64, most: i64, format| json!({ "type": "integer", "format": format, "minimum": least, "maximum": most });
    let long = |pattern, format| json!({ "type": "string", "format": format, "pattern": pattern });
    match scalar {
        Type::Double => float("double"),
        Type::Float => float("float"),
        Type::Int32 | Type::Sint32 | Type::Sfixed32 => whole(i32::MIN.into(), i32::MAX.into(), "int32"),
        Type::Uint32 | Type::Fixed32 => whole(0, u32::MAX.into(), "uint32"),
        Type::Int64 | Type::Sint64 | Type::Sfixed64 => long("^(0|-?[1-9][0-9]{0,18})$", "int64"),
        Type::Uint64 | Type::Fixed64 => long("^(0|[1-9][0-9]{0,19})$", "uint64"),
        Type::Bool => json!({ "type": "boolean" }),
        Type::Bytes => json!({ "type": "string", "contentEncoding": "base64", "pattern": BASE64 }),
        Type::String | Type::Message | Type::Enum | Type::Group => json!({ "type": "string" }),
    }
}

/// Padded groups of four characters.
const BASE64: &str = "^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$";

fn float(format: &str) -> Value {
    json!({ "anyOf": [{ "type": "number", "format": format }, { "enum": ["NaN", "Infinity", "-Infinity"] }] })
}

/// Schemas of messages with a special JSON form.
fn well_known(name: &str) -> Option<Value> {
    Some(match name.strip_prefix("google.protobuf.")? {
        "Timestamp" => json!({ "type": "string", "format": "date-time" }),
        "Duration" => json!({ "type": "string", "pattern": r"^-?[0-9]{1,12}(\.[0-9]{1,9})?s$" }),
        "FieldMask" => json!({ "type": "string", "description": "Paths of fields, with commas between." }),
        "Struct" => json!({ "type": "object" }),
        "ListValue" => json!({ "type": "array" }),
        "Value" => json!({}),
        "NullValue" => json!({ "type": "null" }),
        "Empty" => json!({ "type": "object", "properties": {} }),
        "Any" => json!({ "type": "object", "properties": { "@type": { "type": "string" } }, "required": ["@type"] }),
        "DoubleValue" => scalar(Type::Double),
        "FloatValue" => scalar(Type::Float),
        "Int64Value" => scalar(Type::Int64),
        "UInt64Value" => scalar(Type::Uint64),
        "Int32Value" => scalar(Type::Int32),
        "UInt32Value" => scalar(Type::Uint32),
        "BoolValue" => scalar(Type::Bool),
        "StringValue" => scalar(Type::String),
        "BytesValue" => scalar(Type::Bytes),
        _ => return None,
    })
}
