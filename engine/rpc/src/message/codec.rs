//! Conversion between messages and the bytes that a call carries.
//!
//! The only module of the engine that depends on prost; another codec would be added here.

use std::fmt;

use bytes::Bytes;

use crate::message::compression::Encoding;
use crate::status::Status;

/// The bytes of a received message, decompressed.
#[derive(Debug)]
pub enum Payload<'a> {
    /// Borrowed from the read buffer.
    Borrowed(&'a [u8]),
    /// In a buffer of exactly their length, because they came in several frames or compressed.
    Owned(Bytes),
}

impl Payload<'_> {
    /// The bytes.
    #[inline]
    pub fn as_slice(&self) -> &[u8] {
        match self {
            Self::Borrowed(bytes) => bytes,
            Self::Owned(bytes) => bytes,
        }
    }

    /// The bytes, copied if borrowed.
    pub fn into_bytes(self) -> Bytes {
        match self {
            Self::Borrowed(bytes) => Bytes::copy_from_slice(bytes),
            Self::Owned(bytes) => bytes,
        }
    }

    /// Clones the payload; a buffer is shared.
    pub(crate) fn again(&self) -> Payload<'_> {
        match self {
            Self::Borrowed(bytes) => Payload::Borrowed(bytes),
            Self::Owned(bytes) => Payload::Owned(bytes.clone()),
        }
    }

    /// Memory that a field of type `Bytes` keeps alive after decoding; 0 if each field owns its memory.
    pub(crate) fn buffer_bytes(&self) -> usize {
        match self {
            Self::Borrowed(_) => 0,
            Self::Owned(bytes) => bytes.len(),
        }
    }
}

/// Types that can be decoded from a message: prost's messages, [`Encoded`], and a service's own types.
pub trait Decode: Sized {
    /// Decodes a complete message.
    fn decode(payload: Payload<'_>) -> Result<Self, Status>;
}

/// Types that can be encoded as a message: prost's messages, [`Encoded`], and a service's own types.
pub trait Encode: Sized + Send {
    /// Number of bytes that [`Encode::encode`] appends.
    fn encoded_len(&self) -> usize;
    /// Appends the complete message.
    fn encode(self, out: &mut Vec<u8>);
    /// Returns the bytes if they are already encoded, else the message.
    #[inline]
    fn into_encoded(self) -> Result<Encoded, Self> {
        Err(self)
    }
}

impl<T: prost::Message + Default> Decode for T {
    #[expect(
        clippy::inline_always,
        reason = "a message that is returned through memory is stored by field and loaded whole"
    )]
    #[inline(always)]
    fn decode(payload: Payload<'_>) -> Result<Self, Status> {
        let decoded = match payload {
            Payload::Borrowed(bytes) => <T as prost::Message>::decode(bytes),
            Payload::Owned(bytes) => decode_owned(bytes),
        };
        decoded.map_err(|error| undecodable(&error))
    }
}

/// Out of line, so that only the common reader is inlined.
#[inline(never)]
fn decode_owned<T: prost::Message + Default>(bytes: Bytes) -> Result<T, prost::DecodeError> {
    T::decode(bytes)
}

#[cold]
fn undecodable(error: &prost::DecodeError) -> Status {
    Status::internal(format!("the message cannot be decoded: {error}"))
}

impl<T: prost::Message> Encode for T {
    #[inline]
    fn encoded_len(&self) -> usize {
        prost::Message::encoded_len(self)
    }

    #[inline]
    fn encode(self, out: &mut Vec<u8>) {
        self.encode_raw(out);
    }
}

/// A message in encoded form: bytes that were received, or are sent unchanged. They are not
/// checked to be a valid message.
pub struct Encoded {
    pub(crate) length: usize,
    pub(crate) encoding: Option<Encoding>,
    pub(crate) chunks: Chunks,
}

/// The bytes of an [`Encoded`].
pub(crate) enum Chunks {
    Complete(Bytes),
    Parts(Vec<Bytes>),
    Made(Box<dyn Iterator<Item = Bytes> + Send>),
}

impl Encoded {
    /// Encodes a message.
    pub fn of(message: impl Encode) -> Self {
        let mut bytes = Vec::with_capacity(message.encoded_len());
        message.encode(&mut bytes);
        bytes.into()
    }

    /// A message generated while it is sent, in chunks of `length` bytes in all. A unary method takes the next chunk
    /// when there is room, so little of a large response is buffered; if the chunks add up to another length, the call
    /// ends with `INTERNAL`. Such a message is not compressed.
    pub fn from_chunks(length: usize, chunks: impl Iterator<Item = Bytes> + Send + 'static) -> Self {
        Self { length, encoding: None, chunks: Chunks::Made(Box::new(chunks)) }
    }

    /// A compressed response of a unary method. The caller must accept the encoding; see
    /// [`Request::accepts`](crate::Request::accepts).
    pub fn compressed(encoding: Encoding, packed: Bytes) -> Self {
        Self { encoding: Some(encoding), ..packed.into() }
    }

    /// The bytes in one piece, without a copy if they are contiguous.
    pub fn into_bytes(self) -> Bytes {
        match self.chunks {
            Chunks::Complete(bytes) => bytes,
            Chunks::Parts(parts) => parts.concat().into(),
            Chunks::Made(_) => {
                let mut whole = Vec::with_capacity(self.length);
                self.encode(&mut whole);
                whole.into()
            }
        }
    }
}

impl From<Bytes> for Encoded {
    fn from(bytes: Bytes) -> Self {
        Self { length: bytes.len(), encoding: None, chunks: Chunks::Complete(bytes) }
    }
}

impl From<Vec<u8>> for Encoded {
    fn from(bytes: Vec<u8>) -> Self {
        Bytes::from(bytes).into()
    }
}

/// Parts that together are the message; large ones are sent without a copy.
impl From<Vec<Bytes>> for Encoded {
    fn from(parts: Vec<Bytes>) -> Self {
        Self { length: parts.iter().map(Bytes::len).sum(), encoding: None, chunks: Chunks::Parts(parts) }
    }
}

impl Decode for Encoded {
    fn decode(payload: Payload<'_>) -> Result<Self, Status> {
        Ok(payload.into_bytes().into())
    }
}

impl Encode for Encoded {
    fn encoded_len(&self) -> usize {
        self.length
    }

    fn encode(self, out: &mut Vec<u8>) {
        match self.chunks {
            Chunks::Complete(bytes) => out.extend_from_slice(&bytes),
            Chunks::Parts(parts) => parts.iter().for_each(|part| out.extend_from_slice(part)),
            Chunks::Made(chunks) => chunks.for_each(|chunk| out.extend_from_slice(&chunk)),
        }
    }

    #[inline]
    fn into_encoded(self) -> Result<Encoded, Self> {
        Ok(self)
    }
}

impl fmt::Debug for Encoded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Encoded({} bytes, {:?})", self.length, self.encoding)
    }
}

/// A received message of any type, discarded unread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ignored;

impl Decode for Ignored {
    fn decode(_: Payload<'_>) -> Result<Self, Status> {
        Ok(Self)
    }
}
