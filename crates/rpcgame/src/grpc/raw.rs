//! Messages as bytes: kept in a buffer that is used again, and read by [`messages`](super::messages) where they lie.
//!
//! They stand where generated code expects the messages of the contract. A name travels as a `string` of the
//! contract, but what is no UTF-8 is to be refused in our words, and a call that is answered at once allocates nothing.

use std::cell::RefCell;

use bytes::{Buf, BufMut};
use prost::DecodeError;
use prost::encoding::{DecodeContext, WireType};

/// Buffers that a thread keeps for the next messages.
const SPARES_MAX: usize = 64;
/// A larger buffer is given back.
const SPARE_BYTES_MAX: usize = 256 * 1024;

thread_local! {
    static SPARES: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

fn take() -> Vec<u8> {
    SPARES.with_borrow_mut(Vec::pop).unwrap_or_default()
}

fn give(mut bytes: Vec<u8>) {
    if (1..=SPARE_BYTES_MAX).contains(&bytes.capacity()) {
        bytes.clear();
        // At the end of a thread there is nobody to keep it for.
        let _ = SPARES.try_with(|spares| {
            let mut spares = spares.borrow_mut();
            if spares.len() < SPARES_MAX {
                spares.push(bytes);
            }
        });
    }
}

macro_rules! raw {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Debug, PartialEq, Eq)]
        pub struct $name(Vec<u8>);

        impl Default for $name {
            fn default() -> Self {
                Self(take())
            }
        }

        impl Drop for $name {
            fn drop(&mut self) {
                give(std::mem::take(&mut self.0));
            }
        }

        impl $name {
            /// The message's bytes.
            pub fn bytes(&self) -> &[u8] {
                &self.0
            }

            /// The message's bytes, to be written.
            pub fn bytes_mut(&mut self) -> &mut Vec<u8> {
                &mut self.0
            }
        }

        impl prost::Message for $name {
            fn encode_raw(&self, buf: &mut impl BufMut) {
                buf.put_slice(&self.0);
            }

            fn merge_field(
                &mut self,
                tag: u32,
                wire_type: WireType,
                buf: &mut impl Buf,
                _: DecodeContext,
            ) -> Result<(), DecodeError> {
                // Only reached when somebody decodes a part of a message: what is left is kept as it came.
                prost::encoding::encode_key(tag, wire_type, &mut self.0);
                self.0.put(buf);
                Ok(())
            }

            fn encoded_len(&self) -> usize {
                self.0.len()
            }

            fn clear(&mut self) {
                self.0.clear();
            }

            fn decode(mut buf: impl Buf) -> Result<Self, DecodeError> {
                let mut message = Self::default();
                while buf.has_remaining() {
                    let chunk = buf.chunk();
                    message.0.extend_from_slice(chunk);
                    let length = chunk.len();
                    buf.advance(length);
                }
                Ok(message)
            }
        }
    )*};
}

raw! {
    /// `TryRequest`.
    RawTryRequest;
    /// `TryResponse`.
    RawTryResponse;
    /// `PlayRequest`.
    RawPlayRequest;
    /// `PlayResponse`.
    RawPlayResponse;
}
