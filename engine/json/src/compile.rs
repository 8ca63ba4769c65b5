//! Compiles descriptors into tables.

use std::collections::{HashMap, HashSet};

use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{DescriptorProto, EnumDescriptorProto, FieldDescriptorProto, FileDescriptorProto, MessageOptions};

use super::editions::descriptors;
use super::error::Error;
use super::schema::{Enum, EnumId, Field, Form, Kind, Message, MessageId, Schema, Shape, by_length};
use super::text;

/// A message with its full name.
struct Found<'a> {
    name: String,
    descriptor: &'a DescriptorProto,
    file: &'a FileDescriptorProto,
}

#[derive(Default)]
struct Collected<'a> {
    messages: Vec<Found<'a>>,
    enums: Vec<(String, &'a EnumDescriptorProto)>,
    extensions: Vec<Extension<'a>>,
    names: HashSet<String>,
}

/// An extension field with its full name.
struct Extension<'a> {
    name: String,
    descriptor: &'a FieldDescriptorProto,
    file: &'a FileDescriptorProto,
}

/// A declared field with its JSON name and, unless it is an extension, its original name.
struct Declared<'a> {
    json_name: String,
    original: Option<&'a str>,
    descriptor: &'a FieldDescriptorProto,
    file: &'a FileDescriptorProto,
}

impl<'a> Declared<'a> {
    fn field(descriptor: &'a FieldDescriptorProto, file: &'a FileDescriptorProto) -> Self {
        Self { json_name: json_name(descriptor), original: Some(descriptor.name()), descriptor, file }
    }

    fn extension(extension: &Extension<'a>) -> Self {
        let json_name = format!("[{}]", extension.name);
        Self { json_name, original: None, descriptor: extension.descriptor, file: extension.file }
    }
}

impl<'a> Collected<'a> {
    fn file(&mut self, file: &'a FileDescriptorProto) {
        let package = file.package();
        for message in &file.message_type {
            self.message(package, message, file);
        }
        for descriptor in &file.enum_type {
            self.enumeration(package, descriptor);
        }
        for descriptor in &file.extension {
            self.extension(package, descriptor, file);
        }
    }

    fn message(&mut self, scope: &str, descriptor: &'a DescriptorProto, file: &'a FileDescriptorProto) {
        let name = within(scope, descriptor.name());
        if !self.names.insert(name.clone()) {
            return;
        }
        for inner in &descriptor.nested_type {
            self.message(&name, inner, file);
        }
        for inner in &descriptor.enum_type {
            self.enumeration(&name, inner);
        }
        for inner in &descriptor.extension {
            self.extension(&name, inner, file);
        }
        self.messages.push(Found { name, descriptor, file });
    }

    fn enumeration(&mut self, scope: &str, descriptor: &'a EnumDescriptorProto) {
        let name = within(scope, descriptor.name());
        if self.names.insert(name.clone()) {
            self.enums.push((name, descriptor));
        }
    }

    fn extension(&mut self, scope: &str, descriptor: &'a FieldDescriptorProto, file: &'a FileDescriptorProto) {
        let name = within(scope, descriptor.name());
        if self.names.insert(name.clone()) {
            self.extensions.push(Extension { name, descriptor, file });
        }
    }
}

fn within(scope: &str, name: &str) -> String {
    if scope.is_empty() { name.to_owned() } else { format!("{scope}.{name}") }
}

impl Schema {
    /// Compiles encoded `FileDescriptorSet`s with their imports. The first definition of a name counts, so sets may
    /// overlap.
    pub fn new<'a>(sets: impl IntoIterator<Item = &'a [u8]>) -> Result<Self, Error> {
        let decoded = sets.into_iter().map(descriptors).collect::<Result<Vec<_>, _>>();
        let sets = decoded.map_err(|error| Error::new(format!("a file descriptor set cannot be read: {error}")))?;
        let mut collected = Collected::default();
        for file in sets.iter().flat_map(|set| &set.file) {
            collected.file(file);
        }
        let compiler = Compiler::new(&collected);
        let messages = collected.messages.iter().map(|found| compiler.message(found)).collect::<Result<Vec<_>, _>>()?;
        let enums = collected.enums.iter().map(|(_, found)| enumeration(found)).collect();
        let names = compiler.messages.iter().map(|(name, (id, _))| (Box::from(*name), *id)).collect();
        Ok(Self { messages: messages.into(), enums, names })
    }
}

