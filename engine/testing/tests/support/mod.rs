//! A server on its own port, and raw frames for misbehaving peers.
#![allow(dead_code, reason = "each test file uses its part")]

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use quire_rpc::client::{Channel, Settings};
use quire_rpc::server::{Builder, CallReport, Observer, Refusal};
use quire_rpc::{Limits, Server, Streaming, unfold};
use rpc_testing::proto::Message;
use rpc_testing::proto::echo_client::EchoClient;
use rpc_testing::proto::echo_server::EchoServer;
use rpc_testing::{EchoService, PlainHttp};
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::mpsc::{Sender, channel};
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinHandle;

/// Counters fed by the server's observer.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    counts: Mutex<BTreeMap<String, u64>>,
    changed: Notify,
}

/// Longer than anything here takes on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

impl Counts {
    fn add(&self, what: String) {
        *self.counts.lock().unwrap().entry(what).or_default() += 1;
        self.changed.notify_waiters();
    }

    /// Waits until the counters satisfy `holds`.
    pub(crate) async fn until(&self, holds: impl Fn(&Self) -> bool) {
        let waiting = async {
            loop {
                let changed = self.changed.notified();
                if holds(self) {
                    return;
                }
                changed.await;
            }
        };
        let outcome = tokio::time::timeout(PATIENCE, waiting).await;
        outcome.unwrap_or_else(|_| panic!("it does not come to that: {:?}", self.counts));
    }

    pub(crate) fn get(&self, what: &str) -> u64 {
        self.counts.lock().unwrap().get(what).copied().unwrap_or(0)
    }
}

impl Observer for Counts {
    fn connection_opened(&self, _: Option<SocketAddr>) {
        self.add("opened".to_owned());
    }

    fn connection_closed(&self, _: Option<SocketAddr>, reason: &str) {
        self.add("closed".to_owned());
        self.add(format!("closed: {reason}"));
    }

    fn call_finished(&self, call: &CallReport<'_>) {
        self.add(format!("{} {}", call.path, call.code.name()));
    }

    fn refused(&self, limit: Refusal) {
        self.add(format!("refused {limit:?}"));
    }
}

/// Binds a port of this machine without listening. Connections are refused until the socket listens, and no other
/// process can bind the port.
pub(crate) fn refusing() -> (TcpSocket, SocketAddr) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = socket.local_addr().unwrap();
    (socket, address)
}

pub(crate) struct Running {
    pub(crate) address: SocketAddr,
    pub(crate) server: Server,
    pub(crate) counts: Arc<Counts>,
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<()>,
}

impl Running {
    pub(crate) async fn with(limits: Limits, change: impl FnOnce(Builder) -> Builder) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        Self::on(listener, limits, change)
    }

    pub(crate) fn on(listener: TcpListener, limits: Limits, change: impl FnOnce(Builder) -> Builder) -> Self {
        let address = listener.local_addr().unwrap();
        let counts = Arc::new(Counts::default());
        let builder = Server::builder()
            .add_service(EchoServer::new(EchoService))
            .http(PlainHttp)
            .observer(Arc::clone(&counts) as Arc<dyn Observer>)
            .limits(limits);
        let server = change(builder).build();
        let (stop, stopped) = oneshot::channel();
        let serving = server.clone();
        let task = tokio::spawn(async move {
            let stopped = async {
                let _ = stopped.await;
            };
            serving.serve(listener, stopped).await.unwrap();
        });
        Self { address, server, counts, stop: Some(stop), task }
    }

    pub(crate) async fn new(limits: Limits) -> Self {
        Self::with(limits, |builder| builder).await
    }

    pub(crate) async fn channel(&self, settings: Settings) -> Channel {
        Channel::builder(&format!("http://{}", self.address)).unwrap().settings(settings).connect().await.unwrap()
    }

    pub(crate) async fn client(&self) -> EchoClient {
        EchoClient::new(self.channel(Settings::default()).await)
    }

    /// Begins the drain.
    pub(crate) fn stop(&mut self) {
        self.stop.take().unwrap().send(()).unwrap();
    }

    /// Drains and waits for the end.
    pub(crate) async fn stopped(mut self) -> Arc<Counts> {
        if self.stop.is_some() {
            self.stop();
        }
        self.task.await.unwrap();
        self.counts
    }
}

/// A channel to a server of this process over pipes: under paused time they take none.
pub(crate) fn in_memory(server: Builder, settings: Settings) -> Channel {
    let builder = Channel::builder("http://memory").unwrap().settings(settings);
    builder.connector(server.build()).connect_lazy().unwrap()
}

/// Starts a call, and returns once the server has it: a later call on the connection is answered.
pub(crate) async fn begin<T: Send + 'static>(
    client: &EchoClient,
    call: impl Future<Output = T> + Send + 'static,
) -> JoinHandle<T> {
    let mut call = Box::pin(call);
    std::future::poll_fn(|cx| {
        assert!(call.as_mut().poll(cx).is_pending());
        Poll::Ready(())
    })
    .await;
    client.call(text("behind it")).await.unwrap();
    tokio::spawn(call)
}

pub(crate) fn text(payload: &str) -> Message {
    Message { payload: payload.as_bytes().to_vec(), ..Message::default() }
}

pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// Client preface and empty SETTINGS.
pub(crate) fn greeting() -> Vec<u8> {
    [&quire_rpc::http2::PREFACE[..], &frame(4, 0, 0, &[])[..]].concat()
}

/// Header block of a call of `/testing.Echo/<method>`.
pub(crate) fn call_head(method: &str) -> Vec<u8> {
    let path = format!("/testing.Echo/{method}");
    let mut block = vec![0x83, 0x86, 0x04, u8::try_from(path.len()).unwrap()];
    block.extend_from_slice(path.as_bytes());
    block.extend_from_slice(&[0x0f, 0x10, 16]);
    block.extend_from_slice(b"application/grpc");
    block
}

/// Resident memory of this process, in bytes.
pub(crate) fn resident_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() * 1024
}

/// A request whose reply takes longer than any test.
pub(crate) const NEVER: Message = Message { payload: Vec::new(), delay_ms: 3_600_000, fail: 0, count: 0 };

/// A call that the server has begun, and that lasts as long as its sender.
pub(crate) async fn open(client: &EchoClient) -> (Sender<Message>, Streaming<Message>) {
    let (sender, receiver) = channel(1);
    let outgoing = unfold(receiver, |mut receiver| async move { Some((receiver.recv().await?, receiver)) });
    (sender, client.each(outgoing).await.unwrap().into_inner())
}
