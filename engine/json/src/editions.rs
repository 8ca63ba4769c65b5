//! Descriptors of files with an edition, as the equivalent ones of proto3.
//!
//! Implements: "Feature Settings for Editions", as far as they change presence or the wire format. `prost_types` does not
//! know features, so they are read from the encoded descriptors.

use prost::{DecodeError, Message as _};
use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{DescriptorProto, FieldDescriptorProto, FileDescriptorSet, MessageOptions};

use super::wire::{Fields, Value};

/// Decodes an encoded `FileDescriptorSet`. A file with an edition becomes one of proto3, whose fields have the presence
/// and the encoding that its features set; `proto3_optional` ones have no synthetic oneof.
pub fn descriptors(set: &[u8]) -> Result<FileDescriptorSet, DecodeError> {
    let mut files = FileDescriptorSet::decode(set)?;
    for (file, own) in files.file.iter_mut().zip(values(set, 1)) {
        if file.syntax() == "editions" {
            file.syntax = Some("proto3".to_owned());
            let features = EDITION_2023.with(own, 8, 50);
            for (extension, own) in file.extension.iter_mut().zip(values(own, 7)) {
                field(extension, features.with(own, 8, 21), false);
            }
            for (message_type, own) in file.message_type.iter_mut().zip(values(own, 4)) {
                message(message_type, own, features);
            }
        }
    }
    Ok(files)
}

/// Messages and texts of the field `number` of an encoded message.
fn values(message: &[u8], number: u64) -> impl Iterator<Item = &[u8]> {
    Fields::of(message).filter_map(move |field| match field {
        Ok((found, Value::Bytes(bytes))) if found == number => Some(bytes),
        _ => None,
    })
}

fn message(message_type: &mut DescriptorProto, own: &[u8], inherited: Features) {
    let is_entry = |message: &DescriptorProto| message.options.as_ref().is_some_and(MessageOptions::map_entry);
    // A map's features do not hold for its entries.
    if is_entry(message_type) {
        return;
    }
    let features = inherited.with(own, 7, 12);
    let entries = message_type.nested_type.iter().filter(|nested| is_entry(nested));
    let entries: Vec<_> = entries.map(|entry| format!(".{}.{}", message_type.name(), entry.name())).collect();
    for (one, own_field) in message_type.field.iter_mut().zip(values(own, 2)) {
        let oneof = one.oneof_index.and_then(|index| values(own, 8).nth(usize::try_from(index).ok()?));
        let features = features.with(oneof.unwrap_or_default(), 2, 1).with(own_field, 8, 21);
        field(one, features, entries.iter().any(|entry| one.type_name().ends_with(entry)));
    }
    for (extension, own) in message_type.extension.iter_mut().zip(values(own, 6)) {
        field(extension, features.with(own, 8, 21), false);
    }
    for (nested, own) in message_type.nested_type.iter_mut().zip(values(own, 3)) {
        message(nested, own, features);
    }
}

fn field(field: &mut FieldDescriptorProto, features: Features, is_map: bool) {
    if field.r#type() == Type::Message && features.message_encoding == DELIMITED && !is_map {
        field.set_type(Type::Group);
    }
    if field.label() == Label::Repeated {
        let packs = !matches!(field.r#type(), Type::String | Type::Bytes | Type::Message | Type::Group);
        field.options.get_or_insert_default().packed = packs.then_some(features.repeated_field_encoding == PACKED);
    } else if features.field_presence == LEGACY_REQUIRED {
        field.set_label(Label::Required);
    } else if field.oneof_index.is_none() {
        let explicit = features.field_presence == EXPLICIT && field.r#type() != Type::Message;
        field.proto3_optional = Some(explicit || field.r#type() == Type::Group);
    }
}

/// The features in force for an element, by their numbers in the contract of descriptors.
#[derive(Clone, Copy)]
struct Features {
    field_presence: u64,
    repeated_field_encoding: u64,
    message_encoding: u64,
}

const EXPLICIT: u64 = 1;
const LEGACY_REQUIRED: u64 = 3;
const PACKED: u64 = 1;
const LENGTH_PREFIXED: u64 = 1;
const DELIMITED: u64 = 2;

/// The defaults of edition 2023, which 2024 kept.
const EDITION_2023: Features =
    Features { field_presence: EXPLICIT, repeated_field_encoding: PACKED, message_encoding: LENGTH_PREFIXED };

impl Features {
    /// Applies the features in the options of `element`, by the fields' numbers.
    fn with(mut self, element: &[u8], options: u64, features: u64) -> Self {
        let sets = values(element, options).flat_map(|options| values(options, features));
        for feature in sets.flat_map(Fields::of) {
            match feature {
                Ok((1, Value::Number(value))) => self.field_presence = value,
                Ok((3, Value::Number(value))) => self.repeated_field_encoding = value,
                Ok((5, Value::Number(value))) => self.message_encoding = value,
                _ => {}
            }
        }
        self
    }
}
