//! Converts JSON to wire bytes, appended as the text is read.

use std::borrow::Cow;

use super::DEPTH_MAX;
use super::error::{Error, shown};
use super::known::{base64_len, parse_duration, parse_timestamp, read_base64, read_path};
use super::number::{float_word, parse_float, parse_whole, varint_of, wanted};
use super::scan::Scanner;
use super::schema::{Field, Form, Kind, Message, MessageId, Schema, Shape};
use crate::wire::{Value, put_delimited, put_number, put_varint, varint_len};

const VARINT: u64 = 0;
const EIGHT_BYTES: u64 = 1;
const LENGTH: u64 = 2;
const OPEN: u64 = 3;
const CLOSE: u64 = 4;
const FOUR_BYTES: u64 = 5;

impl Schema {
    /// Appends the message that a JSON text encodes; on error `out` is unchanged.
    pub fn read(&self, id: MessageId, json: &[u8], out: &mut Vec<u8>) -> Result<(), Error> {
        let text = std::str::from_utf8(json)
            .map_err(|error| Error::new(format!("the JSON is not valid UTF-8 at byte {}", error.valid_up_to())))?;
        let start = out.len();
        out.reserve(json.len());
        let mut reader = Reader {
            schema: self,
            scan: Scanner::new(text),
            out,
            lengths: Lengths::default(),
            keys: Vec::new(),
            lookahead: json.len().saturating_mul(LOOKAHEAD_FACTOR),
        };
        match reader.message(id, DEPTH_MAX + 1).and_then(|()| reader.scan.end()) {
            Ok(()) => {
                let Reader { lengths, out, .. } = reader;
                lengths.finish(out);
                Ok(())
            }
            Err(error) => {
                reader.out.truncate(start);
                Err(error)
            }
        }
    }
}

/// Limit of reading ahead for `@type` members that do not come first, as a multiple of the text's length.
const LOOKAHEAD_FACTOR: usize = 4;

struct Reader<'s, 'a, 'o> {
    schema: &'s Schema,
    scan: Scanner<'a>,
    out: &'o mut Vec<u8>,
    lengths: Lengths,
    /// Ranges in `out` of the keys of open maps.
    keys: Vec<(usize, usize)>,
    /// Bytes that may still be read ahead.
    lookahead: usize,
}

impl<'s> Reader<'s, '_, '_> {
    fn message(&mut self, id: MessageId, depth: usize) -> Result<(), Error> {
        let schema = self.schema;
        let message = schema.at(id);
        let depth = depth.checked_sub(1).ok_or_else(Error::too_deep)?;
        match message.form {
            Form::Object => self.object(message, depth),
            Form::Bare => self.field(&message.fields[0], depth),
            Form::Value => {
                // In field order: null, number, string, bool, struct, list.
                let index = match self.scan.peek() {
                    Some(b'n') => 0,
                    Some(b'"') => 2,
                    Some(b't' | b'f') => 3,
                    Some(b'{') => 4,
                    Some(b'[') => 5,
                    _ => 1,
                };
                self.field(&message.fields[index], depth)
            }
            Form::Any => self.any(depth),
            Form::Timestamp => {
                self.time(parse_timestamp, "a time such as \"2001-02-03T04:05:06.789Z\", from year 1 to 9999")
            }
            Form::Duration => self.time(parse_duration, "a duration such as \"1.5s\", of 315576000000 s at most"),
            Form::FieldMask => self.field_mask(),
        }
    }

    fn object(&mut self, message: &'s Message, depth: usize) -> Result<(), Error> {
        self.scan.expect(b'{', "an object")?;
        if self.scan.take(b'}') {
            return Ok(());
        }
        let mut seen = Seen::new(message.fields.len() + message.oneofs.len());
        let mut next = 0;
        loop {
            match self.name(message, next)? {
                Some(index) => {
                    let read = self.member(message, index, &mut seen, depth);
                    read.map_err(|error| error.inside(message.fields[index].name()))?;
                    next = index + 1;
                }
                None => self.scan.skip()?,
            }
            if !self.scan.has_next(b'}')? {
                return Ok(());
            }
        }
    }