struct Compiler<'a> {
    messages: HashMap<&'a str, (MessageId, &'a DescriptorProto)>,
    enums: HashMap<&'a str, EnumId>,
    /// By the full name of the extended message.
    extensions: HashMap<&'a str, Vec<&'a Extension<'a>>>,
}

impl<'a> Compiler<'a> {
    fn new(collected: &'a Collected<'a>) -> Self {
        let messages = (0..).zip(&collected.messages);
        let enums = (0..).zip(&collected.enums);
        let mut extensions: HashMap<_, Vec<_>> = HashMap::new();
        for extension in &collected.extensions {
            extensions.entry(extension.descriptor.extendee().trim_start_matches('.')).or_default().push(extension);
        }
        Self {
            extensions,
            messages: messages.map(|(id, found)| (&*found.name, (MessageId(id), found.descriptor))).collect(),
            enums: enums.map(|(id, (name, _))| (&**name, EnumId(id))).collect(),
        }
    }

    fn message(&self, found: &Found<'_>) -> Result<Message, Error> {
        let descriptor = found.descriptor;
        let wrong = |error: Error, name: &str| error.inside(name).inside(&found.name);
        let is_entry = is_entry(descriptor);
        let own = descriptor.field.iter().filter(|field| !(is_entry && field.number() == 1));
        let own = own.map(|field| Declared::field(field, found.file));
        let added = self.extensions.get(&*found.name).into_iter().flatten().map(|added| Declared::extension(added));
        let mut fields = Vec::new();
        for declared in own.chain(added) {
            let compiled = self.field(&declared).map_err(|error| wrong(error, declared.descriptor.name()))?;
            fields.push((compiled, declared));
        }
        if fields.len() > usize::from(u16::MAX) || descriptor.oneof_decl.len() > usize::from(u16::MAX) {
            return Err(Error::new("a message has at most 65,535 fields").inside(&found.name));
        }
        fields.sort_by_key(|(field, _)| field.number);
        let by_name = by_name(&fields);
        let form = if is_entry && fields.len() == 1 { Form::Bare } else { form(&found.name, fields.len()) };
        Ok(Message {
            form,
            is_well_known: form != Form::Object || found.name == "google.protobuf.Empty",
            fields: fields.into_iter().map(|(field, _)| field).collect(),
            oneofs: descriptor.oneof_decl.iter().map(|oneof| Box::from(oneof.name())).collect(),
            by_name,
        })
    }

