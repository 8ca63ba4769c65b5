//! Probes a server before a load, without a request, which could have effects.

use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{anyhow, ensure};
use bytes::Bytes;
use http::{Request, header::HOST};
use http_body_util::{BodyExt as _, Empty, LengthLimitError, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::workload::socket::{CONNECT_TIME_MAX, Dialer, Transport};

/// The client's preface with empty SETTINGS (RFC 9113, section 3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
const FRAME_HEAD_BYTES: usize = 9;
const SETTINGS: u8 = 4;
/// Timeout of the server's SETTINGS.
const SETTINGS_TIME_MAX: Duration = Duration::from_secs(5);

/// Begins TLS on a connection if the dialer has it, and for HTTP/2 checks that the server speaks it.
pub async fn probe(stream: TcpStream, dialer: &Dialer, http2: bool) -> anyhow::Result<()> {
    let address = dialer.address();
    let wrapped = tokio::time::timeout(CONNECT_TIME_MAX, dialer.wrap(stream, Arc::default())).await;
    let Ok(wrapped) = wrapped else {
        anyhow::bail!("{address} accepts the connection and sends nothing for {}s", CONNECT_TIME_MAX.as_secs());
    };
    let mut transport = wrapped?;
    if !http2 {
        return Ok(());
    }
    let mut head = [0; FRAME_HEAD_BYTES];
    let exchange = async {
        transport.write_all(PREFACE).await?;
        transport.flush().await?;
        transport.read_exact(&mut head).await
    };
    match tokio::time::timeout(SETTINGS_TIME_MAX, exchange).await {
        Ok(Ok(_)) if head[3] == SETTINGS => Ok(()),
        Ok(Ok(_)) if head.starts_with(b"HTTP/1.") => {
            anyhow::bail!("{address} speaks HTTP/1.1 only; leave out --http2")
        }
        Ok(Ok(_)) => anyhow::bail!("{address} does not speak HTTP/2; it begins with `{}`", head.escape_ascii()),
        Ok(Err(error)) if error.kind() == ErrorKind::UnexpectedEof => {
            anyhow::bail!("{address} does not speak HTTP/2: it closes the connection; leave out --http2")
        }
        Ok(Err(error)) => anyhow::bail!("{address} does not speak HTTP/2: {error}"),
        Err(_) => anyhow::bail!(
            "{address} does not speak HTTP/2: it sends nothing for {}s; leave out --http2",
            SETTINGS_TIME_MAX.as_secs()
        ),
    }
}

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