    /// Field of the next member's name. Clients mostly send fields in order, so `next` is tried first.
    #[inline]
    fn name(&mut self, message: &Message, next: usize) -> Result<Option<usize>, Error> {
        self.scan.peek();
        if let Some(field) = message.fields.get(next)
            && self.scan.take_exact(field.quoted())
        {
            self.scan.expect(b':', "`:`")?;
            return Ok(Some(next));
        }
        Ok(message.named(&self.scan.key()?.decode()?))
    }

    #[inline]
    fn member(&mut self, message: &'s Message, index: usize, seen: &mut Seen, depth: usize) -> Result<(), Error> {
        let field = &message.fields[index];
        if !seen.insert(index) {
            return Err(Error::new("the JSON has this member twice"));
        }
        if self.scan.peek() == Some(b'n') && !field.takes_null && self.scan.take_exact("null") {
            return Ok(());
        }
        if let Some(oneof) = field.oneof.map(usize::from)
            && !seen.insert(message.fields.len() + oneof)
        {
            let name = &message.oneofs[oneof];
            return Err(Error::new(format!("the JSON has another member of the oneof `{name}` as well")));
        }
        self.field(field, depth)
    }

    #[inline]
    fn field(&mut self, field: &'s Field, depth: usize) -> Result<(), Error> {
        match field.shape {
            Shape::Single { explicit } => {
                self.single(field, explicit, depth)?;
                Ok(())
            }
            Shape::List { packed } => self.list(field, packed, depth),
            Shape::Map(key) => self.map(field, key, depth),
        }
    }

    /// Appends a field with one value; false if the value is an unknown enum name.
    #[inline]
    fn single(&mut self, field: &Field, explicit: bool, depth: usize) -> Result<bool, Error> {
        match field.kind {
            Kind::Message(id) => {
                self.tag(field.number, LENGTH);
                let open = self.lengths.open(self.out);
                self.message(id, depth)?;
                self.lengths.close(&open, self.out);
            }
            Kind::Group(id) => {
                self.tag(field.number, OPEN);
                self.message(id, depth)?;
                self.tag(field.number, CLOSE);
            }
            Kind::String => {
                let text = string(&mut self.scan, "a string")?;
                if explicit || !text.is_empty() {
                    self.put(field.number, Value::Bytes(text.as_bytes()));
                }
            }
            Kind::Bytes => self.bytes(field.number, explicit)?,
            kind => match scalar(self.schema, kind, &mut self.scan)? {
                Some(Value::Number(0) | Value::Eight(0) | Value::Four(0)) if !explicit => {}
                Some(value) => self.put(field.number, value),
                None => return Ok(false),
            },
        }
        Ok(true)
    }

    fn bytes(&mut self, number: u32, explicit: bool) -> Result<(), Error> {
        let mut at = self.scan;
        let text = string(&mut self.scan, wanted(Kind::Bytes))?;
        let len = base64_len(&text);
        if len == 0 && !explicit && text.is_empty() {
            return Ok(());
        }
        self.tag(number, LENGTH);
        put_varint(len as u64, self.out);
        let start = self.out.len();
        if read_base64(&text, self.out) && self.out.len() - start == len {
            return Ok(());
        }
        Err(at.expected(wanted(Kind::Bytes)))
    }

    fn list(&mut self, field: &Field, packed: bool, depth: usize) -> Result<(), Error> {
        self.scan.expect(b'[', "an array")?;
        if self.scan.take(b']') {
            return Ok(());
        }
        let start = self.out.len();
        let block = packed.then(|| {
            self.tag(field.number, LENGTH);
            self.lengths.open(self.out)
        });
        let first = self.out.len();
        for index in 0.. {
            let read = match block {
                Some(_) => scalar(self.schema, field.kind, &mut self.scan).map(|value| {
                    if let Some(value) = value {
                        self.put_value(value);
                    }
                }),
                None => self.single(field, true, depth).map(|_| ()),
            };
            read.map_err(|error| error.inside_element(index))?;
            if !self.scan.has_next(b']')? {
                break;
            }
        }
        if let Some(block) = block {
            if self.out.len() == first {
                self.out.truncate(start);
            } else {
                self.lengths.close(&block, self.out);
            }
        }
        Ok(())
    }

