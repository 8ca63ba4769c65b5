//! Every HTTP request answered 200, by HTTP/1.1 or, if a connection begins so, by HTTP/2.

use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Body as _, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;

const STREAMS_MAX: u32 = 4096;
/// Windows for request bodies; large, so that the server never is what a body waits for.
const WINDOW_BYTES: u32 = 4 << 20;
/// A connection must have shown its protocol by then.
const FIRST_BYTES_TIME_MAX: Duration = Duration::from_secs(10);
/// Between looks at a connection of which too little has come.
const LOOK_PAUSE: Duration = Duration::from_millis(1);

/// What is answered.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    body: Bytes,
    delay: Duration,
}

impl Answer {
    pub(super) fn new(body_bytes: usize, delay: Duration) -> Self {
        Self { body: Bytes::from(vec![b'.'; body_bytes]), delay }
    }

    async fn to(self, request: http::Request<Incoming>) -> Result<http::Response<Full<Bytes>>, Infallible> {
        let mut body = request.into_body();
        while !body.is_end_stream() {
            match body.frame().await {
                Some(Ok(_)) => {}
                Some(Err(_)) | None => break,
            }
        }
        if !self.delay.is_zero() {
            tokio::time::sleep(self.delay).await;
        }
        Ok(http::Response::new(Full::new(self.body)))
    }
}

/// Serves one connection until it ends, well or badly: that is the client's to tell.
pub(super) async fn serve(stream: TcpStream, answer: Answer) {
    let service = service_fn(move |request| answer.clone().to(request));
    match tokio::time::timeout(FIRST_BYTES_TIME_MAX, begins_as_http2(&stream)).await {
        Ok(Ok(true)) => {
            let _ = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
                .max_concurrent_streams(STREAMS_MAX)
                .initial_stream_window_size(WINDOW_BYTES)
                .initial_connection_window_size(16 * WINDOW_BYTES)
                .auto_date_header(false)
                .serve_connection(TokioIo::new(stream), service)
                .await;
        }
        Ok(Ok(false)) => {
            let _ = hyper::server::conn::http1::Builder::new()
                .pipeline_flush(true)
                .auto_date_header(false)
                .serve_connection(TokioIo::new(stream), service)
                .await;
        }
        Ok(Err(_)) | Err(_) => {}
    }
}

/// `PRI` begins HTTP/2's preface and no request of HTTP/1.1 (RFC 9113, section 3.4).
async fn begins_as_http2(stream: &TcpStream) -> std::io::Result<bool> {
    const PREFACE: &[u8] = b"PRI";
    let mut first = [0; PREFACE.len()];
    loop {
        let count = stream.peek(&mut first).await?;
        if count == PREFACE.len() || count == 0 || !PREFACE.starts_with(&first[..count]) {
            return Ok(first[..count] == *PREFACE);
        }
        tokio::time::sleep(LOOK_PAUSE).await;
    }
}
