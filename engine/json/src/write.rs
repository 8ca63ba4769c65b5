//! Converts wire bytes to JSON.
//!
//! A message whose fields are in ascending order is written directly. Any other is gathered first: its fields are
//! listed and sorted, without those that later ones replace.

use super::DEPTH_MAX;
use super::error::{Error, shown};
use super::known::{write_base64, write_duration, write_path, write_timestamp};
use super::number::{low, unzigzag, wanted, write_float, write_whole};
use super::schema::{Field, Form, Kind, Message, MessageId, Schema, Shape};
use super::text::write_quoted;
use crate::wire::{Fields, Value};

impl Schema {
    /// Appends the JSON of an encoded message; on error `out` is unchanged.
    pub fn write(&self, id: MessageId, wire: &[u8], out: &mut Vec<u8>) -> Result<(), Error> {
        let start = out.len();
        out.reserve(wire.len().saturating_mul(3) + 32);
        let written = Writer { schema: self, out }.message(id, &Parts::one(wire), DEPTH_MAX + 1);
        written.inspect_err(|_| out.truncate(start))
    }
}

struct Writer<'s, 'o> {
    schema: &'s Schema,
    out: &'o mut Vec<u8>,
}

/// Nesting levels left, and whether fields have names.
#[derive(Clone, Copy)]
struct Position {
    depth: usize,
    is_named: bool,
}

