//! Frame format: heads, numbers, and the bodies that are parsed as a whole; and the faults that end a connection, which are
//! sent to the other side in an ERROR frame.

use std::borrow::Cow;

use crate::counts::LeanEnd;
use crate::settings::TableLimits;

/// Supported version.
pub const VERSION: u64 = 1;

/// Beginning of a HELLO, so that a client of another protocol is detected by its first frame.
pub(super) const MAGIC: &[u8; 10] = b"quire-lean";

/// Length of the body, little-endian, and the kind.
pub(crate) const HEAD_BYTES: usize = 5;

/// Frame limit before versions are agreed on: a HELLO and a token are shorter.
pub(super) const FIRST_BYTES_MAX: usize = 256;

/// Maximum length of an ERROR's text; longer ones are truncated.
const ERROR_TEXT_BYTES_MAX: usize = 1024;

/// Kinds of frames.
pub(super) mod kind {
    pub(in super::super) const HELLO: u8 = 0x01;
    pub(in super::super) const TRY: u8 = 0x02;
    pub(in super::super) const DONE: u8 = 0x03;
    pub(in super::super) const TOKEN: u8 = 0x04;
    pub(in super::super) const WELCOME: u8 = 0x81;
    pub(in super::super) const VALUES: u8 = 0x82;
    pub(in super::super) const SUMS: u8 = 0x83;
    pub(in super::super) const ERROR: u8 = 0xff;
}

/// Takes a complete frame off the front; `None` if it is incomplete. A body over `bytes_max` is rejected by its head.
#[inline]
pub(super) fn take<'a>(input: &mut &'a [u8], bytes_max: usize) -> Result<Option<(u8, &'a [u8])>, Fault> {
    let Some((head, rest)) = input.split_first_chunk::<HEAD_BYTES>() else { return Ok(None) };
    let length = u32::from_le_bytes([head[0], head[1], head[2], head[3]]) as usize;
    if length > bytes_max {
        return Err(Fault::limit("the frame's length", length, "rpcgame.lean_frame_bytes", bytes_max));
    }
    let Some((body, rest)) = rest.split_at_checked(length) else { return Ok(None) };
    *input = rest;
    Ok(Some((head[4], body)))
}

/// True if these bytes may begin a server's first frame: WELCOME or ERROR.
pub(crate) fn may_be_first(bytes: &[u8]) -> bool {
    bytes.get(HEAD_BYTES - 1).is_none_or(|kind| matches!(*kind, kind::WELCOME | kind::ERROR))
}

/// Appends a frame whose body `write` appends.
#[inline]
pub(super) fn put(kind: u8, out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&[0, 0, 0, 0, kind]);
    write(out);
    seal(out, start, kind);
}

/// Fills in the head of the frame that begins at `start`.
#[inline]
pub(super) fn seal(out: &mut [u8], start: usize, kind: u8) {
    // Senders keep to the frame limit, which fits.
    let length = u32::try_from(out.len() - start - HEAD_BYTES).unwrap_or(u32::MAX);
    out[start..start + 4].copy_from_slice(&length.to_le_bytes());
    out[start + 4] = kind;
}

/// A name follows and is not kept.
pub(super) const LITERAL: u64 = 0;
/// A name follows and is added to the table.
pub(super) const LITERAL_KEPT: u64 = 1;
/// Lowest reference: a slot's number plus this.
pub(super) const REFERENCES: u64 = 2;

const CUT: &str = "the frame ends inside a field";

/// A varint: groups of seven bits, lowest first; the top bit marks that more follow.
#[inline]
pub(super) fn take_varint(input: &mut &[u8]) -> Result<u64, Fault> {
    if let Some((&byte, rest)) = input.split_first()
        && byte < 0x80
    {
        *input = rest;
        return Ok(byte.into());
    }
    take_long_varint(input)
}

fn take_long_varint(input: &mut &[u8]) -> Result<u64, Fault> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = input.split_first().ok_or_else(|| Fault::malformed(CUT))?;
        *input = rest;
        let bits = u64::from(byte & 0x7f);
        if shift == 63 && bits > 1 {
            break;
        }
        number |= bits << shift;
        if byte < 0x80 {
            return Ok(number);
        }
    }
    Err(Fault::malformed("a number has more than 64 bits"))
}

#[inline]
pub(super) fn put_varint(mut number: u64, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push(low_byte(number) | 0x80);
        number >>= 7;
    }
    out.push(low_byte(number));
}

const fn low_byte(number: u64) -> u8 {
    number.to_le_bytes()[0]
}

#[inline]
pub(super) fn take_eight(input: &mut &[u8]) -> Result<u64, Fault> {
    let (bytes, rest) = input.split_first_chunk().ok_or_else(|| Fault::malformed(CUT))?;
    *input = rest;
    Ok(u64::from_le_bytes(*bytes))
}

