//! The client: a [`Channel`] to a server, or to several equivalent ones, over one or several connections.

mod answer;
mod answers;
mod builder;
mod call;
mod calls;
mod channel;
mod command;
mod connection;
#[cfg(feature = "http1")]
mod exchange;
mod http;
#[cfg(any(feature = "http1", feature = "tower"))]
mod http_call;
mod http_head;
mod lane;
#[cfg(feature = "tower")]
mod layered;
mod path;
#[cfg(feature = "http1")]
mod pool;
mod raw;
mod reconnect;
mod request;
mod resolve;
mod retry;
mod send;
mod settings;
mod target;
mod terms;
#[cfg(feature = "tower")]
mod tower;
mod traffic;

pub use builder::Builder;
pub use call::IntoStreamingRequest;
pub use channel::Channel;
pub use http::{HttpAnswer, HttpFailure, HttpRequest};
pub use path::{Path, PathRef};
pub use raw::{RawAnswer, RawReply, WireMessage};
pub use resolve::{Address, Resolver};
pub use retry::RetryPolicy;
pub use settings::{ConnectError, HttpVersion, Protocol, Settings};
pub use target::{NO_TLS, ONLY_TLS, UNTRUSTED};
#[cfg(feature = "tower")]
pub use tower::HttpChannel;
pub use traffic::Traffic;

pub use crate::protocol::Codec;