impl<'s> Writer<'s, '_> {
    fn message(&mut self, id: MessageId, parts: &Parts<'_>, depth: usize) -> Result<(), Error> {
        let message = self.schema.at(id);
        let depth = depth.checked_sub(1).ok_or_else(Error::too_deep)?;
        let start = self.out.len();
        match message.form {
            Form::Object => {
                self.fields(message, parts, Position { depth, is_named: true })?;
                // The first member's comma becomes the brace.
                match self.out.get_mut(start) {
                    Some(first) => *first = b'{',
                    None => self.out.push(b'{'),
                }
                self.out.push(b'}');
                Ok(())
            }
            Form::Bare => {
                self.fields(message, parts, Position { depth, is_named: false })?;
                if self.out.len() == start { self.default(&message.fields[0], depth) } else { Ok(()) }
            }
            Form::Value => {
                for field in parts.fields() {
                    if matches!(field?, (2, Value::Eight(bits)) if !f64::from_bits(bits).is_finite()) {
                        return Err(Error::new("a google.protobuf.Value has a number that is not finite"));
                    }
                }
                self.fields(message, parts, Position { depth, is_named: false })?;
                let is_empty = self.out.len() == start;
                if is_empty { Err(Error::new("a google.protobuf.Value has no value")) } else { Ok(()) }
            }
            Form::Any => self.any(parts, depth),
            Form::Timestamp | Form::Duration => self.time(message.form, parts),
            Form::FieldMask => self.field_mask(parts),
        }
    }

    fn fields(&mut self, message: &'s Message, parts: &Parts<'_>, position: Position) -> Result<(), Error> {
        if !parts.is_one() || !is_ascending(message, parts.first)? {
            return self.gathered(message, parts, position);
        }
        let mut fields = Fields::of(parts.first);
        let mut known = message.fields.iter();
        let mut next = known.next();
        while let Some(found) = fields.next() {
            let (number, value) = found?;
            while let Some(field) = next
                && u64::from(field.number) < number
            {
                next = known.next();
            }
            let Some(field) = next else { break };
            if u64::from(field.number) != number {
                continue;
            }
            let written = match field.shape {
                Shape::Single { explicit } => self.single(field, value, explicit, position),
                Shape::List { .. } => self.list(field, Run::new(&mut fields, number, value), position),
                Shape::Map(key) => self.map(field, key, Run::new(&mut fields, number, value), position),
            };
            written.map_err(|error| inside(error, field, position))?;
        }
        Ok(())
    }

    #[cold]
    fn gathered(&mut self, message: &'s Message, parts: &Parts<'_>, position: Position) -> Result<(), Error> {
        for run in gather(message, parts)?.chunk_by(|(one, _), (other, _)| one == other) {
            let field = &message.fields[run[0].0];
            let values = run.iter().map(|(_, value)| Ok(*value));
            let written = match (field.shape, field.kind) {
                (Shape::List { .. }, _) => self.list(field, values, position),
                (Shape::Map(key), _) => self.map(field, key, values, position),
                (Shape::Single { .. }, Kind::Message(id) | Kind::Group(id)) => {
                    Parts::of(values.map(|value| bytes(field.kind, value?))).and_then(|parts| {
                        self.name(field, position);
                        self.message(id, &parts, position.depth)
                    })
                }
                (Shape::Single { explicit }, _) => self.single(field, run[run.len() - 1].1, explicit, position),
            };
            written.map_err(|error| inside(error, field, position))?;
        }
        Ok(())
    }

    #[inline]
    fn name(&mut self, field: &Field, position: Position) {
        if position.is_named {
            self.out.extend_from_slice(field.member.as_bytes());
        }
    }

    #[inline]
    fn single(&mut self, field: &Field, value: Value<'_>, explicit: bool, position: Position) -> Result<(), Error> {
        if !explicit && is_default(field.kind, value) {
            return Ok(());
        }
        self.name(field, position);
        self.value(field.kind, value, position.depth)
    }

    fn list<'a>(
        &mut self,
        field: &Field,
        values: impl Iterator<Item = Result<Value<'a>, Error>>,
        position: Position,
    ) -> Result<(), Error> {
        let start = self.out.len();
        self.name(field, position);
        self.out.push(b'[');
        let first = self.out.len();
        for (index, value) in values.enumerate() {
            let written = match value? {
                Value::Bytes(block) if is_number(field.kind) => self.packed(field.kind, block, position.depth),
                value => self.value(field.kind, value, position.depth),
            };
            written.map_err(|error| error.inside_element(index))?;
            if self.out.len() > first && self.out.last() != Some(&b',') {
                self.out.push(b',');
            }
        }
        if self.out.len() == first {
            self.out.truncate(start);
        } else {
            self.out.pop();
            self.out.push(b']');
        }
        Ok(())
    }

    fn packed(&mut self, kind: Kind, block: &[u8], depth: usize) -> Result<(), Error> {
        let mut rest = Fields::of(block);
        while !rest.is_empty() {
            let value = match kind {
                Kind::Double | Kind::Fixed64 | Kind::Sfixed64 => Value::Eight(u64::from_le_bytes(rest.chunk()?)),
                Kind::Float | Kind::Fixed32 | Kind::Sfixed32 => Value::Four(u32::from_le_bytes(rest.chunk()?)),
                _ => Value::Number(rest.varint()?),
            };
            self.value(kind, value, depth)?;
            self.out.push(b',');
        }
        Ok(())
    }

    /// Writes entries sorted by key; of duplicate keys the last counts.
    fn map<'a>(
        &mut self,
        field: &Field,
        key: Kind,
        entries: impl Iterator<Item = Result<Value<'a>, Error>>,
        position: Position,
    ) -> Result<(), Error> {
        let mut sorted = Vec::new();
        for entry in entries {
            let entry = bytes(field.kind, entry?)?;
            sorted.push((Key::of(key, entry)?, entry));
        }
        sorted.sort_by_key(|(key, _)| *key);
        let Kind::Message(id) = field.kind else { return Ok(()) };
        self.name(field, position);
        self.out.push(b'{');
        for (index, (found, entry)) in sorted.iter().enumerate() {
            if sorted.get(index + 1).is_some_and(|(next, _)| next == found) {
                continue;
            }
            let start = self.out.len();
            self.key(key, found.value(key), position.depth)?;
            let end = self.out.len();
            self.out.push(b':');
            let written = self.message(id, &Parts::one(entry), position.depth);
            written.map_err(|error| error.inside_entry(&String::from_utf8_lossy(&self.out[start + 1..end - 1])))?;
            self.out.push(b',');
        }
        self.out.pop();
        self.out.push(b'}');
        Ok(())
    }

    /// Writes a map key, which JSON always quotes.
    fn key(&mut self, kind: Kind, key: Value<'_>, depth: usize) -> Result<(), Error> {
        let start = self.out.len();
        self.out.push(b'"');
        self.value(kind, key, depth)?;
        if self.out.get(start + 1) == Some(&b'"') {
            self.out.remove(start);
        } else {
            self.out.push(b'"');
        }
        Ok(())
    }

    /// Writes the default of an absent field, where JSON needs a value.
    fn default(&mut self, field: &Field, depth: usize) -> Result<(), Error> {
        let zero = match (field.shape, field.kind) {
            (Shape::Map(_), _) => {
                self.out.extend_from_slice(b"{}");
                return Ok(());
            }
            (Shape::List { .. }, _) => {
                self.out.extend_from_slice(b"[]");
                return Ok(());
            }
            (_, Kind::Double | Kind::Fixed64 | Kind::Sfixed64) => Value::Eight(0),
            (_, Kind::Float | Kind::Fixed32 | Kind::Sfixed32) => Value::Four(0),
            (_, Kind::String | Kind::Bytes | Kind::Message(_)) => Value::Bytes(&[]),
            (_, Kind::Group(_)) => Value::Group(&[]),
            _ => Value::Number(0),
        };
        self.value(field.kind, zero, depth)
    }

    #[inline]
    fn value(&mut self, kind: Kind, value: Value<'_>, depth: usize) -> Result<(), Error> {
        match (kind, value) {
            (Kind::String, Value::Bytes(bytes)) => {
                let text = std::str::from_utf8(bytes);
                write_quoted(text.map_err(|_| Error::new("a string is not valid UTF-8"))?, self.out);
            }
            (Kind::Message(id), Value::Bytes(bytes)) | (Kind::Group(id), Value::Group(bytes)) => {
                self.message(id, &Parts::one(bytes), depth)?;
            }
            (Kind::Int32, Value::Number(number)) => write_whole(low(number).cast_signed(), self.out),
            (Kind::Uint32, Value::Number(number)) => write_whole(low(number), self.out),
            (Kind::Sint32, Value::Number(number)) => write_whole(unzigzag(u64::from(low(number))), self.out),
            (Kind::Fixed32, Value::Four(number)) => write_whole(number, self.out),
            (Kind::Sfixed32, Value::Four(number)) => write_whole(number.cast_signed(), self.out),
            (Kind::Int64, Value::Number(number)) | (Kind::Sfixed64, Value::Eight(number)) => {
                self.quoted(number.cast_signed());
            }
            (Kind::Sint64, Value::Number(number)) => self.quoted(unzigzag(number)),
            (Kind::Uint64, Value::Number(number)) | (Kind::Fixed64, Value::Eight(number)) => self.quoted(number),
            (Kind::Bool, Value::Number(number)) => {
                self.out.extend_from_slice(if number == 0 { b"false" } else { b"true" });
            }
            (Kind::Enum(id), Value::Number(number)) => {
                let number = low(number).cast_signed();
                match self.schema.enumeration(id).quoted(number) {
                    Some(name) => self.out.extend_from_slice(name.as_bytes()),
                    None => write_whole(number, self.out),
                }
            }
            (Kind::Null, Value::Number(_)) => self.out.extend_from_slice(b"null"),
            (Kind::Double, Value::Eight(bits)) => self.float(f64::from_bits(bits), f64::from_bits(bits)),
            (Kind::Float, Value::Four(bits)) => self.float(f32::from_bits(bits), f32::from_bits(bits).into()),
            (Kind::Bytes, Value::Bytes(bytes)) => write_base64(bytes, self.out),
            _ => return Err(Error::wrong_type(wanted(kind))),
        }
        Ok(())
    }

    fn quoted(&mut self, number: impl itoa::Integer) {
        self.out.push(b'"');
        write_whole(number, self.out);
        self.out.push(b'"');
    }

    fn float(&mut self, number: impl zmij::Float, wide: f64) {
        if wide.is_finite() {
            write_float(number, self.out);
        } else if wide.is_nan() {
            self.out.extend_from_slice(b"\"NaN\"");
        } else {
            self.out.extend_from_slice(if wide > 0.0 { b"\"Infinity\"" } else { b"\"-Infinity\"" });
        }
    }

    fn any(&mut self, parts: &Parts<'_>, depth: usize) -> Result<(), Error> {
        let (mut url, mut value) = (&[][..], &[][..]);
        for field in parts.fields() {
            match field? {
                (1, Value::Bytes(bytes)) => url = bytes,
                (2, Value::Bytes(bytes)) => value = bytes,
                _ => {}
            }
        }
        if url.is_empty() && value.is_empty() {
            self.out.extend_from_slice(b"{}");
            return Ok(());
        }
        let url = std::str::from_utf8(url).map_err(|_| Error::new("a type URL is not valid UTF-8"))?;
        let (id, message) = self.schema.resolve(url)?;
        self.out.extend_from_slice(b"{\"@type\":");
        write_quoted(url, self.out);
        let parts = Parts::one(value);
        if message.is_well_known {
            self.out.extend_from_slice(b",\"value\":");
            self.message(id, &parts, depth)?;
        } else {
            let depth = depth.checked_sub(1).ok_or_else(Error::too_deep)?;
            self.fields(message, &parts, Position { depth, is_named: true })?;
        }
        self.out.push(b'}');
        Ok(())
    }

    fn time(&mut self, form: Form, parts: &Parts<'_>) -> Result<(), Error> {
        let (mut seconds, mut nanos) = (0, 0);
        for field in parts.fields() {
            match field? {
                (1, Value::Number(number)) => seconds = number.cast_signed(),
                (2, Value::Number(number)) => nanos = low(number).cast_signed(),
                _ => {}
            }
        }
        let (written, what) = match form {
            Form::Timestamp => (write_timestamp(seconds, nanos, self.out), "timestamp"),
            _ => (write_duration(seconds, nanos, self.out), "duration"),
        };
        let wrong = || Error::new(format!("the {what} of {seconds} seconds and {nanos} nanoseconds is out of range"));
        if written { Ok(()) } else { Err(wrong()) }
    }

    fn field_mask(&mut self, parts: &Parts<'_>) -> Result<(), Error> {
        let mut text = String::new();
        for (index, field) in parts.fields().filter(|field| !matches!(field, Ok((2.., _)))).enumerate() {
            let path = std::str::from_utf8(bytes(Kind::String, field?.1)?);
            let path = path.map_err(|_| Error::new("a path is not valid UTF-8"))?;
            if index > 0 {
                text.push(',');
            }
            if !write_path(path, &mut text) {
                return Err(Error::new(format!("the path \"{}\" has no form in camel case", shown(path))));
            }
        }
        write_quoted(&text, self.out);
        Ok(())
    }
}

