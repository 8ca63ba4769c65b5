//! Framing of messages in bodies: with a prefix (gRPC over HTTP/2, "Length-Prefixed-Message"), in base64, or bare.
//!
//! A message that lies within one DATA frame is returned in place, without a copy.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::{Bytes, BytesMut};

use crate::message::codec::{Encode, Payload};
use crate::message::compression::{Encoding, too_large};
use crate::status::Status;

/// Framing of messages in a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    /// A prefix of five bytes before each: flags and length.
    Envelopes,
    /// Envelopes, all in base64.
    Text,
    /// None: the body is the message.
    Complete,
}

/// Compressed flag and length.
pub(crate) const PREFIX_BYTES: usize = 5;
/// Limit of memory reserved for a declared length; beyond it, memory grows with the received bytes.
const RESERVE_BYTES_MAX: usize = 64 * 1024;
/// Largest message that is cheaper to copy than to allocate separately.
const SHORT_BYTES_MAX: usize = 1024;

/// A message with its compressed flag.
#[derive(Debug)]
pub(crate) struct Framed<T> {
    pub(crate) compressed: bool,
    pub(crate) bytes: T,
}

impl Framed<Payload<'_>> {
    /// Clones the message; a buffer is shared.
    pub(crate) fn again(&self) -> Framed<Payload<'_>> {
        Framed { compressed: self.compressed, bytes: self.bytes.again() }
    }
}

impl Framed<Bytes> {
    /// Clones the message; the buffer is shared.
    pub(crate) fn owned(&self) -> Framed<Payload<'static>> {
        Framed { compressed: self.compressed, bytes: Payload::Owned(self.bytes.clone()) }
    }
}

/// Assembles messages from received bytes.
#[derive(Debug, Default)]
pub(crate) struct Assembler {
    prefix: [u8; PREFIX_BYTES],
    prefix_length: usize,
    body: Vec<u8>,
    /// Set if the body is in base64.
    text: Option<Box<DecodedText>>,
    /// True if the body is one message, which [`Assembler::take_complete`] returns at the end.
    is_complete_body: bool,
    /// True if the body is unframed: each received piece counts as a message.
    is_chunked: bool,
    /// Set to discard messages: the bytes of the unfinished one, counted and not kept.
    unread_bytes: Option<usize>,
    /// Flag of the envelope that ends the stream; 0 if there is none.
    end_flag: u8,
    /// True once the envelope that ends the stream has begun.
    is_ending: bool,
}

impl Assembler {
    /// Assembler for a framing.
    #[inline]
    pub(crate) fn of(framing: Framing) -> Self {
        match framing {
            Framing::Envelopes => Self::default(),
            Framing::Text => Self { text: Some(Box::default()), ..Self::default() },
            Framing::Complete => Self { is_complete_body: true, ..Self::default() },
        }
    }

    /// Assembler for an unframed body.
    pub(crate) fn chunks() -> Self {
        Self { is_complete_body: true, is_chunked: true, ..Self::default() }
    }

    /// Makes messages come out empty, without buffering them.
    pub(crate) fn unread(self) -> Self {
        Self { unread_bytes: Some(0), ..self }
    }

    /// Sets the flag of the envelope that ends the stream.
    #[inline]
    pub(crate) fn ended_by(self, end_flag: u8) -> Self {
        Self { end_flag, ..self }
    }

    /// True if the last envelope returned ends the stream.
    #[inline]
    pub(crate) fn is_ending(&self) -> bool {
        self.is_ending
    }

