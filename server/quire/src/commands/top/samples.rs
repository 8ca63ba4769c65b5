//! Samples from a server, and failures with their exit codes.

use operate::grpc::wire::{Figures, WatchRequest, operator_client::OperatorClient};
use quire_rpc::{Code, Request, Status, Streaming};

pub(super) const REFUSED: u8 = 1;
pub(super) const USAGE: u8 = 2;
pub(super) const UNREACHABLE: u8 = 3;

/// A failure and its exit code.
pub(crate) type Failure = (anyhow::Error, u8);

/// Begins to watch.
pub(super) async fn watch(client: &OperatorClient, token: Option<&str>) -> Result<Streaming<Figures>, Failure> {
    let mut request = Request::new(WatchRequest::default());
    if let Some(token) = token {
        let put = request.metadata_mut().insert("authorization", &format!("Bearer {token}"));
        put.map_err(|error| (error.into(), USAGE))?;
    }
    Ok(client.watch(request).await.map_err(|status| failed(&status))?.into_inner())
}

/// The next sample.
pub(super) async fn next(samples: &mut Streaming<Figures>) -> Result<Figures, Failure> {
    let sample = samples.message().await.map_err(|status| failed(&status))?;
    sample.ok_or_else(|| (anyhow::anyhow!("the server has stopped"), UNREACHABLE))
}

fn failed(status: &Status) -> Failure {
    let code = if matches!(status.code(), Code::Unavailable | Code::DeadlineExceeded) { UNREACHABLE } else { REFUSED };
    let text = match status.code() {
        Code::Unimplemented => "the server has no figures for operators; it is older than this program".to_owned(),
        _ => status.message().to_owned(),
    };
    (anyhow::anyhow!(text), code)
}
