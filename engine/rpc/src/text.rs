//! Base64 envelopes of gRPC-Web's text form: decoded as they arrive.
//!
//! Implements: gRPC-Web, "application/grpc-web-text"; RFC 4648 section 4.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::{Bytes, BytesMut};

use crate::status::Status;

/// Letters that encode three bytes.
const QUAD: usize = 4;

/// Decoded bytes that were not taken yet.
#[derive(Debug, Default)]
pub(crate) struct Decoded {
    bytes: BytesMut,
    /// Letters of an unfinished group.
    quad: [u8; QUAD],
    quad_length: usize,
}

impl Decoded {
    /// Decodes all of `data`. A body may consist of several pieces, each padded.
    pub(crate) fn push(&mut self, data: &[u8]) -> Result<(), Status> {
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

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Takes the first bytes.
    pub(crate) fn take(&mut self, count: usize) -> Bytes {
        self.bytes.split_to(count).freeze()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty() && self.quad_length == 0
    }
}