    /// Takes bytes off `data` until a message is complete; `None` if `data` is used up first.
    #[inline]
    pub(crate) fn next<'a>(
        &mut self,
        data: &mut &'a [u8],
        bytes_max: usize,
    ) -> Result<Option<Framed<Payload<'a>>>, Status> {
        if self.is_complete_body || self.text.is_some() {
            return self.next_of_body(data, bytes_max);
        }
        if self.prefix_length == 0
            && let Some((prefix, rest)) = data.split_first_chunk::<PREFIX_BYTES>()
        {
            let (compressed, length) = self.read_prefix(*prefix, bytes_max)?;
            if let Some((message, rest)) = rest.split_at_checked(length) {
                *data = rest;
                let message = if self.unread_bytes.is_some() && !self.is_ending { &[] } else { message };
                return Ok(Some(Framed { compressed, bytes: Payload::Borrowed(message) }));
            }
        }
        self.gather(data, bytes_max)
    }

    /// Takes the complete short messages at the start of `data`, each with its prefix; often none.
    #[inline]
    pub(crate) fn run<'a>(&self, data: &mut &'a [u8], bytes_max: usize) -> &'a [u8] {
        if self.is_complete_body || self.text.is_some() || self.unread_bytes.is_some() || self.prefix_length > 0 {
            return &[];
        }
        let (all, bytes_max) = (*data, bytes_max.min(SHORT_BYTES_MAX));
        while let Some((&[0 | 1, ref length @ ..], rest)) = data.split_first_chunk::<PREFIX_BYTES>()
            && let length = u32::from_be_bytes(*length) as usize
            && length <= bytes_max
            && let Some((_, rest)) = rest.split_at_checked(length)
        {
            *data = rest;
        }
        &all[..all.len() - data.len()]
    }

    fn next_of_body(&mut self, data: &mut &[u8], bytes_max: usize) -> Result<Option<Framed<Payload<'static>>>, Status> {
        let data = std::mem::take(data);
        let Some(text) = &mut self.text else {
            if self.unread_bytes.is_some() {
                return Ok(None);
            }
            if self.is_chunked {
                let bytes = Payload::Owned(Bytes::copy_from_slice(data));
                return Ok((!data.is_empty()).then_some(Framed { compressed: false, bytes }));
            }
            if self.body.len() + data.len() > bytes_max {
                return Err(too_large(self.body.len() + data.len(), bytes_max));
            }
            self.body.extend_from_slice(data);
            return Ok(None);
        };
        text.push(data)?;
        let Some(prefix) = text.bytes().first_chunk::<PREFIX_BYTES>() else { return Ok(None) };
        let (compressed, length) = read_length(*prefix, bytes_max)?;
        if text.bytes().len() < PREFIX_BYTES + length {
            return Ok(None);
        }
        let message = text.take(PREFIX_BYTES + length).slice(PREFIX_BYTES..);
        Ok(Some(Framed { compressed, bytes: Payload::Owned(message) }))
    }

    /// Returns the body as a message, at its end.
    pub(crate) fn take_complete(&mut self) -> Option<Bytes> {
        self.is_complete_body.then(|| std::mem::take(&mut self.body).into())
    }

    /// True if the body is one message.
    #[inline]
    pub(crate) fn is_complete_body(&self) -> bool {
        self.is_complete_body
    }

    fn gather<'a>(&mut self, data: &mut &'a [u8], bytes_max: usize) -> Result<Option<Framed<Payload<'a>>>, Status> {
        if self.prefix_length < PREFIX_BYTES {
            let count = data.len().min(PREFIX_BYTES - self.prefix_length);
            self.prefix[self.prefix_length..self.prefix_length + count].copy_from_slice(&data[..count]);
            self.prefix_length += count;
            *data = &data[count..];
            if self.prefix_length < PREFIX_BYTES {
                return Ok(None);
            }
        }
        let (compressed, length) = self.read_prefix(self.prefix, bytes_max)?;
        if !self.is_ending
            && let Some(unread_bytes) = &mut self.unread_bytes
        {
            let count = data.len().min(length - *unread_bytes);
            *unread_bytes += count;
            *data = &data[count..];
            if *unread_bytes < length {
                return Ok(None);
            }
            (self.prefix_length, *unread_bytes) = (0, 0);
            return Ok(Some(Framed { compressed, bytes: Payload::Borrowed(&[]) }));
        }
        let count = data.len().min(length - self.body.len());
        if self.body.capacity() - self.body.len() < count {
            // Doubles each time, but never beyond the message's length: keeping any part keeps the whole buffer.
            let more = self.body.len().max(RESERVE_BYTES_MAX).max(count);
            self.body.reserve_exact(more.min(length - self.body.len()));
        }
        self.body.extend_from_slice(&data[..count]);
        *data = &data[count..];
        if self.body.len() < length {
            return Ok(None);
        }
        self.prefix_length = 0;
        let body = std::mem::take(&mut self.body);
        Ok(Some(Framed { compressed, bytes: Payload::Owned(body.into()) }))
    }

    /// Parses compressed flag and length; records that the stream's end has begun.
    #[inline]
    fn read_prefix(&mut self, prefix: [u8; PREFIX_BYTES], bytes_max: usize) -> Result<(bool, usize), Status> {
        let [flags, length @ ..] = prefix;
        if self.end_flag != 0 && flags & !1 == self.end_flag {
            self.is_ending = true;
            let [a, b, c, d] = length;
            return read_length([flags & 1, a, b, c, d], bytes_max);
        }
        read_length(prefix, bytes_max)
    }

    /// True if no message is incomplete: the stream may end here.
    pub(crate) fn is_empty(&self) -> bool {
        self.prefix_length == 0 && self.text.as_ref().is_none_or(|text| text.is_empty())
    }

    /// Memory held for an unfinished message.
    pub(crate) fn held_bytes(&self) -> usize {
        self.body.len() + self.text.as_ref().map_or(0, |text| text.bytes().len())
    }
}

