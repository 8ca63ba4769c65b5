//! Fields of a message on the wire: in order, or out of order and in several pieces.

use super::error::Error;
use super::schema::{Field, Message};
use crate::wire::{Fields, Value};

/// Payloads that make up one message: protobuf merges repeated occurrences.
pub(super) struct Parts<'a> {
    pub(super) first: &'a [u8],
    more: Vec<&'a [u8]>,
}

impl<'a> Parts<'a> {
    #[inline]
    pub(super) fn one(first: &'a [u8]) -> Self {
        Self { first, more: Vec::new() }
    }

    pub(super) fn of(mut payloads: impl Iterator<Item = Result<&'a [u8], Error>>) -> Result<Self, Error> {
        let first = payloads.next().transpose()?.unwrap_or_default();
        Ok(Self { first, more: payloads.collect::<Result<_, _>>()? })
    }

    #[inline]
    pub(super) fn is_one(&self) -> bool {
        self.more.is_empty()
    }

    pub(super) fn fields(&self) -> impl Iterator<Item = Result<(u64, Value<'a>), Error>> {
        let payloads = std::iter::once(&self.first).chain(&self.more);
        payloads.flat_map(|payload| Fields::of(payload)).map(|field| field.map_err(Error::from))
    }
}

/// Consecutive values of one field.
pub(super) struct Run<'f, 'a> {
    fields: &'f mut Fields<'a>,
    number: u64,
    first: Option<Value<'a>>,
}

impl<'f, 'a> Run<'f, 'a> {
    pub(super) fn new(fields: &'f mut Fields<'a>, number: u64, first: Value<'a>) -> Self {
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
pub(super) fn is_ascending(message: &Message, wire: &[u8]) -> Result<bool, Error> {
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
pub(super) fn gather<'a>(message: &Message, parts: &Parts<'a>) -> Result<Vec<(usize, Value<'a>)>, Error> {
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
    let mut place = 0;
    found.retain(|(index, _)| {
        let counts = message.fields[*index].oneof.is_none_or(|oneof| {
            let (member, from) = chosen[usize::from(oneof)];
            member == *index && place >= from
        });
        place += 1;
        counts
    });
    found.sort_by_key(|(index, _)| *index);
    Ok(found)
}
