//! A gRPC call for each message, as many at a time as the window allows.
//!
//! Calls begin in the order of their serials, and their answers are taken in that order, so values need no sorting.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll};

use quire_rpc::client::Channel;
use quire_rpc::{Code, Request, Response, Status};
use tokio::time::Instant;

use super::game::{Failure, Options, Outcome, Progress, Received, Transport, checksum};
use super::growth::Window;
use super::input::Input;
use super::stream;
use crate::driver::game::{Alarm, Standing, Watch};
use crate::game::{Checksum, Sums};
use crate::grpc::messages::{Tried, Try};
use crate::grpc::wire::{
    DoneRequest,
    rpc_game_client::{RpcGameClient, TRY},
};

pub(super) async fn play(
    channel: &Channel,
    input: &Input,
    options: &Options,
    deadline: Option<Instant>,
    mut received: Received<impl FnMut(Progress)>,
) -> Result<Outcome, Failure> {
    if let Some(place) = input.pairs().iter().position(|pair| std::str::from_utf8(&pair.name).is_err()) {
        return Err(Failure::NotText { place: place + 1 });
    }
    let mut window = window(options);
    if window.is_growing() && !stream::is_served(channel).await {
        window.be_careful();
    }
    received.start();
    let mut client = Checksum::default();
    let requests = (1..=options.messages).zip(input.cycle()).map(|(serial, (_, pair))| {
        client.add(&pair.name);
        client.add_number(pair.count);
        Request::new(Try { serial, name: &pair.name, count: pair.count })
    });
    let start = |request| channel.unary::<Try<'_>, Tried, _>(&TRY, request);
    windowed(requests, &mut window, start, Watch::new(deadline), |event| match event {
        CallEvent::Answer(_, Err(status)) if status.code() == Code::Unimplemented => Err(options.unserved(TRY_SERVED)),
        CallEvent::Answer(serial, answer) => {
            let answer = answer.map_err(|status| Failure::Refused { what: format!("message {serial}"), status })?;
            let value = answer.into_inner().0.map_err(|fault| Failure::Nonsense(fault.to_string()))?;
            received.value(value);
            Ok(())
        }
        CallEvent::Silence(standing) => {
            (received.progress)(Progress::Silent(standing));
            Ok(())
        }
        CallEvent::End(standing) => Err(options.late(Some(standing))),
    })
    .await?;
    let done = RpcGameClient::new(channel.clone()).done(DoneRequest {}).await;
    let sums = done.map_err(|status| Failure::Refused { what: "the game's end".to_owned(), status })?.into_inner();
    let theirs = Sums { client: checksum(&sums.client_checksum)?, server: checksum(&sums.server_checksum)? };
    Ok(Outcome { window_found: window.found(), ..received.outcome(client.value(), theirs) })
}

const TRY_SERVED: &str = "the RPC game, whose gRPC service is RPCGame: name the address of a server that does";

/// A window of one call, of the given size, or adapted to the server.
pub(super) fn window(options: &Options) -> Window {
    match options.transport {
        Transport::Unary => Window::Given(1),
        _ => Window::new(options.window),
    }
}

/// Event of the calls in flight.
enum CallEvent<Res> {
    /// The answer to the message with this serial.
    Answer(u64, Result<Response<Res>, Status>),
    /// No answer came for some time; it may still come.
    Silence(Standing),
    /// The time limit was exceeded.
    End(Standing),
}

/// Keeps up to a window of calls in flight; answers are taken in the order of the calls.
async fn windowed<Req, Res, Fut>(
    mut requests: impl Iterator<Item = Req>,
    window: &mut Window,
    mut start: impl FnMut(Req) -> Fut,
    mut watch: Watch,
    mut on_event: impl FnMut(CallEvent<Res>) -> Result<(), Failure>,
) -> Result<(), Failure>
where
    Fut: Future<Output = Result<Response<Res>, Status>>,
{
    let mut calls: VecDeque<Call<Fut, Res>> = VecDeque::new();
    let mut spares: Vec<Pin<Box<Option<Fut>>>> = Vec::new();
    let (mut answered, mut is_more) = (0, true);
    poll_fn(|cx| {
        loop {
            // Takes all ready answers in order, then begins as many new calls: they leave in one write.
            let before = answered;
            while let Some(first) = calls.front_mut() {
                let Poll::Ready(result) = first.poll(cx) else { break };
                answered += 1;
                on_event(CallEvent::Answer(answered, result))?;
                if let Some(done) = calls.pop_front() {
                    spares.push(done.future);
                }
            }
            if answered > before {
                window.answered(answered, watch.answered());
            }
            let before = calls.len();
            while is_more && (calls.len() as u64) < window.size() {
                let Some(request) = requests.next() else {
                    is_more = false;
                    break;
                };
                let mut future = spares.pop().unwrap_or_else(|| Box::pin(None));
                future.set(Some(start(request)));
                let mut call = Call { future, result: None };
                // A call begins when it is polled.
                call.begin(cx);
                calls.push_back(call);
            }
            if calls.is_empty() && !is_more {
                return Poll::Ready(Ok(()));
            }
            if calls.len() == before || calls.front().is_none_or(|first| first.result.is_none()) {
                break;
            }
        }
        let standing = Standing { serial: answered + 1, under_way: calls.len() as u64 };
        while let Some(alarm) = watch.poll(cx) {
            match alarm {
                Alarm::Silent => on_event(CallEvent::Silence(standing))?,
                Alarm::Over => return Poll::Ready(on_event(CallEvent::End(standing))),
            }
        }
        Poll::Pending
    })
    .await
}

struct Call<Fut, Res> {
    future: Pin<Box<Option<Fut>>>,
    /// The answer, if it was there at once.
    result: Option<Result<Response<Res>, Status>>,
}

impl<Fut, Res> Call<Fut, Res>
where
    Fut: Future<Output = Result<Response<Res>, Status>>,
{
    fn begin(&mut self, cx: &mut Context<'_>) {
        if let Some(future) = self.future.as_mut().as_pin_mut()
            && let Poll::Ready(result) = future.poll(cx)
        {
            self.result = Some(result);
        }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Response<Res>, Status>> {
        match self.result.take() {
            Some(result) => Poll::Ready(result),
            None => match self.future.as_mut().as_pin_mut() {
                Some(future) => future.poll(cx),
                None => Poll::Pending,
            },
        }
    }
}