    fn map(&mut self, field: &Field, key: Kind, depth: usize) -> Result<(), Error> {
        self.scan.expect(b'{', "an object")?;
        if self.scan.take(b'}') {
            return Ok(());
        }
        let Kind::Message(entry) = field.kind else { return Ok(()) };
        let depth = depth.checked_sub(1).ok_or_else(Error::too_deep)?;
        let schema = self.schema;
        let value = &schema.at(entry).fields[0];
        let first_key = self.keys.len();
        loop {
            let name = self.scan.key()?.decode()?;
            let start = self.out.len();
            self.tag(field.number, LENGTH);
            let open = self.lengths.open(self.out);
            let key_start = self.out.len();
            match map_key(key, &name)? {
                Value::Number(0) | Value::Eight(0) | Value::Four(0) | Value::Bytes([]) => {}
                key => self.put(1, key),
            }
            self.keys.push((key_start, self.out.len()));
            let explicit = value.shape == Shape::Single { explicit: true };
            if self.single(value, explicit, depth).map_err(|error| error.inside_entry(&name))? {
                self.lengths.close(&open, self.out);
            } else {
                self.out.truncate(start);
                self.keys.pop();
            }
            if !self.scan.has_next(b'}')? {
                return self.check_keys(first_key);
            }
        }
    }

    /// Checks that the keys of the innermost map are distinct.
    fn check_keys(&mut self, first: usize) -> Result<(), Error> {
        let out = &self.out;
        let keys = &mut self.keys[first..];
        keys.sort_unstable_by_key(|(start, end)| &out[*start..*end]);
        let twice = keys.windows(2).find(|pair| out[pair[0].0..pair[0].1] == out[pair[1].0..pair[1].1]);
        let wrong = twice.is_some();
        self.keys.truncate(first);
        if wrong { Err(Error::new("the JSON has a key of this map twice")) } else { Ok(()) }
    }

    fn any(&mut self, depth: usize) -> Result<(), Error> {
        self.scan.peek();
        let start = self.scan;
        let Some(url) = self.type_url()? else { return Ok(()) };
        let schema = self.schema;
        let (id, message) = schema.resolve(&url)?;
        self.put(1, Value::Bytes(url.as_bytes()));
        self.scan = start;
        let before = self.out.len();
        self.tag(2, LENGTH);
        let open = self.lengths.open(self.out);
        let first = self.out.len();
        if message.is_well_known {
            self.any_value(id, depth)?;
        } else {
            self.object(message, depth.checked_sub(1).ok_or_else(Error::too_deep)?)?;
        }
        if self.out.len() == first {
            self.out.truncate(before);
        } else {
            self.lengths.close(&open, self.out);
        }
        Ok(())
    }

    /// Reads ahead for the member `@type`; None if the object is empty.
    fn type_url(&mut self) -> Result<Option<String>, Error> {
        self.scan.expect(b'{', "an object")?;
        if self.scan.take(b'}') {
            return Ok(None);
        }
        loop {
            if self.scan.key()?.decode()? == "@type" {
                return Ok(Some(string(&mut self.scan, "a type URL in quotes")?.into_owned()));
            }
            let before = self.scan.at();
            self.scan.skip()?;
            let left = self.lookahead.checked_sub(self.scan.at() - before);
            let too_many = || Error::new("too many nested members come before `@type`: put `@type` first");
            self.lookahead = left.ok_or_else(too_many)?;
            if !self.scan.has_next(b'}')? {
                return Err(Error::new("the member `@type` is missing"));
            }
        }
    }

    /// Reads the member `value` of an `Any` whose message has a special JSON form.
    fn any_value(&mut self, id: MessageId, depth: usize) -> Result<(), Error> {
        let mut seen = false;
        self.scan.expect(b'{', "an object")?;
        loop {
            if self.scan.key()?.decode()? != "value" {
                self.scan.skip()?;
            } else if seen {
                return Err(Error::new("the JSON has this member twice").inside("value"));
            } else {
                seen = true;
                self.message(id, depth).map_err(|error| error.inside("value"))?;
            }
            if !self.scan.has_next(b'}')? {
                break;
            }
        }
        // An `Empty` loses nothing without it.
        let complete = seen || self.schema.at(id).form == Form::Object;
        if complete { Ok(()) } else { Err(Error::new("the member `value` is missing")) }
    }

