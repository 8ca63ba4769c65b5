//! One GET over HTTP/1.1, for requests beside a load.

use anyhow::{anyhow, ensure};
use bytes::Bytes;
use http::{Request, header::HOST};
use http_body_util::{BodyExt as _, Empty, LengthLimitError, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;

use crate::workload::socket::Transport;

/// The body of a successful answer on a new connection, which is closed after it; `host` is the Host header.
pub async fn get(transport: Transport, host: &str, resource: &str, bytes_max: usize) -> anyhow::Result<Bytes> {
    let (mut sender, connection) = http1::handshake(TokioIo::new(transport)).await?;
    // It ends with its sender; the request reports its errors.
    tokio::spawn(connection);
    let request = Request::get(resource).header(HOST, host).body(Empty::<Bytes>::new())?;
    let answer = sender.send_request(request).await?;
    ensure!(answer.status().is_success(), "it answers {resource} with '{}'", answer.status());
    let body = Limited::new(answer.into_body(), bytes_max).collect().await;
    let too_large = |error: &(dyn std::error::Error + 'static)| error.is::<LengthLimitError>();
    body.map(http_body_util::Collected::to_bytes).map_err(|error| match error {
        error if too_large(&*error) => anyhow!("its answer is larger than {bytes_max} bytes"),
        error => anyhow!(error),
    })
}
