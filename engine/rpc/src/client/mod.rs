//! The client: a [`Channel`] to a server, or to several equivalent ones, over one or several connections.

mod call;
mod channel;
mod connection;
#[cfg(feature = "http1")]
mod http1;
mod settings;
#[cfg(feature = "tower")]
mod tower;

pub use call::IntoStreamingRequest;
pub use call::path::{Path, PathRef};
pub use call::raw::{HttpAnswer, HttpFailure, HttpRequest, RawAnswer, RawReply, WireMessage};
pub use channel::target::{Address, Connector, NO_TLS, ONLY_TLS, Resolver, Traffic, UNTRUSTED};
pub use channel::{Builder, Channel};
pub use settings::{ConnectError, HttpVersion, Protocol, RetryPolicy, Settings};
#[cfg(feature = "tower")]
pub use tower::HttpChannel;

pub use crate::failure::{TransportError, TransportFailure};
pub use crate::protocol::Codec;
