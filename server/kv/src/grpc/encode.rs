//! Answers with values, encoded directly from the map: a small value into the answer's bytes, a large one as a part
//! without a copy. Must equal prost's encoding of the same message byte for byte.

use std::time::Duration;

use bytes::Bytes;
use quire_rpc::{
    Encoded,
    wire::{self, Fields, Value},
};

use crate::entry::Entry;

/// Values from this size on are sent without a copy.
pub(super) const APART_BYTES: usize = 8 << 10;

/// Clients' default limit of a message.
const USUAL_MESSAGE_BYTES: usize = 4 << 20;

/// True if a value of this size fits the default limit, with its key twice, a version and the overhead.
pub(super) fn fits_usual_message(key_bytes: usize, value_bytes: usize) -> bool {
    /// Two lengths and a tag for each field and for the entry, and two numbers of at most 10 bytes.
    const AROUND_BYTES: usize = 64;
    2 * key_bytes + value_bytes + AROUND_BYTES <= USUAL_MESSAGE_BYTES
}

/// Remaining time to live: `None` without an expiry, else at least a millisecond, because it has not expired.
fn time_to_live_ms(entry: &Entry, now_ms: impl FnOnce() -> u64) -> Option<u64> {
    entry.expires_at_ms.map(|at| at.get().saturating_sub(now_ms()).max(1))
}

/// An answer's bytes: a buffer, with large values in between.
#[derive(Debug, Default)]
pub(super) struct Parts {
    done: Vec<Bytes>,
    open: Vec<u8>,
}

impl Parts {
    fn put_bytes(&mut self, field: u8, bytes: &Bytes) {
        if bytes.len() < APART_BYTES {
            return wire::put_bytes(field, bytes, &mut self.open);
        }
        wire::put_length(field, bytes.len(), &mut self.open);
        self.done.push(std::mem::take(&mut self.open).into());
        self.done.push(bytes.clone());
    }

    pub(super) fn into_message(mut self) -> Encoded {
        self.done.push(self.open.into());
        self.done.into()
    }

    /// `RetrieveResponse`; `details_at_ms` as in [`retrieved`].
    pub(super) fn retrieved(&mut self, entry: &Entry, details_at_ms: Option<u64>) {
        self.put_bytes(1, entry.value.bytes());
        retrieved_details(entry, details_at_ms, &mut self.open);
    }

    /// One `Entry` of a `ScanResponse`.
    pub(super) fn scanned(&mut self, name: &[u8], entry: &Entry, with_value: bool, now_ms: impl FnOnce() -> u64) {
        let left = time_to_live_ms(entry, now_ms);
        let empty = Bytes::new();
        let left_out = with_value && !fits_usual_message(name.len(), entry.value.bytes().len());
        let value = if with_value && !left_out { entry.value.bytes() } else { &empty };
        let (left, left_out) = (left.unwrap_or(0), u64::from(left_out));
        let numbers_len = [entry.version.0, left, left_out].map(wire::number_len).iter().sum::<usize>();
        let length = wire::bytes_len(name.len()) + wire::bytes_len(value.len()) + numbers_len;
        wire::put_length(1, length, &mut self.open);
        wire::put_bytes(1, name, &mut self.open);
        self.put_bytes(2, value);
        wire::put_number(3, entry.version.0, &mut self.open);
        wire::put_number(4, left, &mut self.open);
        wire::put_number(5, left_out, &mut self.open);
    }

    /// The end of a `ScanResponse` that is not the last page.
    pub(super) fn next(&mut self, start_after: &[u8]) {
        wire::put_delimited(2, start_after, &mut self.open);
    }
}

fn retrieved_details(entry: &Entry, details_at_ms: Option<u64>, out: &mut Vec<u8>) {
    let Some(now_ms) = details_at_ms else { return };
    wire::put_number(2, entry.version.0, out);
    // Always at least 1 here, so the field is never omitted.
    wire::put_number(3, time_to_live_ms(entry, || now_ms).unwrap_or(0), out);
}

/// `RetrieveResponse` with a small value; with details as of this time, if requested.
#[inline]
pub(super) fn retrieved(entry: &Entry, details_at_ms: Option<u64>, out: &mut Vec<u8>) {
    wire::put_bytes(1, entry.value.bytes(), out);
    retrieved_details(entry, details_at_ms, out);
}

/// Key of a `RetrieveRequest`, and true if it requests details; `None` is left to the decoder.
#[inline]
pub(super) fn requested_key(message: &[u8]) -> Option<(&[u8], bool)> {
    let (mut key, mut want_details) = (&[][..], false);
    for field in Fields::of(message) {
        match field.ok()? {
            (1, Value::Bytes(bytes)) => key = bytes,
            (2, Value::Number(flag)) => want_details = flag != 0,
            (1 | 2, _) => return None,
            _ => {}
        }
    }
    Some((key, want_details))
}

/// Key and value of an `UpdateRequest` without other fields.
#[inline]
pub(super) fn requested_pair(message: &[u8]) -> Option<(&[u8], &[u8])> {
    let (mut key, mut value) = (&[][..], &[][..]);
    for field in Fields::of(message) {
        match field.ok()? {
            (1, Value::Bytes(bytes)) => key = bytes,
            (2, Value::Bytes(bytes)) => value = bytes,
            _ => return None,
        }
    }
    Some((key, value))
}

