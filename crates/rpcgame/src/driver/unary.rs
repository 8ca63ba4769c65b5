//! A gRPC call for each message, as many at a time as the window allows.
//!
//! Calls are begun in the order of their serials and taken in that order, so that the values need no sorting.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll};

use ::grpc::client::{Channel, Path};
use ::grpc::{Request, Response, Status};

use super::{Failure, Input, Outcome, Received, checksum};
use crate::checksum::{Checksum, Sums};
use crate::grpc::messages::{Try, read_value};
use crate::grpc::raw::{RawTryRequest, RawTryResponse};
use crate::grpc::wire::{DoneRequest, rpc_game_client::RpcGameClient};

static TRY: Path = Path::new("/RPCGame/Try");

pub(super) async fn play(
    channel: &Channel,
    input: &Input,
    messages: u64,
    window: u64,
    mut received: Received<impl FnMut(u64)>,
) -> Result<Outcome, Failure> {
    if let Some(place) = input.pairs().iter().position(|pair| std::str::from_utf8(&pair.name).is_err()) {
        return Err(Failure::NotText { place: place + 1 });
    }
    received.start();
    let mut client = Checksum::default();
    let requests = (1..=messages).zip(input.cycle()).map(|(serial, (_, pair))| {
        client.add(&pair.name);
        client.add_number(pair.count);
        let mut request = RawTryRequest::default();
        Try { serial, name: &pair.name, count: pair.count }.write(request.bytes_mut());
        Request::new(request)
    });
    let start = |request| channel.unary::<RawTryRequest, RawTryResponse>(&TRY, request);
    windowed(requests, window, start, |serial, answer| {
        let answer = answer.map_err(|status| Failure::Refused { what: format!("message {serial}"), status })?;
        let value = read_value(answer.get_ref().bytes()).map_err(|fault| Failure::Nonsense(fault.to_string()))?;
        received.value(value);
        Ok(())
    })
    .await?;
    let done = RpcGameClient::new(channel.clone()).done(DoneRequest {}).await;
    let sums = done.map_err(|status| Failure::Refused { what: "the game's end".to_owned(), status })?.into_inner();
    let theirs = Sums { client: checksum(&sums.client_checksum)?, server: checksum(&sums.server_checksum)? };
    Ok(received.outcome(client.value(), theirs))
}

/// Keeps up to `window` calls under way; answers are taken in the order of the calls.
async fn windowed<Req, Res, Fut>(
    mut requests: impl Iterator<Item = Req>,
    window: u64,
    mut start: impl FnMut(Req) -> Fut,
    mut answer: impl FnMut(u64, Result<Response<Res>, Status>) -> Result<(), Failure>,
) -> Result<(), Failure>
where
    Fut: Future<Output = Result<Response<Res>, Status>>,
{
    let window = usize::try_from(window).unwrap_or(usize::MAX);
    let mut calls: VecDeque<Call<Fut, Res>> = VecDeque::new();
    let mut spares: Vec<Pin<Box<Option<Fut>>>> = Vec::new();
    let (mut serial, mut is_more) = (0, true);
    poll_fn(|cx| {
        loop {
            // All of the first answers that are there, then as many new calls: they leave in one write.
            while let Some(first) = calls.front_mut() {
                let Poll::Ready(result) = first.poll(cx) else { break };
                serial += 1;
                answer(serial, result)?;
                if let Some(done) = calls.pop_front() {
                    spares.push(done.future);
                }
            }
            let before = calls.len();
            while is_more && calls.len() < window {
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
                return Poll::Pending;
            }
        }
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