#[cold]
fn inside(error: Error, field: &Field, position: Position) -> Error {
    if position.is_named { error.inside(field.name()) } else { error }
}

fn is_number(kind: Kind) -> bool {
    !matches!(kind, Kind::String | Kind::Bytes | Kind::Message(_) | Kind::Group(_))
}

#[inline]
fn is_default(kind: Kind, value: Value<'_>) -> bool {
    match value {
        Value::Number(number) if kind.is_half() => low(number) == 0,
        Value::Number(number) | Value::Eight(number) => number == 0,
        Value::Four(number) => number == 0,
        Value::Bytes(bytes) => bytes.is_empty() && !is_number(kind),
        Value::Group(_) => false,
    }
}

fn bytes(kind: Kind, value: Value<'_>) -> Result<&[u8], Error> {
    match (kind, value) {
        (Kind::Group(_), Value::Group(fields)) => Ok(fields),
        (Kind::Group(_), _) => Err(Error::wrong_type(wanted(kind))),
        (_, Value::Bytes(bytes)) => Ok(bytes),
        _ => Err(Error::wrong_type(wanted(kind))),
    }
}

/// A map key for comparison.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Key<'a> {
    Number(u64),
    Text(&'a [u8]),
}

impl<'a> Key<'a> {
    fn of(kind: Kind, entry: &'a [u8]) -> Result<Self, Error> {
        let mut key = if kind == Kind::String { Self::Text(&[]) } else { Self::Number(0) };
        for field in Fields::of(entry) {
            if let (1, value) = field? {
                key = match (value, kind) {
                    (Value::Bytes(text), Kind::String) => Self::Text(text),
                    (Value::Eight(number), Kind::Fixed64 | Kind::Sfixed64)
                    | (Value::Number(number), Kind::Int64 | Kind::Uint64 | Kind::Sint64) => Self::Number(number),
                    (Value::Four(number), Kind::Fixed32 | Kind::Sfixed32) => Self::Number(u64::from(number)),
                    (Value::Number(number), Kind::Bool) => Self::Number(u64::from(number != 0)),
                    (Value::Number(number), _) if kind.is_half() => Self::Number(u64::from(low(number))),
                    _ => return Err(Error::wrong_type(wanted(kind))),
                };
            }
        }
        Ok(key)
    }

