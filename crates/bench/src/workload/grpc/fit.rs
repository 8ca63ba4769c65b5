//! JSON into messages (the protocol's JSON mapping), with errors that name the field and what it wants.
//!
//! prost-reflect makes the message; it is asked only once a walk over the JSON found nothing that does not fit, because
//! its own errors name no field.

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use prost_reflect::{DynamicMessage, EnumDescriptor, FieldDescriptor, Kind, MessageDescriptor};
use serde_json::Value;

use super::nearest::listed;

/// Characters of a value that an error shows.
const SHOWN_MAX: usize = 40;

/// As lenient as prost-reflect.
const LENIENT: GeneralPurposeConfig = GeneralPurposeConfig::new()
    .with_decode_padding_mode(DecodePaddingMode::Indifferent)
    .with_decode_allow_trailing_bits(true);
const BASE64: [GeneralPurpose; 2] =
    [GeneralPurpose::new(&alphabet::STANDARD, LENIENT), GeneralPurpose::new(&alphabet::URL_SAFE, LENIENT)];

/// What does not fit, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}{reason}", if path.is_empty() { String::new() } else { format!("{path}: ") })]
pub struct Misfit {
    /// Field names from the message down, as `order.items[2].count`; empty for the message itself.
    pub path: String,
    /// What was wanted and what is there.
    pub reason: String,
}

/// The message that `json` describes.
pub fn message_from_json(json: &Value, descriptor: &MessageDescriptor) -> Result<DynamicMessage, Misfit> {
    message(json, descriptor, "")?;
    DynamicMessage::deserialize(descriptor.clone(), json)
        .map_err(|error| Misfit { path: String::new(), reason: format!("no {}: {error}", descriptor.full_name()) })
}

fn misfit(path: &str, wanted: &str, got: &Value) -> Misfit {
    let text = got.to_string();
    let shown: String = text.chars().take(SHOWN_MAX).collect();
    let cut = if shown.len() < text.len() { "…" } else { "" };
    Misfit { path: path.to_owned(), reason: format!("wants {wanted}, got {shown}{cut}") }
}

fn message(json: &Value, descriptor: &MessageDescriptor, path: &str) -> Result<(), Misfit> {
    // Timestamps, wrappers and their like have forms of their own, which prost-reflect knows.
    if descriptor.package_name() == "google.protobuf" {
        return Ok(());
    }
    let Value::Object(members) = json else {
        return Err(misfit(path, &format!("an object ({})", descriptor.full_name()), json));
    };
    for (name, value) in members {
        let found = descriptor.get_field_by_json_name(name).or_else(|| descriptor.get_field_by_name(name));
        let inner = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        match found {
            Some(found) => field(value, &found, &inner)?,
            // The name of an extension, in brackets.
            None if name.starts_with('[') => {}
            None => {
                let fields: Vec<FieldDescriptor> = descriptor.fields().collect();
                let names = listed(fields.iter().map(FieldDescriptor::name), name);
                let reason = format!("no such field; {} has {names}", descriptor.full_name());
                return Err(Misfit { path: inner, reason });
            }
        }
    }
    Ok(())
}

fn field(json: &Value, descriptor: &FieldDescriptor, path: &str) -> Result<(), Misfit> {
    match json {
        Value::Null => Ok(()),
        Value::Array(items) if descriptor.is_list() => items
            .iter()
            .enumerate()
            .try_for_each(|(at, item)| single(item, &descriptor.kind(), &format!("{path}[{at}]"))),
        _ if descriptor.is_list() => {
            Err(misfit(path, &format!("a list of {}", name_of(&descriptor.kind(), true)), json))
        }
        Value::Object(members) if descriptor.is_map() => {
            let Kind::Message(entry) = descriptor.kind() else { return Ok(()) };
            let (key_kind, value_kind) = (entry.map_entry_key_field().kind(), entry.map_entry_value_field().kind());
            members.iter().try_for_each(|(key, value)| {
                let path = format!("{path}[{key:?}]");
                if !is_key(key, &key_kind) {
                    let key = Value::String(key.clone());
                    return Err(misfit(&path, &format!("{} as its key", name_of(&key_kind, false)), &key));
                }
                single(value, &value_kind, &path)
            })
        }
        _ if descriptor.is_map() => Err(misfit(path, "an object of keys and values", json)),
        _ => single(json, &descriptor.kind(), path),
    }
}

fn is_key(key: &str, kind: &Kind) -> bool {
    match kind {
        Kind::String => true,
        Kind::Bool => matches!(key, "true" | "false"),
        _ => key.parse::<i128>().is_ok_and(|number| range(kind).is_some_and(|range| range.contains(&number))),
    }
}

