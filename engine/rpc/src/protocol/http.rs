//! Plain HTTP: responses are a head and an opaque body.
//!
//! Implements: RFC 9110, as far as a client that does not cache needs it.

use std::sync::Arc;

use quire_http2::Head;

use super::client::{AnswerHead, ClientProtocol, Codec, Put, RequestTerms};
use crate::message::framing::Framing;
use crate::metadata::Metadata;
use crate::status::Status;

/// Plain HTTP.
pub(super) struct Http;

impl ClientProtocol for Http {
    fn framing(&self) -> Framing {
        Framing::Complete
    }

    fn is_chunked(&self) -> bool {
        true
    }

    fn put_request(&self, _: &RequestTerms<'_>, _: Put<'_>) {}

    fn is_trailers(&self, _: &Head) -> bool {
        false
    }

    fn begin(&self, _: Codec, _: &Head) -> AnswerHead {
        AnswerHead::Messages(None)
    }

    fn end(&self, _: &Arc<Head>, trailers: Option<&Arc<Head>>, _: bool) -> Result<Metadata, Status> {
        Ok(trailers.map(|trailers| Metadata::received(Arc::clone(trailers))).unwrap_or_default())
    }
}
