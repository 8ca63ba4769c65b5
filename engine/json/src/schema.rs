//! The tables that drive both directions. Must not know descriptors, wire bytes or JSON text.

use std::cmp::Ordering;
use std::collections::HashMap;

use super::error::{Error, shown};

/// All messages of some contracts, ready to be read and written as JSON.
#[derive(Debug)]
pub struct Schema {
    pub(super) messages: Box<[Message]>,
    pub(super) enums: Box<[Enum]>,
    pub(super) names: HashMap<Box<str>, MessageId>,
}

/// A message of one [`Schema`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageId(pub(super) u32);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EnumId(pub(super) u32);

/// How a message looks in JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Object,
    /// The value of its only field, without braces: wrappers, `Struct`, `ListValue`, and the entries of maps.
    Bare,
    /// `google.protobuf.Value`: the one field that is set, without braces.
    Value,
    Any,
    Timestamp,
    Duration,
    FieldMask,
}

#[derive(Debug)]
pub(super) struct Message {
    pub(super) form: Form,
    /// `Any` wraps the JSON of this message in a member `value`.
    pub(super) is_well_known: bool,
    /// In the order of their numbers.
    pub(super) fields: Box<[Field]>,
    pub(super) oneofs: Box<[Box<str>]>,
    /// JSON names and original names, in the order of [`by_length`], with the field's index.
    pub(super) by_name: Box<[(Box<str>, u16)]>,
}

/// What a single value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Double,
    Float,
    Int32,
    Int64,
    Uint32,
    Uint64,
    Sint32,
    Sint64,
    Fixed32,
    Fixed64,
    Sfixed32,
    Sfixed64,
    Bool,
    String,
    Bytes,
    Enum(EnumId),
    /// `google.protobuf.NullValue`.
    Null,
    Message(MessageId),
    /// A message that has no length on the wire, but an end.
    Group(MessageId),
}

impl Kind {
    /// A varint of this kind has 32 bits that count.
    #[inline]
    pub(super) fn is_half(self) -> bool {
        matches!(self, Self::Int32 | Self::Uint32 | Self::Sint32 | Self::Enum(_))
    }
}

/// The order of names that are searched: most differ in their length, which is quick to compare.
#[inline]
pub(super) fn by_length(one: &str, other: &str) -> Ordering {
    one.len().cmp(&other.len()).then_with(|| one.cmp(other))
}

/// How often a field occurs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    Single {
        /// A default value that was set differs from one that was not.
        explicit: bool,
    },
    List {
        /// Written as one block of numbers; both forms are read.
        packed: bool,
    },
    /// The field's kind is the message of an entry, which has the value as its only field; this is the key's kind.
    Map(Kind),
}

#[derive(Debug)]
pub(super) struct Field {
    pub(super) number: u32,
    pub(super) kind: Kind,
    pub(super) shape: Shape,
    /// JSON `null` is a value of this field and not its absence.
    pub(super) takes_null: bool,
    /// Index into the message's oneofs.
    pub(super) oneof: Option<u16>,
    /// The JSON name as a member begins: `,"name":`.
    pub(super) member: Box<str>,
}

#[derive(Debug)]
pub(super) struct Enum {
    /// Sorted by number, one name each, in quotes.
    pub(super) by_number: Box<[(i32, Box<str>)]>,
    /// In the order of [`by_length`], aliases included.
    pub(super) by_name: Box<[(Box<str>, i32)]>,
}

impl Schema {
    /// A message by its full name, such as `package.Message`.
    pub fn message(&self, full_name: &str) -> Option<MessageId> {
        self.names.get(full_name).copied()
    }

    #[inline]
    pub(super) fn at(&self, id: MessageId) -> &Message {
        &self.messages[id.0 as usize]
    }

    /// The message that a type URL names after its last slash.
    pub(super) fn resolve(&self, url: &str) -> Result<(MessageId, &Message), Error> {
        let found = url.rsplit_once('/').and_then(|(_, name)| self.message(name));
        let unknown = || Error::new(format!("no contract of this server has the type of \"{}\"", shown(url)));
        let id = found.ok_or_else(unknown)?;
        Ok((id, self.at(id)))
    }

    #[inline]
    pub(super) fn enumeration(&self, id: EnumId) -> &Enum {
        &self.enums[id.0 as usize]
    }
}

impl Message {
    pub(super) fn named(&self, name: &str) -> Option<usize> {
        let found = self.by_name.binary_search_by(|(known, _)| by_length(known, name)).ok()?;
        Some(usize::from(self.by_name[found].1))
    }
}

impl Field {
    #[inline]
    pub(super) fn is_single(&self) -> bool {
        matches!(self.shape, Shape::Single { .. })
    }

    /// The JSON name in quotes.
    #[inline]
    pub(super) fn quoted(&self) -> &str {
        &self.member[1..self.member.len() - 1]
    }

    pub(super) fn name(&self) -> &str {
        self.quoted().trim_matches('"')
    }
}

impl Enum {
    /// The name of `number` in quotes.
    #[inline]
    pub(super) fn quoted(&self, number: i32) -> Option<&str> {
        // Most enums count up from 0.
        let guess = usize::try_from(number).ok().and_then(|index| self.by_number.get(index));
        if let Some((found, name)) = guess
            && *found == number
        {
            return Some(name);
        }
        let found = self.by_number.binary_search_by_key(&number, |(known, _)| *known).ok()?;
        Some(&self.by_number[found].1)
    }

    pub(super) fn number(&self, name: &str) -> Option<i32> {
        let found = self.by_name.binary_search_by(|(known, _)| by_length(known, name)).ok()?;
        Some(self.by_name[found].1)
    }
}
