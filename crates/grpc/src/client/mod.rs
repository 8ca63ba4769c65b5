//! The client: a [`Channel`] to one server, over one or several connections.
//!
//! Must not know generated code; that calls the four methods of the channel, one for each shape.
//!
//! Implements: the four kinds of method of gRPC's "Core concepts".

mod builder;
mod call;
mod calls;
mod connection;
mod lane;
mod raw;
mod reply;
mod retry;
mod send;
mod traffic;

use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use futures_core::Stream;

pub use builder::{Builder, ConnectError, Settings};
pub use raw::{RawAnswer, RawReply, WireMessage};
pub use retry::RetryPolicy;
pub use traffic::Traffic;

use crate::codec::{Decode, Encode};
use crate::envelope::{Request, Response};
use crate::status::Status;
use crate::streaming::Streaming;
use lane::Lane;

/// The path of a method; generated code has one static for each.
#[derive(Debug)]
pub struct Path {
    text: &'static str,
    number: OnceLock<usize>,
}

impl Path {
    /// `/package.Service/Method`.
    pub const fn new(text: &'static str) -> Self {
        Self { text, number: OnceLock::new() }
    }

    /// The path of a method whose name is known only at run time. Each distinct text is kept until the process ends, so
    /// it must come from a method's description or an operator, never from a peer that can make up more.
    pub fn named(text: &str) -> &'static Self {
        static NAMED: OnceLock<Mutex<HashMap<&'static str, &'static Path>>> = OnceLock::new();
        let mut named = NAMED.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(path) = named.get(text) {
            return path;
        }
        let path: &'static Self = Box::leak(Box::new(Self::new(String::from(text).leak())));
        named.insert(path.text, path);
        path
    }

    /// A small number of its own, for tables.
    fn number(&self) -> usize {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        *self.number.get_or_init(|| NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// What can be sent to a method that takes a stream: a stream, or one in a [`Request`].
pub trait IntoStreamingRequest {
    /// The stream.
    type Stream: Stream<Item = Self::Message> + Send + 'static;
    /// Its messages.
    type Message;
    /// With metadata around it.
    fn into_streaming_request(self) -> Request<Self::Stream>;
}

impl<S: Stream + Send + 'static> IntoStreamingRequest for S {
    type Stream = S;
    type Message = S::Item;

    fn into_streaming_request(self) -> Request<S> {
        Request::new(self)
    }
}

impl<S: Stream + Send + 'static> IntoStreamingRequest for Request<S> {
    type Stream = S;
    type Message = S::Item;

    fn into_streaming_request(self) -> Self {
        self
    }
}

struct Inner {
    lanes: Vec<Arc<Lane>>,
    next: AtomicUsize,
    settings: Arc<Settings>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.lanes.iter().for_each(|lane| lane.close());
    }
}

/// A way to one server; clones share its connections, which close when the last clone is dropped.
#[derive(Clone)]
pub struct Channel {
    inner: Arc<Inner>,
}

impl fmt::Debug for Channel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Channel({} connections)", self.inner.lanes.len())
    }
}

impl Channel {
    /// A channel to `http://host:port` or `https://host:port`.
    pub fn builder(address: &str) -> Result<Builder, ConnectError> {
        Builder::new(address)
    }

    fn new(lanes: Vec<Arc<Lane>>, settings: Arc<Settings>) -> Self {
        Self { inner: Arc::new(Inner { lanes, next: AtomicUsize::new(0), settings }) }
    }

    /// The next connection in turn, passing over those that cannot be reached.
    fn lane(&self) -> &Arc<Lane> {
        let lanes = &self.inner.lanes;
        let first = self.inner.next.fetch_add(1, Ordering::Relaxed);
        let turns = (0..lanes.len()).map(|offset| &lanes[first.wrapping_add(offset) % lanes.len()]);
        turns.clone().find(|lane| !lane.is_failing()).unwrap_or(&lanes[first % lanes.len()])
    }

    /// Waits until a connection stands and the server has spoken on it, or for the failure of the try. No call was sent
    /// if it fails.
    pub async fn ready(&self) -> Result<(), ConnectError> {
        self.lane().ready().await
    }

    /// Lets every call finish, takes no new ones, and closes.
    pub async fn close(&self) {
        for lane in &self.inner.lanes {
            lane.close();
        }
        for lane in &self.inner.lanes {
            lane.closed().await;
        }
    }

    /// Bytes that went over the sockets of all connections so far, TLS and HTTP/2 included.
    pub fn traffic(&self) -> Traffic {
        self.inner.lanes.iter().map(|lane| lane.traffic()).fold(Traffic::default(), Traffic::plus)
    }

    /// One message there, one back.
    pub fn unary<Req, Res>(
        &self,
        path: &'static Path,
        request: Request<Req>,
    ) -> impl Future<Output = Result<Response<Res>, Status>> + Send + use<Req, Res>
    where
        Req: Encode,
        Res: Decode,
    {
        call::unary(self.clone(), path, request)
    }

    /// One message there, a stream back.
    pub async fn server_streaming<Req, Res>(
        &self,
        path: &'static Path,
        request: Request<Req>,
    ) -> Result<Response<Streaming<Res>>, Status>
    where
        Req: Encode + 'static,
        Res: Decode,
    {
        let request = request.map(call::Single::new);
        call::streaming(self, path, request).await
    }

    /// A stream there, one message back.
    pub async fn client_streaming<S, Res>(
        &self,
        path: &'static Path,
        request: Request<S>,
    ) -> Result<Response<Res>, Status>
    where
        S: Stream + Send + 'static,
        S::Item: Encode,
        Res: Decode,
    {
        let reply = call::streaming(self, path, request).await?;
        call::only_message(reply).await
    }

    /// A stream there, a stream back.
    pub async fn bidi_streaming<S, Res>(
        &self,
        path: &'static Path,
        request: Request<S>,
    ) -> Result<Response<Streaming<Res>>, Status>
    where
        S: Stream + Send + 'static,
        S::Item: Encode,
        Res: Decode,
    {
        call::streaming(self, path, request).await
    }
}