    fn time(&mut self, parse: fn(&str) -> Option<(i64, i32)>, wanted: &str) -> Result<(), Error> {
        let mut at = self.scan;
        let text = string(&mut self.scan, wanted)?;
        let (seconds, nanos) = parse(&text).ok_or_else(|| at.expected(wanted))?;
        put_number(1, seconds.cast_unsigned(), self.out);
        put_number(2, varint_of(nanos), self.out);
        Ok(())
    }

    fn field_mask(&mut self) -> Result<(), Error> {
        let text = string(&mut self.scan, "field paths in a string, such as `title,author.name`")?;
        for path in text.split(',').filter(|path| !path.is_empty()) {
            let wrong = || Error::new(format!("the path \"{}\" must be in camel case, without `_`", shown(path)));
            put_delimited(1, read_path(path).ok_or_else(wrong)?.as_bytes(), self.out);
        }
        Ok(())
    }

    #[inline]
    fn tag(&mut self, number: u32, wire_type: u64) {
        put_varint(u64::from(number) << 3 | wire_type, self.out);
    }

    /// Appends a field that is not a message.
    #[inline]
    fn put(&mut self, number: u32, value: Value<'_>) {
        let wire_type = match value {
            Value::Number(_) => VARINT,
            Value::Eight(_) => EIGHT_BYTES,
            Value::Bytes(_) | Value::Group(_) => LENGTH,
            Value::Four(_) => FOUR_BYTES,
        };
        self.tag(number, wire_type);
        self.put_value(value);
    }

    #[inline]
    fn put_value(&mut self, value: Value<'_>) {
        match value {
            Value::Number(number) => put_varint(number, self.out),
            Value::Eight(number) => self.out.extend_from_slice(&number.to_le_bytes()),
            Value::Four(number) => self.out.extend_from_slice(&number.to_le_bytes()),
            Value::Bytes(bytes) | Value::Group(bytes) => {
                put_varint(bytes.len() as u64, self.out);
                self.out.extend_from_slice(bytes);
            }
        }
    }
}

/// A number, a boolean or an enum value; None for an unknown enum name.
#[inline]
fn scalar(schema: &Schema, kind: Kind, scan: &mut Scanner<'_>) -> Result<Option<Value<'static>>, Error> {
    let next = scan.peek();
    let start = *scan;
    let value = match kind {
        Kind::Bool if scan.take_exact("true") => Some(Value::Number(1)),
        Kind::Bool if scan.take_exact("false") => Some(Value::Number(0)),
        Kind::Null if scan.take_exact("null") || scan.take_exact("\"NULL_VALUE\"") || scan.take_exact("0") => {
            Some(Value::Number(0))
        }
        Kind::Bool | Kind::Null => None,
        Kind::Enum(id) if next == Some(b'"') => {
            let number = schema.enumeration(id).number(&scan.string()?.decode()?);
            return Ok(number.map(|number| Value::Number(varint_of(number))));
        }
        _ if next == Some(b'"') => quoted(kind, &scan.string()?.decode()?),
        _ => unquoted(kind, scan.number(wanted(kind))?),
    };
    if value.is_none() {
        *scan = start;
        return Err(scan.expected(wanted(kind)));
    }
    Ok(value)
}

#[inline]
fn unquoted(kind: Kind, text: &str) -> Option<Value<'static>> {
    if matches!(kind, Kind::Float | Kind::Double) { parse_float(kind, text) } else { parse_whole(kind, text) }
}

/// A quoted number, without white space.
fn quoted(kind: Kind, text: &str) -> Option<Value<'static>> {
    if matches!(kind, Kind::Float | Kind::Double)
        && let Some(value) = float_word(kind, text)
    {
        return Some(value);
    }
    let found = Scanner::new(text).number("").ok()?;
    if found.len() == text.len() { unquoted(kind, found) } else { None }
}