fn single(json: &Value, kind: &Kind, path: &str) -> Result<(), Misfit> {
    let fits = match kind {
        Kind::Message(descriptor) => return message(json, descriptor, path),
        Kind::Enum(descriptor) => return enum_value(json, descriptor, path),
        Kind::Bool => json.is_boolean(),
        Kind::String => json.is_string(),
        Kind::Bytes => json.as_str().is_some_and(|text| BASE64.iter().any(|base64| base64.decode(text).is_ok())),
        Kind::Float | Kind::Double => is_float(json),
        _ => match (integer(json), range(kind)) {
            (Some(number), Some(range)) if range.contains(&number) => true,
            (Some(_), Some(range)) => {
                let wanted = format!("{} from {} to {}", name_of(kind, false), range.start(), range.end());
                return Err(misfit(path, &wanted, json));
            }
            _ => false,
        },
    };
    if fits { Ok(()) } else { Err(misfit(path, &name_of(kind, false), json)) }
}

fn enum_value(json: &Value, descriptor: &EnumDescriptor, path: &str) -> Result<(), Misfit> {
    let fits = match json {
        Value::String(name) => descriptor.get_value_by_name(name).is_some(),
        // Proto3 keeps numbers it has no name for.
        Value::Number(number) => number.as_i64().is_some_and(|number| i32::try_from(number).is_ok()),
        // The one value of google.protobuf.NullValue.
        Value::Null => true,
        _ => false,
    };
    if fits || descriptor.package_name() == "google.protobuf" {
        return Ok(());
    }
    let values: Vec<_> = descriptor.values().collect();
    let names = listed(values.iter().map(prost_reflect::EnumValueDescriptor::name), json.as_str().unwrap_or_default());
    Err(misfit(path, &format!("a {} ({names})", descriptor.full_name()), json))
}

fn is_float(json: &Value) -> bool {
    match json {
        Value::Number(_) => true,
        Value::String(text) => matches!(text.as_str(), "NaN" | "Infinity" | "-Infinity") || text.parse::<f64>().is_ok(),
        _ => false,
    }
}

/// A whole number, as JSON's number or text, `1.0` and `1e3` included.
fn integer(json: &Value) -> Option<i128> {
    let of_float = |float: f64| {
        #[expect(clippy::cast_possible_truncation, reason = "whole; what is too large for any integer stays so")]
        let whole = (float.fract() == 0.0).then_some(float as i128);
        whole
    };
    match json {
        Value::Number(number) => {
            let whole = number.as_i64().map(i128::from).or_else(|| number.as_u64().map(i128::from));
            whole.or_else(|| number.as_f64().and_then(of_float))
        }
        Value::String(text) => text.parse().ok(),
        _ => None,
    }
}

fn range(kind: &Kind) -> Option<std::ops::RangeInclusive<i128>> {
    match kind {
        Kind::Int32 | Kind::Sint32 | Kind::Sfixed32 => Some(i32::MIN.into()..=i32::MAX.into()),
        Kind::Int64 | Kind::Sint64 | Kind::Sfixed64 => Some(i64::MIN.into()..=i64::MAX.into()),
        Kind::Uint32 | Kind::Fixed32 => Some(0..=u32::MAX.into()),
        Kind::Uint64 | Kind::Fixed64 => Some(0..=u64::MAX.into()),
        _ => None,
    }
}

fn name_of(kind: &Kind, plural: bool) -> String {
    let (article, name) = match kind {
        Kind::Message(descriptor) => ("a", descriptor.full_name()),
        Kind::Enum(descriptor) => ("a", descriptor.full_name()),
        Kind::Bool => ("a", "bool: true or false"),
        Kind::Bytes => ("", "bytes in base64"),
        Kind::Int32 => ("an", "int32"),
        Kind::Int64 => ("an", "int64"),
        Kind::Uint32 => ("a", "uint32"),
        Kind::Uint64 => ("a", "uint64"),
        Kind::Sint32 => ("a", "sint32"),
        Kind::Sint64 => ("a", "sint64"),
        Kind::Fixed32 => ("a", "fixed32"),
        Kind::Fixed64 => ("a", "fixed64"),
        Kind::Sfixed32 => ("a", "sfixed32"),
        Kind::Sfixed64 => ("a", "sfixed64"),
        Kind::Float => ("a", "float"),
        Kind::Double => ("a", "double"),
        Kind::String => ("a", "string"),
    };
    if plural || article.is_empty() { name.to_owned() } else { format!("{article} {name}") }
}
