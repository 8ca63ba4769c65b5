//! What an answer's head and trailers say (gRPC over HTTP/2, "Responses"), read once per distinct block.

use quire_http2::Head;

use crate::compression::Encoding;
use crate::metadata::{Metadata, decode_bytes};
use crate::status::{Code, Reach, Status, decode_message};

/// How to go on after a head.
pub(super) enum ReplyPlan {
    Grpc(Option<Encoding>),
    Refuse(Status),
}

impl ReplyPlan {
    pub(super) fn read(head: &Head) -> Self {
        let code = head.status_code().unwrap_or(0);
        if code != 200 {
            return Self::Refuse(Status::from_http(code));
        }
        let content_type = head.get(b"content-type").unwrap_or_default();
        if !content_type.starts_with(b"application/grpc") {
            let shown = content_type.escape_ascii();
            return Self::Refuse(Status::unknown(format!("the answer's content-type is {shown}, not gRPC's")));
        }
        match head.get(b"grpc-encoding").map_or(Ok(None), Encoding::parse) {
            Ok(encoding) => Self::Grpc(encoding),
            Err(()) => Self::Refuse(Status::internal("the answer is in an encoding we did not offer")),
        }
    }
}

/// The failure that trailers tell; none if they tell success.
#[inline]
pub(super) fn trailing_status(trailers: &std::sync::Arc<Head>) -> Option<Status> {
    let code = match trailers.get(b"grpc-status") {
        Some(b"0") => return None,
        Some(number) => std::str::from_utf8(number).ok().and_then(|text| text.parse().ok()).unwrap_or(2),
        None => {
            let http = trailers.status_code().filter(|code| *code != 200);
            return Some(http.map_or_else(|| Status::unknown("the answer has no grpc-status"), Status::from_http));
        }
    };
    let message = trailers.get(b"grpc-message").map(decode_message).unwrap_or_default();
    let details = trailers.get(b"grpc-status-details-bin").and_then(decode_bytes).unwrap_or_default();
    let mut status = Status::with_details(Code::from_number(code), message, details.into()).with_reach(Reach::Answered);
    *status.metadata_mut() = Metadata::received(std::sync::Arc::clone(trailers));
    Some(status)
}