/// A message's time to live, where 0 is none.
pub(super) fn time_to_live(ms: u64) -> Option<Duration> {
    (ms > 0).then(|| Duration::from_millis(ms))
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;

    use proptest::prelude::*;
    use quire_rpc::prost::Message as _;

    use super::{super::wire, *};
    use crate::{
        entry::{Key, Value, Version},
        watch::{Event, EventKind},
    };

    fn entry() -> impl Strategy<Value = Entry> {
        let size = prop_oneof![Just(0usize), 1..300usize, APART_BYTES - 2..APART_BYTES + 2, Just(100_000)];
        (size, 1u64.., prop::option::of(1001u64..u64::MAX)).prop_map(|(size, version, at)| Entry {
            value: Value::copied(&vec![7; size]),
            version: Version(version),
            expires_at_ms: at.and_then(NonZeroU64::new),
        })
    }

    proptest! {
        #[test]
        fn answers_are_what_prost_makes_of_them(
            entries in prop::collection::vec((prop::collection::vec(any::<u8>(), 0..200), entry()), 0..5),
            with_values: bool,
            details: bool,
            next in prop::option::of(prop::collection::vec(any::<u8>(), 0..200)),
        ) {
            let details_at_ms = details.then_some(1000);
            let (mut parts, mut page) = (Parts::default(), wire::ScanResponse::default());
            for (name, entry) in &entries {
                let left = entry.expires_at_ms.map(|at| at.get() - 1000);
                let reply = wire::RetrieveResponse {
                    value: entry.value.bytes().clone(),
                    version: if details { entry.version.0 } else { 0 },
                    time_to_live_ms: left.filter(|_| details),
                };
                let (mut small, mut large) = (Vec::new(), Parts::default());
                retrieved(entry, details_at_ms, &mut small);
                large.retrieved(entry, details_at_ms);
                prop_assert_eq!(&small, &reply.encode_to_vec());
                prop_assert_eq!(large.into_message().into_bytes(), small);
                parts.scanned(name, entry, with_values, || 1000);
                page.entries.push(wire::Entry {
                    key: name.clone().into(),
                    value: if with_values { reply.value } else { Bytes::new() },
                    version: entry.version.0,
                    time_to_live_ms: left,
                    value_left_out: false,
                });
            }
            if let Some(next) = &next {
                parts.next(next);
                page.next_start_after = Some(next.clone().into());
            }
            prop_assert_eq!(parts.into_message().into_bytes(), page.encode_to_vec());
        }

        #[test]
        fn key_is_found_or_left_to_the_decoder(
            key in prop::collection::vec(any::<u8>(), 0..200),
            want_details: bool,
            noise in prop::collection::vec(prop_oneof![Just(0x0a), Just(0x10), 0..9u8, any::<u8>()], 0..30),
        ) {
            let message = wire::RetrieveRequest { key: key.clone().into(), want_details }.encode_to_vec();
            prop_assert_eq!(requested_key(&message), Some((&key[..], want_details)));
            if let (Some(found), Ok(request)) = (requested_key(&noise), wire::RetrieveRequest::decode(&noise[..])) {
                prop_assert_eq!((&request.key[..], request.want_details), found);
            }
        }

        #[test]
        fn pair_is_found_or_left_to_the_decoder(
            key in prop::collection::vec(any::<u8>(), 0..200),
            value in prop::collection::vec(any::<u8>(), 0..200),
            expected_version: Option<u64>,
            noise in prop::collection::vec(prop_oneof![Just(0x0a), Just(0x12), 0..9u8, any::<u8>()], 0..30),
        ) {
            let request = wire::UpdateRequest {
                key: key.clone().into(),
                value: value.clone().into(),
                expected_version,
                ..wire::UpdateRequest::default()
            };
            let is_plain = expected_version.is_none() && !key.is_empty();
            let message = request.encode_to_vec();
            if let Some(found) = requested_pair(&message) {
                prop_assert_eq!(found, (&key[..], &value[..]));
            } else {
                prop_assert!(!is_plain);
            }
            if let (Some(found), Ok(request)) = (requested_pair(&noise), wire::UpdateRequest::decode(&noise[..])) {
                prop_assert_eq!((&request.key[..], &request.value[..]), found);
                prop_assert_eq!((request.expected_version, request.time_to_live_ms), (None, 0));
            }
        }
    }

    #[test]
    fn a_page_or_an_event_with_the_largest_value_fits_the_usual_message_or_says_that_the_value_is_left_out() {
        for key_bytes in [0, 1, 16 << 10] {
            let most = USUAL_MESSAGE_BYTES - 64 - 2 * key_bytes;
            for (value_bytes, left_out) in [(most, false), (most + 1, true)] {
                let (name, value) = (Key::from(vec![1; key_bytes]), Value::copied(&vec![7; value_bytes]));
                let entry = Entry {
                    value: value.clone(),
                    version: Version(u64::MAX),
                    expires_at_ms: NonZeroU64::new(u64::MAX),
                };
                let mut parts = Parts::default();
                parts.scanned(&name, &entry, true, || 0);
                parts.next(&name);
                let page = parts.into_message().into_bytes();
                assert!(page.len() <= USUAL_MESSAGE_BYTES, "{} for a key of {key_bytes}", page.len());
                let page = wire::ScanResponse::decode(&page[..]).unwrap();
                assert_eq!((page.entries[0].value.is_empty(), page.entries[0].value_left_out), (left_out, left_out));
                let event =
                    Event { kind: EventKind::Put, key: name, value: value.bytes().clone(), version: Version(u64::MAX) };
                let event = wire::WatchEvent::from(event);
                assert!(event.encoded_len() <= USUAL_MESSAGE_BYTES, "{}", event.encoded_len());
                assert_eq!((event.value.is_empty(), event.value_left_out), (left_out, left_out));
            }
        }
    }
}
