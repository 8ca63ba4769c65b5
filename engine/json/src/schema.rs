//! Tables that drive both directions.

use std::cmp::Ordering;
use std::collections::HashMap;

use super::error::{Error, shown};

/// Tables of all messages of some contracts, for reading and writing JSON.
#[derive(Debug)]
pub struct Schema {
    pub(super) messages: Box<[Message]>,
    pub(super) enums: Box<[Enum]>,
    pub(super) names: HashMap<Box<str>, MessageId>,
}

/// Identifies a message of one [`Schema`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageId(pub(super) u32);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EnumId(pub(super) u32);

/// JSON form of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Object,
    /// The bare value of its only field: wrappers, `Struct`, `ListValue`, and map entries.
    Bare,
    /// `google.protobuf.Value`: the bare value of the field that is set.
    Value,
    Any,
    Timestamp,
    Duration,
    FieldMask,
}

#[derive(Debug)]
pub(super) struct Message {
    pub(super) form: Form,
    /// True if `Any` wraps this message's JSON in a member `value`.
    pub(super) is_well_known: bool,
    /// Sorted by number.
    pub(super) fields: Box<[Field]>,
    pub(super) oneofs: Box<[Box<str>]>,
    /// JSON names and original names with the field's index, ordered by [`by_length`].
    pub(super) by_name: Box<[(Box<str>, u16)]>,
}

/// Type of a single value.
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
    /// A delimited message: it has an end tag instead of a length.
    Group(MessageId),
}

impl Kind {
    /// True for kinds whose varints are truncated to 32 bits.
    #[inline]
    pub(super) fn is_half(self) -> bool {
        matches!(self, Self::Int32 | Self::Uint32 | Self::Sint32 | Self::Enum(_))
    }
}

/// Order of searchable names, by length first: most differ in it, and it is quick to compare.
#[inline]
pub(super) fn by_length(one: &str, other: &str) -> Ordering {
    one.len().cmp(&other.len()).then_with(|| one.cmp(other))
}

/// Cardinality of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    Single {
        /// True if a default value that was set is distinct from an absent one.
        explicit: bool,
    },
    List {
        /// True if written packed; both forms are read.
        packed: bool,
    },
    /// A map with this kind of key; the field's kind is the entry message, which has the value as its only field.
    Map(Kind),
}

#[derive(Debug)]
pub(super) struct Field {
    pub(super) number: u32,
    pub(super) kind: Kind,
    pub(super) shape: Shape,
    /// True if JSON `null` is a value of this field rather than its absence.
    pub(super) takes_null: bool,
    /// Index into the message's oneofs.
    pub(super) oneof: Option<u16>,
    /// JSON name as a member begins: `,"name":`.
    pub(super) member: Box<str>,
}

#[derive(Debug)]
pub(super) struct Enum {
    /// Quoted names sorted by number, one for each number.
    pub(super) by_number: Box<[(i32, Box<str>)]>,
    /// Ordered by [`by_length`], aliases included.
    pub(super) by_name: Box<[(Box<str>, i32)]>,
}

impl Schema {
    /// Finds a message by its full name, such as `package.Message`.
    pub fn message(&self, full_name: &str) -> Option<MessageId> {
        self.names.get(full_name).copied()
    }

    #[inline]
    pub(super) fn at(&self, id: MessageId) -> &Message {
        &self.messages[id.0 as usize]
    }

    /// Finds the message that a type URL names after its last slash.
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

    /// The quoted JSON name.
    #[inline]
    pub(super) fn quoted(&self) -> &str {
        &self.member[1..self.member.len() - 1]
    }

    pub(super) fn name(&self) -> &str {
        self.quoted().trim_matches('"')
    }
}

impl Enum {
    /// The quoted name of `number`.
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