    fn field(&self, declared: &Declared<'_>) -> Result<Field, Error> {
        let (field, file) = (declared.descriptor, declared.file);
        let type_name = field.type_name().trim_start_matches('.');
        let missing = || Error::new(format!("no descriptor defines the type {type_name}"));
        let (kind, entry) = match field.r#type() {
            Type::Group => (Kind::Group(self.messages.get(type_name).ok_or_else(missing)?.0), None),
            Type::Message => {
                let (id, descriptor) = self.messages.get(type_name).ok_or_else(missing)?;
                (Kind::Message(*id), Some(*descriptor).filter(|descriptor| is_entry(descriptor)))
            }
            Type::Enum if type_name == "google.protobuf.NullValue" => (Kind::Null, None),
            Type::Enum => (Kind::Enum(*self.enums.get(type_name).ok_or_else(missing)?), None),
            other => (scalar(other), None),
        };
        let key = entry.and_then(|entry| entry.field.iter().find(|field| field.number() == 1));
        let shape = match key {
            Some(key) => Shape::Map(scalar(key.r#type())),
            None if field.label() == Label::Repeated => Shape::List { packed: packed(field, file, kind) },
            None => Shape::Single { explicit: declared.original.is_none() || explicit(field, file, kind) },
        };
        let mut member = vec![b','];
        text::write_quoted(&declared.json_name, &mut member);
        member.push(b':');
        Ok(Field {
            number: u32::try_from(field.number()).map_err(|_| Error::new("a field's number is negative"))?,
            kind,
            shape,
            takes_null: matches!(shape, Shape::Single { .. })
                && (kind == Kind::Null || type_name == "google.protobuf.Value"),
            // The oneof of an optional field is synthetic.
            oneof: field.oneof_index.filter(|_| !field.proto3_optional()).and_then(|index| u16::try_from(index).ok()),
            member: String::from_utf8_lossy(&member).into(),
        })
    }
}

fn is_entry(descriptor: &DescriptorProto) -> bool {
    descriptor.options.as_ref().is_some_and(MessageOptions::map_entry)
}

fn explicit(field: &FieldDescriptorProto, file: &FileDescriptorProto, kind: Kind) -> bool {
    let always = matches!(kind, Kind::Message(_) | Kind::Group(_)) || field.label() == Label::Required;
    always || field.oneof_index.is_some() || field.proto3_optional() || file.syntax() != "proto3"
}

fn packed(field: &FieldDescriptorProto, file: &FileDescriptorProto, kind: Kind) -> bool {
    let wanted = field.options.as_ref().and_then(|options| options.packed);
    let proto2 = matches!(file.syntax(), "" | "proto2");
    wanted.unwrap_or(!proto2) && !matches!(kind, Kind::String | Kind::Bytes | Kind::Message(_) | Kind::Group(_))
}

fn json_name(field: &FieldDescriptorProto) -> String {
    if let Some(name) = &field.json_name {
        return name.clone();
    }
    let mut out = String::new();
    let mut raise = false;
    for letter in field.name().chars() {
        match letter {
            '_' => raise = true,
            _ if raise => {
                out.push(letter.to_ascii_uppercase());
                raise = false;
            }
            _ => out.push(letter),
        }
    }
    out
}

/// Look-up by JSON name, and by original name where no JSON name is the same.
fn by_name(fields: &[(Field, Declared<'_>)]) -> Box<[(Box<str>, u16)]> {
    let mut names = HashMap::new();
    for (index, (_, declared)) in (0..).zip(fields) {
        names.insert(declared.json_name.clone(), index);
    }
    for (index, (_, declared)) in (0..).zip(fields) {
        if let Some(original) = declared.original {
            names.entry(original.to_owned()).or_insert(index);
        }
    }
    let mut sorted: Vec<_> = names.into_iter().map(|(name, index)| (name.into_boxed_str(), index)).collect();
    sorted.sort_unstable_by(|(one, _), (other, _)| by_length(one, other));
    sorted.into()
}

/// Well-known types whose JSON is the value of their only field.
const BARE: [&str; 11] = [
    "Struct",
    "ListValue",
    "DoubleValue",
    "FloatValue",
    "Int64Value",
    "UInt64Value",
    "Int32Value",
    "UInt32Value",
    "BoolValue",
    "StringValue",
    "BytesValue",
];

fn form(name: &str, fields: usize) -> Form {
    let (form, wanted) = match name.strip_prefix("google.protobuf.") {
        Some("Any") => (Form::Any, 2),
        Some("Timestamp") => (Form::Timestamp, 2),
        Some("Duration") => (Form::Duration, 2),
        Some("FieldMask") => (Form::FieldMask, 1),
        Some("Value") => (Form::Value, 6),
        Some(name) if BARE.contains(&name) => (Form::Bare, 1),
        _ => (Form::Object, fields),
    };
    if fields == wanted { form } else { Form::Object }
}

fn scalar(kind: Type) -> Kind {
    match kind {
        Type::Double => Kind::Double,
        Type::Float => Kind::Float,
        Type::Int64 => Kind::Int64,
        Type::Uint64 => Kind::Uint64,
        Type::Int32 => Kind::Int32,
        Type::Fixed64 => Kind::Fixed64,
        Type::Fixed32 => Kind::Fixed32,
        Type::Bool => Kind::Bool,
        Type::String => Kind::String,
        Type::Uint32 => Kind::Uint32,
        Type::Sfixed32 => Kind::Sfixed32,
        Type::Sfixed64 => Kind::Sfixed64,
        Type::Sint32 => Kind::Sint32,
        Type::Sint64 => Kind::Sint64,
        // Messages and enums are handled above.
        Type::Bytes | Type::Group | Type::Message | Type::Enum => Kind::Bytes,
    }
}

fn enumeration(descriptor: &EnumDescriptorProto) -> Enum {
    let values = &descriptor.value;
    let quoted = |name: &str| format!("\"{name}\"").into_boxed_str();
    let mut by_number: Vec<_> = values.iter().map(|value| (value.number(), quoted(value.name()))).collect();
    // Of several names for a number, the first declared is written.
    by_number.sort_by_key(|(number, _)| *number);
    by_number.dedup_by_key(|(number, _)| *number);
    let mut by_name: Vec<_> = values.iter().map(|value| (Box::from(value.name()), value.number())).collect();
    by_name.sort_unstable_by(|(one, _), (other, _)| by_length(one, other));
    Enum { by_number: by_number.into(), by_name: by_name.into() }
}