#[inline]
pub(super) fn take_bytes<'a>(input: &mut &'a [u8], length: usize) -> Result<&'a [u8], Fault> {
    let (bytes, rest) = input.split_at_checked(length).ok_or_else(|| Fault::malformed(CUT))?;
    *input = rest;
    Ok(bytes)
}

fn take_size(input: &mut &[u8]) -> Result<usize, Fault> {
    Ok(usize::try_from(take_varint(input)?).unwrap_or(usize::MAX))
}

fn put_size(size: usize, out: &mut Vec<u8>) {
    put_varint(u64::try_from(size).unwrap_or(u64::MAX), out);
}

fn nothing_more(rest: &[u8]) -> Result<(), Fault> {
    if rest.is_empty() { Ok(()) } else { Err(Fault::malformed("the frame goes on after its last field")) }
}

/// The client's requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// Lowest version supported by the client.
    pub version_min: u64,
    /// Highest version supported by the client.
    pub version_max: u64,
    /// Requested limit of unanswered messages.
    pub window_messages: u64,
    /// Requested limits of the table.
    pub table: TableLimits,
}

impl Hello {
    pub(super) fn read(mut body: &[u8]) -> Result<Self, Fault> {
        let magic = take_bytes(&mut body, MAGIC.len()).ok().filter(|magic| magic == MAGIC);
        magic.ok_or_else(|| Fault::malformed("the first frame is no HELLO of the lean protocol"))?;
        let hello = Self {
            version_min: take_varint(&mut body)?,
            version_max: take_varint(&mut body)?,
            window_messages: take_varint(&mut body)?,
            table: TableLimits { names_max: take_size(&mut body)?, bytes_max: take_size(&mut body)? },
        };
        // Later versions may add fields to a HELLO, and must still be answered.
        Ok(hello)
    }

    pub(super) fn put(&self, out: &mut Vec<u8>) {
        put(kind::HELLO, out, |out| {
            out.extend_from_slice(MAGIC);
            put_varint(self.version_min, out);
            put_varint(self.version_max, out);
            put_varint(self.window_messages, out);
            put_size(self.table.names_max, out);
            put_size(self.table.bytes_max, out);
        });
    }
}

/// The server's grant: never more than requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Welcome {
    /// The agreed version.
    pub version: u64,
    /// Limit of unanswered messages.
    pub window_messages: u64,
    /// Limits of the table of names.
    pub table: TableLimits,
    /// Maximum length of a frame's body.
    pub frame_bytes_max: usize,
    /// Maximum length of a name.
    pub name_bytes_max: usize,
}

impl Welcome {
    pub(super) fn read(mut body: &[u8]) -> Result<Self, Fault> {
        let welcome = Self {
            version: take_varint(&mut body)?,
            window_messages: take_varint(&mut body)?,
            table: TableLimits { names_max: take_size(&mut body)?, bytes_max: take_size(&mut body)? },
            frame_bytes_max: take_size(&mut body)?,
            name_bytes_max: take_size(&mut body)?,
        };
        nothing_more(body)?;
        Ok(welcome)
    }

    pub(super) fn put(&self, out: &mut Vec<u8>) {
        put(kind::WELCOME, out, |out| {
            put_varint(self.version, out);
            put_varint(self.window_messages, out);
            put_size(self.table.names_max, out);
            put_size(self.table.bytes_max, out);
            put_size(self.frame_bytes_max, out);
            put_size(self.name_bytes_max, out);
        });
    }
}

/// End of a game: DONE from the client, SUMS from the server, with each side's count and checksums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct End {
    pub(super) messages: u64,
    pub(super) sums: crate::game::Sums,
}

impl End {
    pub(super) fn read(mut body: &[u8]) -> Result<Self, Fault> {
        let messages = take_varint(&mut body)?;
        let sums = crate::game::Sums { client: take_eight(&mut body)?, server: take_eight(&mut body)? };
        nothing_more(body)?;
        Ok(Self { messages, sums })
    }

    pub(super) fn put(&self, kind: u8, out: &mut Vec<u8>) {
        put(kind, out, |out| {
            put_varint(self.messages, out);
            out.extend_from_slice(&self.sums.client.to_le_bytes());
            out.extend_from_slice(&self.sums.server.to_le_bytes());
        });
    }
}

impl Fault {
    pub(super) fn read(mut body: &[u8]) -> Result<Self, Self> {
        let code = FaultCode::read(take_varint(&mut body)?);
        let text = &body[..body.len().min(ERROR_TEXT_BYTES_MAX)];
        Ok(Self::new(code, String::from_utf8_lossy(text).into_owned()))
    }