    fn value(self, kind: Kind) -> Value<'a> {
        match (self, kind) {
            (Self::Text(text), _) => Value::Bytes(text),
            (Self::Number(number), Kind::Fixed64 | Kind::Sfixed64) => Value::Eight(number),
            (Self::Number(number), Kind::Fixed32 | Kind::Sfixed32) => Value::Four(low(number)),
            (Self::Number(number), _) => Value::Number(number),
        }
    }
}

/// Payloads that make up one message: protobuf merges repeated occurrences.
struct Parts<'a> {
    first: &'a [u8],
    more: Vec<&'a [u8]>,
}

impl<'a> Parts<'a> {
    #[inline]
    fn one(first: &'a [u8]) -> Self {
        Self { first, more: Vec::new() }
    }

    fn of(mut payloads: impl Iterator<Item = Result<&'a [u8], Error>>) -> Result<Self, Error> {
        let first = payloads.next().transpose()?.unwrap_or_default();
        Ok(Self { first, more: payloads.collect::<Result<_, _>>()? })
    }

    #[inline]
    fn is_one(&self) -> bool {
        self.more.is_empty()
    }

    fn fields(&self) -> impl Iterator<Item = Result<(u64, Value<'a>), Error>> {
        let payloads = std::iter::once(&self.first).chain(&self.more);
        payloads.flat_map(|payload| Fields::of(payload)).map(|field| field.map_err(Error::from))
    }
}

