//! Frames (RFC 9113 sections 4.1 and 6): the nine-byte header, types, flags, padding, and SETTINGS (section 6.5) with the
//! bounds of its parameters.

use crate::error::{ConnectionError, ErrorCode};

/// Client connection preface (RFC 9113 section 3.4).
pub const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Length of a frame header.
pub const HEAD_BYTES: usize = 9;

/// Largest frame payload every endpoint must accept, and the default limit.
pub const FRAME_BYTES_DEFAULT: u32 = 16_384;

/// Largest value of SETTINGS_MAX_FRAME_SIZE.
pub const FRAME_BYTES_MAX: u32 = (1 << 24) - 1;

/// Largest flow-control window (RFC 9113 section 6.9.1).
pub const WINDOW_MAX: u32 = (1 << 31) - 1;

pub(crate) mod kind {
    pub(crate) const DATA: u8 = 0;
    pub(crate) const HEADERS: u8 = 1;
    pub(crate) const PRIORITY: u8 = 2;
    pub(crate) const RST_STREAM: u8 = 3;
    pub(crate) const SETTINGS: u8 = 4;
    pub(crate) const PUSH_PROMISE: u8 = 5;
    pub(crate) const PING: u8 = 6;
    pub(crate) const GOAWAY: u8 = 7;
    pub(crate) const WINDOW_UPDATE: u8 = 8;
    pub(crate) const CONTINUATION: u8 = 9;
}

pub(crate) mod flag {
    pub(crate) const END_STREAM: u8 = 0x1;
    pub(crate) const ACK: u8 = 0x1;
    pub(crate) const END_HEADERS: u8 = 0x4;
    pub(crate) const PADDED: u8 = 0x8;
    pub(crate) const PRIORITY: u8 = 0x20;
}

/// A frame header (RFC 9113 section 4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) length: u32,
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
}

impl Head {
    #[inline]
    pub(crate) fn parse(bytes: &[u8; HEAD_BYTES]) -> Self {
        Self {
            length: u32::from_be_bytes([0, bytes[0], bytes[1], bytes[2]]),
            kind: bytes[3],
            flags: bytes[4],
            stream: u32::from_be_bytes([bytes[5], bytes[6], bytes[7], bytes[8]]) & WINDOW_MAX,
        }
    }

    #[inline]
    pub(crate) fn write(self) -> [u8; HEAD_BYTES] {
        let length = self.length.to_be_bytes();
        let stream = self.stream.to_be_bytes();
        [length[1], length[2], length[3], self.kind, self.flags, stream[0], stream[1], stream[2], stream[3]]
    }

