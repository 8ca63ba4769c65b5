//! Answers every HTTP request with 200, over HTTP/1.1 or, for connections that begin so, HTTP/2.

use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use tokio::net::TcpStream;

const STREAMS_MAX: u32 = 4096;
/// Windows for request bodies, so large that a body never waits.
const WINDOW_BYTES: u32 = 4 << 20;

/// Serves one connection to its end; errors are the client's to report.
pub(super) async fn serve(stream: TcpStream, answer: Bytes, delay: Duration) {
    let service = service_fn(move |request: http::Request<Incoming>| {
        let answer = answer.clone();
        async move {
            let mut body = request.into_body();
            while let Some(Ok(_)) = body.frame().await {}
            if !delay.is_zero() {
                tokio::time::sleep(delay).await;
            }
            Ok::<_, Infallible>(http::Response::new(Full::new(answer)))
        }
    });
    let mut server = Builder::new(TokioExecutor::new());
    server.http1().pipeline_flush(true).auto_date_header(false);
    server
        .http2()
        .max_concurrent_streams(STREAMS_MAX)
        .initial_stream_window_size(WINDOW_BYTES)
        .initial_connection_window_size(16 * WINDOW_BYTES)
        .auto_date_header(false);
    let _ = server.serve_connection(TokioIo::new(stream), service).await;
}