/// Consecutive values of one field.
struct Run<'f, 'a> {
    fields: &'f mut Fields<'a>,
    number: u64,
    first: Option<Value<'a>>,
}

impl<'f, 'a> Run<'f, 'a> {
    fn new(fields: &'f mut Fields<'a>, number: u64, first: Value<'a>) -> Self {
        Self { fields, number, first: Some(first) }
    }
}

impl<'a> Iterator for Run<'_, 'a> {
    type Item = Result<Value<'a>, Error>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if let Some(first) = self.first.take() {
            return Some(Ok(first));
        }
        let mut ahead = self.fields.clone();
        match ahead.next()? {
            Ok((number, value)) if number == self.number => {
                *self.fields = ahead;
                Some(Ok(value))
            }
            // The message's own loop reads the next field, or its error, again.
            _ => None,
        }
    }
}

/// True if the fields are in ascending order, only lists and maps repeat, and each oneof has one member.
#[inline]
fn is_ascending(message: &Message, wire: &[u8]) -> Result<bool, Error> {
    let (mut last, mut oneofs) = (0, 0u64);
    let mut known = message.fields.iter();
    let mut next = known.next();
    for found in Fields::of(wire) {
        let (number, _) = found?;
        while let Some(field) = next
            && u64::from(field.number) < number
        {
            next = known.next();
        }
        let field = next.filter(|field| u64::from(field.number) == number);
        if number <= last && (number < last || field.is_some_and(Field::is_single)) {
            return Ok(false);
        }
        if let Some(index) = field.and_then(|field| field.oneof) {
            // A shared bit only sends the message down the gathering path.
            let bit = 1 << (index % 64);
            if oneofs & bit != 0 {
                return Ok(false);
            }
            oneofs |= bit;
        }
        last = number;
    }
    Ok(true)
}

/// Indexes and values of the fields, sorted by index, without oneof members that a later member replaces.
fn gather<'a>(message: &Message, parts: &Parts<'a>) -> Result<Vec<(usize, Value<'a>)>, Error> {
    let mut found = Vec::new();
    // The last member of each oneof, and the index in `found` from which its values count.
    let mut chosen = vec![(usize::MAX, 0); message.oneofs.len()];
    for field in parts.fields() {
        let (number, value) = field?;
        let Ok(index) = message.fields.binary_search_by_key(&number, |field| u64::from(field.number)) else {
            continue;
        };
        if let Some(oneof) = message.fields[index].oneof
            && chosen[usize::from(oneof)].0 != index
        {
            chosen[usize::from(oneof)] = (index, found.len());
        }
        found.push((index, value));
    }
    let mut position = 0;
    found.retain(|(index, _)| {
        let counts = message.fields[*index].oneof.is_none_or(|oneof| {
            let (member, from) = chosen[usize::from(oneof)];
            member == *index && position >= from
        });
        position += 1;
        counts
    });
    found.sort_by_key(|(index, _)| *index);
    Ok(found)
}