    #[inline]
    pub(crate) fn has(self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

/// Writes a frame with its payload.
#[inline]
pub(crate) fn put(out: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    let length = u32::try_from(payload.len()).unwrap_or(u32::MAX);
    debug_assert!(length <= FRAME_BYTES_MAX, "callers cut payloads to the peer's frame size");
    out.reserve(HEAD_BYTES + payload.len());
    out.extend_from_slice(&Head { length, kind, flags, stream }.write());
    out.extend_from_slice(payload);
}

pub(crate) fn put_reset(out: &mut Vec<u8>, stream: u32, code: ErrorCode) {
    put(out, kind::RST_STREAM, 0, stream, &code.0.to_be_bytes());
}

pub(crate) fn put_window_update(out: &mut Vec<u8>, stream: u32, increment: u32) {
    debug_assert!((1..=WINDOW_MAX).contains(&increment), "an increment of zero is an error at the peer");
    put(out, kind::WINDOW_UPDATE, 0, stream, &increment.to_be_bytes());
}

pub(crate) fn put_ping(out: &mut Vec<u8>, ack: bool, payload: [u8; 8]) {
    put(out, kind::PING, if ack { flag::ACK } else { 0 }, 0, &payload);
}

pub(crate) fn put_goaway(out: &mut Vec<u8>, last_stream: u32, code: ErrorCode, debug: &str) {
    let length = u32::try_from(8 + debug.len()).unwrap_or(8);
    out.extend_from_slice(&Head { length, kind: kind::GOAWAY, flags: 0, stream: 0 }.write());
    out.extend_from_slice(&last_stream.to_be_bytes());
    out.extend_from_slice(&code.0.to_be_bytes());
    out.extend_from_slice(debug.as_bytes());
}

/// Strips the padding that `head` announces (RFC 9113 section 6.1).
#[inline]
pub(crate) fn strip_padding(head: Head, payload: &[u8]) -> Result<&[u8], ConnectionError> {
    if !head.has(flag::PADDED) {
        return Ok(payload);
    }
    let Some((&pad, rest)) = payload.split_first() else {
        return Err(ConnectionError::size("a padded frame without a pad length"));
    };
    match rest.len().checked_sub(usize::from(pad)) {
        Some(length) => Ok(&rest[..length]),
        None => Err(ConnectionError::protocol("padding longer than the frame")),
    }
}

/// First four bytes as a number; the caller has checked the length.
#[inline]
pub(crate) fn word(payload: &[u8]) -> Option<u32> {
    payload.first_chunk::<4>().map(|bytes| u32::from_be_bytes(*bytes))
}

/// Initial window of every stream and of the connection until settings change it.
pub(crate) const WINDOW_DEFAULT: u32 = 65_535;
pub(crate) const TABLE_BYTES_DEFAULT: u32 = 4_096;

const HEADER_TABLE_SIZE: u16 = 1;
const ENABLE_PUSH: u16 = 2;
const MAX_CONCURRENT_STREAMS: u16 = 3;
const INITIAL_WINDOW_SIZE: u16 = 4;
const MAX_FRAME_SIZE: u16 = 5;
const MAX_HEADER_LIST_SIZE: u16 = 6;

/// One endpoint's parameters; the default holds until its first SETTINGS frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    pub(crate) header_table_bytes: u32,
    pub(crate) push: bool,
    pub(crate) concurrent_streams_max: u32,
    pub(crate) stream_window_bytes: u32,
    pub(crate) frame_bytes_max: u32,
    pub(crate) header_list_bytes_max: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            header_table_bytes: TABLE_BYTES_DEFAULT,
            push: true,
            concurrent_streams_max: u32::MAX,
            stream_window_bytes: WINDOW_DEFAULT,
            frame_bytes_max: FRAME_BYTES_DEFAULT,
            header_list_bytes_max: u32::MAX,
        }
    }
}

impl Settings {
    /// Applies a frame's parameters in order; unknown ones are ignored.
    pub(crate) fn apply(&mut self, payload: &[u8]) -> Result<(), ConnectionError> {
        let (entries, rest) = payload.as_chunks::<6>();
        if !rest.is_empty() {
            return Err(ConnectionError::size("SETTINGS length is no multiple of 6"));
        }
        for entry in entries {
            let value = u32::from_be_bytes([entry[2], entry[3], entry[4], entry[5]]);
            match u16::from_be_bytes([entry[0], entry[1]]) {
                HEADER_TABLE_SIZE => self.header_table_bytes = value,
                ENABLE_PUSH if value > 1 => {
                    return Err(ConnectionError::protocol("ENABLE_PUSH is neither 0 nor 1"));
                }
                ENABLE_PUSH => self.push = value == 1,
                MAX_CONCURRENT_STREAMS => self.concurrent_streams_max = value,
                INITIAL_WINDOW_SIZE if value > WINDOW_MAX => {
                    return Err(ConnectionError::flow("INITIAL_WINDOW_SIZE above 2^31-1"));
                }
                INITIAL_WINDOW_SIZE => self.stream_window_bytes = value,
                MAX_FRAME_SIZE if !(FRAME_BYTES_DEFAULT..=FRAME_BYTES_MAX).contains(&value) => {
                    return Err(ConnectionError::protocol("MAX_FRAME_SIZE out of bounds"));
                }
                MAX_FRAME_SIZE => self.frame_bytes_max = value,
                MAX_HEADER_LIST_SIZE => self.header_list_bytes_max = value,
                _ => {}
            }
        }
        Ok(())
    }