    pub(super) fn put(&self, out: &mut Vec<u8>) {
        put(kind::ERROR, out, |out| {
            put_varint(self.code as u64, out);
            out.extend_from_slice(&self.text.as_bytes()[..self.text.len().min(ERROR_TEXT_BYTES_MAX)]);
        });
    }
}

/// Fault code on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultCode {
    /// An invalid frame, or one that is not allowed now.
    Malformed = 1,
    /// No common version.
    Version = 2,
    /// A limit was exceeded.
    Limit = 3,
    /// A serial that is not the next.
    Serial = 4,
    /// A reference to a name that is not in the table.
    Reference = 5,
    /// More messages than the window allows.
    Window = 6,
    /// Nothing came for too long, or nothing was read.
    Idle = 7,
    /// The server stops.
    Stopping = 8,
    /// A missing token, or one that does not permit games.
    Denied = 9,
    /// A code this side does not know.
    Other = 0,
}

impl FaultCode {
    /// Reason under which a connection's end is counted.
    pub(super) fn end(self) -> LeanEnd {
        match self {
            Self::Malformed | Self::Other => LeanEnd::Malformed,
            Self::Version => LeanEnd::Version,
            Self::Limit => LeanEnd::Limit,
            Self::Serial => LeanEnd::Serial,
            Self::Reference => LeanEnd::Reference,
            Self::Window => LeanEnd::Window,
            Self::Idle => LeanEnd::Idle,
            Self::Stopping => LeanEnd::Stopping,
            Self::Denied => LeanEnd::Denied,
        }
    }

    pub(super) fn read(number: u64) -> Self {
        let known = [
            Self::Malformed,
            Self::Version,
            Self::Limit,
            Self::Serial,
            Self::Reference,
            Self::Window,
            Self::Idle,
            Self::Stopping,
            Self::Denied,
        ];
        known.into_iter().find(|code| *code as u64 == number).unwrap_or(Self::Other)
    }
}

/// Reason for the end of the connection.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct Fault {
    /// Its code.
    pub code: FaultCode,
    /// The fault, and what would be right.
    pub text: Cow<'static, str>,
}

impl Fault {
    pub(super) fn new(code: FaultCode, text: impl Into<Cow<'static, str>>) -> Self {
        Self { code, text: text.into() }
    }

    pub(super) fn malformed(text: &'static str) -> Self {
        Self::new(FaultCode::Malformed, text)
    }

    pub(super) fn too_many_connections(most: usize) -> Self {
        let message = format!("the server's limit rpcgame.lean_connections is {most}: close another connection first");
        Self::new(FaultCode::Limit, message)
    }

    pub(super) fn limit(what: &str, value: usize, setting: &str, most: usize) -> Self {
        Self::new(FaultCode::Limit, format!("{what} is {value}: the server's limit {setting} is {most}"))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn numbers_come_back(number: u64, after: Vec<u8>) {
            let mut bytes = Vec::new();
            put_varint(number, &mut bytes);
            bytes.extend_from_slice(&after);
            let mut rest = &bytes[..];
            prop_assert_eq!(take_varint(&mut rest), Ok(number));
            prop_assert_eq!(rest, &after[..]);
        }

        #[test]
        fn any_bytes_are_a_number_or_a_fault(bytes: Vec<u8>) {
            let mut rest = &bytes[..];
            if take_varint(&mut rest).is_ok() {
                prop_assert!(bytes.len() - rest.len() <= 10);
            }
        }

        #[test]
        fn handshakes_come_back(numbers: [u64; 4], sizes: [u32; 4]) {
            let sizes = sizes.map(|size| size as usize);
            let table = TableLimits { names_max: sizes[0], bytes_max: sizes[1] };
            let [version_min, version_max, window_messages, version] = numbers;
            let hello = Hello { version_min, version_max, window_messages, table };
            let mut out = Vec::new();
            hello.put(&mut out);
            let (frame, body) = take(&mut &out[..], FIRST_BYTES_MAX).unwrap().unwrap();
            prop_assert_eq!((frame, Hello::read(body)), (kind::HELLO, Ok(hello)));
            let welcome =
                Welcome { version, window_messages, table, frame_bytes_max: sizes[2], name_bytes_max: sizes[3] };
            out.clear();
            welcome.put(&mut out);
            let (frame, body) = take(&mut &out[..], FIRST_BYTES_MAX).unwrap().unwrap();
            prop_assert_eq!((frame, Welcome::read(body)), (kind::WELCOME, Ok(welcome)));
        }
    }

    #[test]
    fn a_number_that_is_too_large_is_refused() {
        let wide = [0xff; 9];
        assert_eq!(take_varint(&mut &[&wide[..], &[1]].concat()[..]), Ok(u64::MAX));
        for end in [&[2][..], &[0x81, 0], &[0xff, 0xff]] {
            assert!(take_varint(&mut &[&wide[..], end].concat()[..]).is_err());
        }
    }
}