#[inline]
fn read_length(prefix: [u8; PREFIX_BYTES], bytes_max: usize) -> Result<(bool, usize), Status> {
    let length = u32::from_be_bytes([prefix[1], prefix[2], prefix[3], prefix[4]]) as usize;
    if length > bytes_max {
        return Err(too_large(length, bytes_max));
    }
    match prefix[0] {
        0 => Ok((false, length)),
        1 => Ok((true, length)),
        _ => Err(Status::internal("a message whose compressed flag is neither 0 nor 1")),
    }
}

/// Appends a message with its prefix, compressed if requested and shorter that way.
#[inline]
pub(crate) fn encode<T: Encode>(message: T, compress: Option<(Encoding, usize)>, out: &mut Vec<u8>) {
    let start = out.len();
    out.extend_from_slice(&[0; PREFIX_BYTES]);
    message.encode(out);
    seal(out, start, compress);
}

/// Prefix of a message of this length.
#[inline]
pub(crate) fn prefix(length: usize, compressed: bool) -> [u8; PREFIX_BYTES] {
    let mut prefix = [compressed.into(); PREFIX_BYTES];
    prefix[1..].copy_from_slice(&u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes());
    prefix
}

/// Fills in the prefix of the bytes from `start` on.
#[inline]
pub(crate) fn seal(out: &mut Vec<u8>, start: usize, compress: Option<(Encoding, usize)>) {
    let body = start + PREFIX_BYTES;
    let compressed = match compress {
        Some((encoding, bytes_min)) if out.len() - body >= bytes_min => pack(out, body, encoding),
        _ => false,
    };
    let prefix = prefix(out.len() - body, compressed);
    out[start..body].copy_from_slice(&prefix);
}

/// Compresses the bytes from `body` on if that shortens them; out of line, since most messages are not compressed.
#[inline(never)]
fn pack(out: &mut Vec<u8>, body: usize, encoding: Encoding) -> bool {
    let mut packed = Vec::new();
    let is_shorter = encoding.compress(&out[body..], &mut packed).is_ok() && packed.len() < out.len() - body;
    if is_shorter {
        out.truncate(body);
        out.extend_from_slice(&packed);
    }
    is_shorter
}

/// Like [`seal`], for a body of one message: from the configured length on it is compressed even if that lengthens it,
/// because the head declares the encoding of the whole body.
pub(crate) fn seal_unframed(out: &mut Vec<u8>, start: usize, compress: Option<(Encoding, usize)>) {
    let body = start + PREFIX_BYTES;
    let mut packed = Vec::new();
    let compressed = compress.is_some_and(|(encoding, bytes_min)| {
        out.len() - body >= bytes_min && encoding.compress(&out[body..], &mut packed).is_ok()
    });
    if compressed {
        out.truncate(body);
        out.extend_from_slice(&packed);
    }
    let prefix = prefix(out.len() - body, compressed);
    out[start..body].copy_from_slice(&prefix);
}

/// Letters that encode three bytes.
const QUAD: usize = 4;

/// Base64 envelopes of gRPC-Web's text form (RFC 4648 section 4), decoded as they arrive: the bytes that were not
/// taken yet.
#[derive(Debug, Default)]
struct DecodedText {
    bytes: BytesMut,
    /// Letters of an unfinished group.
    quad: [u8; QUAD],
    quad_length: usize,
}

impl DecodedText {
    /// Decodes all of `data`. A body may consist of several pieces, each padded.
    fn push(&mut self, data: &[u8]) -> Result<(), Status> {
        self.bytes.reserve(data.len() / QUAD * 3);
        for letter in data {
            self.quad[self.quad_length] = *letter;
            self.quad_length += 1;
            if self.quad_length == QUAD {
                self.quad_length = 0;
                let mut three = [0; 3];
                let count = BASE64_STANDARD
                    .decode_slice(self.quad, &mut three)
                    .map_err(|_| Status::invalid_argument("the body is not in base64, as its content type says"))?;
                self.bytes.extend_from_slice(&three[..count]);
            }
        }
        Ok(())
    }

    fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Takes the first bytes.
    fn take(&mut self, count: usize) -> Bytes {
        self.bytes.split_to(count).freeze()
    }

    fn is_empty(&self) -> bool {
        self.bytes.is_empty() && self.quad_length == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::Code;

    fn framed(bodies: &[&[u8]]) -> Vec<u8> {
        let mut out = Vec::new();
        for body in bodies {
            let start = out.len();
            out.extend_from_slice(&[0; PREFIX_BYTES]);
            out.extend_from_slice(body);
            seal(&mut out, start, None);
        }
        out
    }

    #[test]
    fn messages_come_out_whole_however_data_is_cut() {
        let bodies = [&b"first"[..], b"", b"the third one"];
        let bytes = framed(&bodies);
        for cut in 1..=bytes.len() {
            let mut assembler = Assembler::default();
            let mut seen = Vec::new();
            for mut chunk in bytes.chunks(cut) {
                while let Some(message) = assembler.next(&mut chunk, 100).unwrap() {
                    seen.push(message.bytes.as_slice().to_vec());
                }
            }
            assert_eq!(seen, bodies);
            assert!(assembler.is_empty());
        }
    }

    #[test]
    fn a_run_ends_before_what_is_long_unfinished_or_wrong() {
        let short = framed(&[b"first", b"", b"the third one"]);
        let long = framed(&[&[7; SHORT_BYTES_MAX + 1]]);
        let assembler = Assembler::default();
        for rest in [&long[..], &short[..4], &short[..9], &[2, 0, 0, 0, 0]] {
            let data = [&short, rest].concat();
            let mut left = &data[..];
            assert_eq!((assembler.run(&mut left, 2_000), left), (&short[..], rest));
        }
        assert_eq!(assembler.run(&mut &short[..], 4), b"", "the first message is beyond the limit");
        let mut inside = Assembler::default();
        assert!(inside.next(&mut &short[..2], 100).unwrap().is_none());
        assert_eq!(inside.run(&mut &short[..], 100), b"", "a message has begun");
    }

    #[test]
    fn unread_messages_come_out_empty_and_hold_nothing_however_data_is_cut() {
        let bytes = framed(&[&b"first"[..], b"", b"the third one"]);
        for cut in 1..=bytes.len() {
            let mut assembler = Assembler::default().unread();
            let mut seen = 0;
            for mut chunk in bytes.chunks(cut) {
                while let Some(message) = assembler.next(&mut chunk, 100).unwrap() {
                    assert!(message.bytes.as_slice().is_empty());
                    seen += 1;
                }
                assert_eq!(assembler.body.capacity(), 0);
            }
            assert_eq!(seen, 3);
            assert!(assembler.is_empty());
        }
    }

    #[test]
    fn too_large_a_length_is_refused_before_its_bytes_come() {
        let mut assembler = Assembler::default();
        let error = assembler.next(&mut &[0, 0, 0, 0, 101][..], 100).unwrap_err();
        assert_eq!(error.code(), Code::ResourceExhausted);
        assert!(assembler.next(&mut &[2, 0, 0, 0, 0][..], 100).is_err(), "an unknown flag");
    }

    #[test]
    fn gathered_message_takes_no_more_memory_than_it_has_bytes() {
        for length in [0usize, 1, 70_000, 1_000_000] {
            let bytes = framed(&[&vec![7; length]]);
            let mut assembler = Assembler::default();
            let mut whole = None;
            for mut chunk in bytes.chunks(16_384 - 5) {
                if chunk.len() == bytes.len() {
                    // In two parts, so that it is gathered.
                    assert!(assembler.next(&mut &chunk[..1], usize::MAX).unwrap().is_none());
                    chunk = &chunk[1..];
                }
                whole = assembler.next(&mut chunk, usize::MAX).unwrap();
                assert!(assembler.body.capacity() <= length);
            }
            let Some(Framed { bytes: Payload::Owned(body), .. }) = whole else { panic!("gathered: {length}") };
            assert_eq!(body.len(), length);
        }
    }

    #[test]
    fn claimed_length_reserves_little() {
        let mut assembler = Assembler::default();
        assert!(assembler.next(&mut &[0, 0x7f, 0, 0, 0][..], usize::MAX).unwrap().is_none());
        assert!(assembler.body.capacity() <= RESERVE_BYTES_MAX);
    }
}