    /// Writes a SETTINGS frame with all values that differ from the protocol's defaults.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        let default = Self::default();
        let mut payload = [0; 36];
        let mut length = 0;
        let mut entry = |id: u16, value: u32, usual: u32| {
            if value != usual {
                payload[length..length + 2].copy_from_slice(&id.to_be_bytes());
                payload[length + 2..length + 6].copy_from_slice(&value.to_be_bytes());
                length += 6;
            }
        };
        entry(HEADER_TABLE_SIZE, self.header_table_bytes, default.header_table_bytes);
        entry(ENABLE_PUSH, u32::from(self.push), u32::from(default.push));
        entry(MAX_CONCURRENT_STREAMS, self.concurrent_streams_max, default.concurrent_streams_max);
        entry(INITIAL_WINDOW_SIZE, self.stream_window_bytes, default.stream_window_bytes);
        entry(MAX_FRAME_SIZE, self.frame_bytes_max, default.frame_bytes_max);
        entry(MAX_HEADER_LIST_SIZE, self.header_list_bytes_max, default.header_list_bytes_max);
        put(out, kind::SETTINGS, 0, 0, &payload[..length]);
    }

    pub(crate) fn write_ack(out: &mut Vec<u8>) {
        put(out, kind::SETTINGS, flag::ACK, 0, &[]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn head_survives_a_round_trip() {
        let head = Head { length: 0x01_02_03, kind: kind::DATA, flags: 9, stream: 0x7fff_fffe };
        assert_eq!(Head::parse(&head.write()), head);
    }

    #[test]
    fn reserved_bit_of_the_stream_is_ignored() {
        let bytes = [0, 0, 0, 0, 0, 0x80, 0, 0, 1];
        assert_eq!(Head::parse(&bytes).stream, 1);
    }

    #[test]
    fn padding_may_fill_the_frame_but_not_more() {
        let head = Head { length: 0, kind: kind::DATA, flags: flag::PADDED, stream: 1 };
        assert_eq!(strip_padding(head, &[2, 0, 0]).unwrap(), b"");
        assert_eq!(strip_padding(head, &[1, 7, 0]).unwrap(), [7]);
        assert_eq!(strip_padding(head, &[3, 0, 0]).unwrap_err().code, ErrorCode::PROTOCOL_ERROR);
        assert_eq!(strip_padding(head, &[]).unwrap_err().code, ErrorCode::FRAME_SIZE_ERROR);
    }

    #[test]
    fn settings_survive_a_round_trip() {
        let written = Settings {
            header_table_bytes: 0,
            push: false,
            concurrent_streams_max: 7,
            stream_window_bytes: 1,
            frame_bytes_max: 20_000,
            header_list_bytes_max: 9,
        };
        let mut out = Vec::new();
        written.write(&mut out);
        let mut read = Settings::default();
        read.apply(&out[9..]).unwrap();
        assert_eq!(read, written);
    }

    #[test]
    fn settings_out_of_bounds_name_the_right_error() {
        for (id, value, code) in [
            (2u16, 2u32, ErrorCode::PROTOCOL_ERROR),
            (4, 1 << 31, ErrorCode::FLOW_CONTROL_ERROR),
            (5, 16_383, ErrorCode::PROTOCOL_ERROR),
            (5, 1 << 24, ErrorCode::PROTOCOL_ERROR),
        ] {
            let payload = [&id.to_be_bytes()[..], &value.to_be_bytes()[..]].concat();
            assert_eq!(Settings::default().apply(&payload).unwrap_err().code, code);
        }
        assert_eq!(Settings::default().apply(&[0; 5]).unwrap_err().code, ErrorCode::FRAME_SIZE_ERROR);
    }
}
