//! Detects a connection's protocol by its first bytes.
//!
//! Implements: RFC 9113 sections 3.3 and 3.4 (prior knowledge, preface), RFC 9112 section 3 (request line).

use std::io;
use std::sync::Arc;
use std::time::Duration;

use quire_http2::PREFACE;
use quire_net::before;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::driver::Driver;
#[cfg(feature = "http1")]
use super::http1;
use super::place::Stay;
use super::shared::Shared;
use crate::envelope::Peer;
use crate::io::read_failed;

/// Time limit, and below the read limit, for the peer to close after we did.
const LINGER: Duration = Duration::from_secs(1);
const HANG_UP_READS_MAX: usize = 64;

/// The first bytes of TLS: a record of a handshake, version 3 (RFC 8446 section 5.1).
const TLS_HANDSHAKE: [u8; 2] = [0x16, 0x03];
/// In clear, so that a client of TLS reads that there is none here.
const NO_TLS: &[u8] =
    b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-type: text/plain\r\ncontent-length: 44\r\n\r\n\
    this port does not speak TLS: write http://\n";

/// Serves a connection of any protocol to its end; returns the reason, for a log.
pub(super) async fn serve<T>(mut io: T, shared: Arc<Shared>, peer: Arc<Peer>, mut stay: Stay) -> String
where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut first = Vec::with_capacity(PREFACE.len());
    let look = tokio::time::timeout(shared.limits.handshake_timeout, look(&mut io, &mut first));
    // A peer that has sent nothing can be closed at once.
    let Some(looked) = before(Box::pin(look), &mut stay.draining).await else { return "drained".to_owned() };
    match looked {
        Err(_) => "no first bytes in time".to_owned(),
        Ok(Err(error)) => read_failed(&error),
        Ok(Ok(true)) => {
            // Boxed, so that a connection's task holds only its own protocol's state.
            Driver::boxed(io, first, shared, peer, stay).run().await
        }
        Ok(Ok(false)) if first.is_empty() => "closed by the peer".to_owned(),
        #[cfg(feature = "http1")]
        Ok(Ok(false)) if may_be_http1(&first) => Box::pin(http1::serve(first, io, shared, peer, stay)).await,
        Ok(Ok(false)) => {
            let is_tls = first.starts_with(&TLS_HANDSHAKE);
            let answer = if is_tls { NO_TLS } else { b"" };
            let _ = tokio::time::timeout(LINGER, hang_up(&mut io, answer)).await;
            if is_tls { "TLS, and this port speaks none" } else { "neither HTTP/2 nor HTTP/1.1" }.to_owned()
        }
    }
}

/// Reads until the bytes are the HTTP/2 preface or cannot become it.
async fn look<T: AsyncRead + Unpin>(io: &mut T, first: &mut Vec<u8>) -> io::Result<bool> {
    while first.len() < PREFACE.len() {
        let mut buffer = [0; 24];
        let wanted = PREFACE.len() - first.len();
        let count = io.read(&mut buffer[..wanted]).await?;
        first.extend_from_slice(&buffer[..count]);
        if count == 0 || !PREFACE.starts_with(first) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Answers, closes our side and reads the other to its end: closing with bytes unread would be a reset.
async fn hang_up<T: AsyncRead + AsyncWrite + Unpin>(io: &mut T, answer: &[u8]) {
    let mut buffer = [0; 256];
    let _ = io.write_all(answer).await;
    let _ = io.shutdown().await;
    for _ in 0..HANG_UP_READS_MAX {
        if !matches!(io.read(&mut buffer).await, Ok(1..)) {
            break;
        }
    }
}

/// False for bytes that cannot begin a request line, method, space and target (RFC 9112 section 3); those are not
/// answered.
fn may_be_http1(first: &[u8]) -> bool {
    match first.iter().position(|byte| *byte == b' ') {
        Some(0) => false,
        Some(blank) => first.get(blank + 1).is_none_or(|byte| matches!(byte, b'/' | b'*' | b'h' | b'H')),
        None => first.iter().all(u8::is_ascii_graphic),
    }
}
