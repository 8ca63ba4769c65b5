//! Calls whose caller is gone: none is sent, and the server learns it of those that were.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use quire_rpc::client::{Channel, Connector, Settings};
use quire_rpc::server::Builder;
use quire_rpc::{Code, Limits, Request, Server, Status};
use rpc_testing::EchoService;
use rpc_testing::proto::Message;
use rpc_testing::proto::echo_client::EchoClient;
use rpc_testing::proto::echo_server::EchoServer;

use crate::support::{Counts, NEVER, begin, in_memory, text};

fn counted() -> (Arc<Counts>, Builder) {
    let counts = Arc::new(Counts::default());
    (Arc::clone(&counts), Server::builder().add_service(EchoServer::new(EchoService)).observer(counts))
}

fn patient(payload: &str) -> Request<Message> {
    let mut request = Request::new(text(payload));
    request.set_wait_for_ready(true);
    request
}

/// A call that is in the channel's queue.
async fn begun<F: Future>(call: F) -> Pin<Box<F>> {
    let mut call = Box::pin(call);
    assert!(poll_fn(|cx| Poll::Ready(call.as_mut().poll(cx).is_pending())).await);
    call
}

#[tokio::test(start_paused = true)]
async fn a_call_given_up_while_the_channel_backs_off_is_not_sent_when_the_server_is_back() {
    let (counts, server) = counted();
    let (server, is_back) = (server.build(), Arc::new(AtomicBool::new(false)));
    let reachable = Arc::clone(&is_back);
    let channel = Channel::builder("http://memory").unwrap().connector(move || {
        let (server, is_back) = (server.clone(), reachable.load(Ordering::Relaxed));
        async move { if is_back { server.connect().await } else { Err(io::ErrorKind::ConnectionRefused.into()) } }
    });
    let channel = channel.connect_lazy().unwrap();
    let client = EchoClient::new(channel.clone());
    channel.ready().await.unwrap_err();
    for _ in 0..3 {
        drop(begun(client.call(patient("given up"))).await);
        tokio::task::yield_now().await;
    }
    let waiting = client.call(patient("waits"));
    is_back.store(true, Ordering::Relaxed);
    waiting.await.unwrap();
    assert_eq!((counts.get("/testing.Echo/Call OK"), counts.get("/testing.Echo/Call CANCELLED")), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_call_given_up_before_its_connection_is_there_is_not_sent() {
    let (counts, server) = counted();
    let client = EchoClient::new(in_memory(server, Settings::default()));
    drop(begun(client.call(text("given up"))).await);
    client.call(text("x")).await.unwrap();
    assert_eq!((counts.get("/testing.Echo/Call OK"), counts.get("/testing.Echo/Call CANCELLED")), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_full_queue_takes_the_end_of_a_call() {
    let (counts, server) = counted();
    let client = EchoClient::new(in_memory(server, Settings { waiting_calls_max: 1, ..Settings::default() }));
    client.call(text("connects")).await.unwrap();
    let mut late = begun(client.late(NEVER)).await;
    // The connection's task takes the call.
    tokio::task::yield_now().await;
    // The server has it once a later one is answered.
    client.call(text("behind it")).await.unwrap();
    assert!(poll_fn(|cx| Poll::Ready(late.as_mut().poll(cx).is_pending())).await);
    let fills = begun(client.call(text("fills the queue"))).await;
    assert_eq!(client.call(text("too many")).await.unwrap_err().code(), Code::ResourceExhausted);
    drop(late);
    fills.await.unwrap();
    counts.until(|counts| counts.get("/testing.Echo/Late CANCELLED") == 1).await;
}

#[tokio::test(start_paused = true)]
async fn a_call_behind_goaway_is_cancelled_and_opens_no_connection() {
    let (counts, server) = counted();
    let age = Some(Duration::from_secs(1));
    let limits = Limits { connection_age_max: age, drain_timeout: Duration::from_secs(9999), ..Limits::default() };
    let client = EchoClient::new(in_memory(server.limits(limits), Settings::default()));
    let late = client.clone();
    let call = begin(&client, async move { late.late(NEVER).await }).await;
    let (sender, echoes) = crate::support::open(&client).await;
    let mut timed = Request::new(NEVER);
    timed.set_timeout(Duration::from_secs(5));
    let timed = {
        let client = client.clone();
        begin(&client.clone(), async move { client.late(timed).await }).await
    };
    // The server has sent GOAWAY by then.
    tokio::time::sleep(Duration::from_secs(2)).await;
    call.abort();
    counts.until(|counts| counts.get("/testing.Echo/Late CANCELLED") == 1).await;
    drop((sender, echoes));
    let late: Status = timed.await.unwrap().unwrap_err();
    assert_eq!(late.code(), Code::DeadlineExceeded);
    counts.until(|counts| counts.get("closed") == 1).await;
    assert_eq!(counts.get("opened"), 1);
}
