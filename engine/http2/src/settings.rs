//! SETTINGS (RFC 9113 section 6.5): the parameters, their bounds, and their frame.

use crate::error::ConnectionError;
use crate::frame::{FRAME_BYTES_DEFAULT, FRAME_BYTES_MAX, WINDOW_MAX, flag, kind, put};

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
    use crate::error::ErrorCode;

    #[test]
    fn what_is_written_is_what_is_read() {
        let told = Settings {
            header_table_bytes: 0,
            push: false,
            concurrent_streams_max: 7,
            stream_window_bytes: 1,
            frame_bytes_max: 20_000,
            header_list_bytes_max: 9,
        };
        let mut out = Vec::new();
        told.write(&mut out);
        let mut read = Settings::default();
        read.apply(&out[9..]).unwrap();
        assert_eq!(read, told);
    }

    #[test]
    fn values_out_of_bounds_name_the_right_error() {
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