/// A map key, which JSON always quotes.
fn map_key(kind: Kind, text: &str) -> Result<Value<'_>, Error> {
    let value = match kind {
        Kind::String => Some(Value::Bytes(text.as_bytes())),
        Kind::Bool if text == "true" => Some(Value::Number(1)),
        Kind::Bool if text == "false" => Some(Value::Number(0)),
        Kind::Bool => None,
        _ => quoted(kind, text),
    };
    value.ok_or_else(|| Error::new(format!("a key must be {}, in quotes; found \"{}\"", wanted(kind), shown(text))))
}

#[inline]
fn string<'a>(scan: &mut Scanner<'a>, wanted: &str) -> Result<Cow<'a, str>, Error> {
    if scan.peek() != Some(b'"') {
        return Err(scan.expected(wanted));
    }
    scan.string()?.decode()
}

/// A set of small numbers.
struct Seen {
    first: u64,
    /// Allocated only for messages of more than 64 members and oneofs.
    more: Vec<u64>,
}

impl Seen {
    #[inline]
    fn new(len: usize) -> Self {
        Self { first: 0, more: vec![0; len.saturating_sub(64).div_ceil(64)] }
    }

    /// Inserts an index; false if it was present.
    #[inline]
    fn insert(&mut self, index: usize) -> bool {
        let word = if index < 64 { &mut self.first } else { &mut self.more[index / 64 - 1] };
        let bit = 1 << (index % 64);
        let is_new = *word & bit == 0;
        *word |= bit;
        is_new
    }
}

/// Length prefixes. Each gets one byte; longer ones are widened in one pass at the end, so deep nesting moves no byte
/// twice. These are the ones that need more than one byte.
#[derive(Debug, Default)]
struct Lengths {
    /// Position and value of each.
    wide: Vec<(usize, u64)>,
    /// Bytes that all of them still lack.
    missing: usize,
}

/// A length prefix that is not filled in yet.
#[derive(Debug)]
struct Open {
    at: usize,
    missing_before: usize,
}

impl Lengths {
    #[inline]
    fn open(&mut self, out: &mut Vec<u8>) -> Open {
        let at = out.len();
        out.push(0);
        Open { at, missing_before: self.missing }
    }

    /// Fills in the length of everything appended since `open`.
    #[inline]
    fn close(&mut self, open: &Open, out: &mut [u8]) {
        let length = out.len() - open.at - 1 + self.missing - open.missing_before;
        match u8::try_from(length) {
            Ok(short) if short < 0x80 => out[open.at] = short,
            _ => {
                self.wide.push((open.at, length as u64));
                self.missing += varint_len(length as u64) - 1;
            }
        }
    }

    /// Widens the long prefixes. `out` must still hold everything that was closed.
    #[inline]
    fn finish(self, out: &mut Vec<u8>) {
        if self.missing > 0 {
            self.widen(out);
        }
    }

    fn widen(mut self, out: &mut Vec<u8>) {
        self.wide.sort_unstable();
        let mut from = out.len();
        let mut to = from + self.missing;
        out.resize(to, 0);
        let mut length = Vec::with_capacity(10);
        for (at, value) in self.wide.into_iter().rev() {
            let moved = from - (at + 1);
            out.copy_within(at + 1..from, to - moved);
            length.clear();
            put_varint(value, &mut length);
            to -= moved + length.len();
            out[to..to + length.len()].copy_from_slice(&length);
            from = at;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lengths_inside_long_lengths_count_each_other() {
        let (mut lengths, mut out) = (Lengths::default(), vec![7]);
        let outer = lengths.open(&mut out);
        let inner = lengths.open(&mut out);
        out.extend([1; 200]);
        lengths.close(&inner, &mut out);
        let short = lengths.open(&mut out);
        out.extend([2; 127]);
        lengths.close(&short, &mut out);
        lengths.close(&outer, &mut out);
        lengths.finish(&mut out);
        // 330 = 2 + 200 + 1 + 127
        let wanted = [&[7, 0xca, 2, 0xc8, 1][..], &[1; 200], &[127], &[2; 127]].concat();
        assert_eq!(out, wanted);
    }
}
