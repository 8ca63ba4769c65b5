//! The client: sends the pairs of an input as messages, takes the values, and compares the checksums of both sides.
//!
//! Messages are hashed as sent, and values as received: the client computes nothing that the server should compute.
//! Must not print; progress is reported to the caller.

mod game;
mod growth;
mod input;
mod lean;
mod stream;
mod unary;

use std::sync::Arc;

use quire_rpc::client::{Channel, Settings};
use quire_rpc::{Request, Status};
use tokio::time::{Instant as Deadline, timeout_at};

pub use game::{Failure, LeanFailure, Options, Outcome, PROGRESS_MESSAGES, Progress, SILENCE, Standing, Transport};
pub use input::{Input, InputError, Pair};

use game::Received;

/// Window for transports that a server follows without a thread for each message.
const WINDOW_WIDE: u64 = 65_536;

/// Plays one game; `progress` is called during it.
pub async fn play(input: &Input, options: &Options, progress: impl FnMut(Progress) + Send) -> Result<Outcome, Failure> {
    let deadline = options.timeout.and_then(|timeout| Deadline::now().checked_add(timeout));
    let playing = play_on(input, options, deadline, progress);
    match deadline {
        None => playing.await,
        Some(deadline) => timeout_at(deadline, playing).await.unwrap_or_else(|_| Err(options.late(None))),
    }
}

async fn play_on(
    input: &Input,
    options: &Options,
    deadline: Option<Deadline>,
    progress: impl FnMut(Progress) + Send,
) -> Result<Outcome, Failure> {
    let wide = options.window.unwrap_or(WINDOW_WIDE).max(1);
    let tally = Received::new(progress);
    if options.transport == Transport::Lean {
        return lean::play(input, options, wide, tally).await;
    }
    let calls = unary::window(options).size_max();
    let channel = match connect(options, calls).await {
        Err(_) if lean::is_spoken_at(&options.address).await => {
            return Err(Failure::LeanPort { address: options.address.clone() });
        }
        connected => connected?,
    };
    let outcome = match options.transport {
        Transport::Stream => stream::play(&channel, input, options, wide, tally).await,
        _ => unary::play(&channel, input, options, deadline, tally).await,
    };
    // After a failure there may be calls that no one answers, and nothing to wait for.
    if outcome.is_ok() {
        channel.close().await;
    }
    outcome
}

/// Connects. This module enforces the window; the channel's own queue only has to hold it.
async fn connect(options: &Options, calls: u64) -> Result<Channel, Failure> {
    let address = &options.address;
    let failed = |error| Failure::Connect { address: address.clone(), error };
    let calls = usize::try_from(calls).unwrap_or(usize::MAX);
    let usual = Settings::default();
    let settings = Settings {
        calls_per_connection_max: calls.clamp(1, CALLS_MAX),
        waiting_calls_max: calls.saturating_add(1).max(usual.waiting_calls_max),
        ..usual
    };
    let scheme = if options.tls.is_some() { "https" } else { "http" };
    let mut builder = Channel::builder(&format!("{scheme}://{address}")).map_err(failed)?.settings(settings);
    if let Some(tls) = &options.tls {
        builder = builder.tls(Arc::clone(tls)).map_err(failed)?;
    }
    let channel = builder.connect().await.map_err(failed)?;
    let Some(token) = &options.token else { return Ok(channel) };
    let value = format!("Bearer {token}");
    Ok(channel.intercepted(move |_: &str, request: &mut Request<()>| {
        let denied = || Status::invalid_argument("the token has characters that no token has");
        request.metadata_mut().insert("authorization", &value).map_err(|_| denied())
    }))
}

/// Concurrent calls on a connection; a wider window waits in the channel.
const CALLS_MAX: usize = 16_384;
