//! The client: a [`Channel`] to a server, or to several equivalent ones, over one or several connections.

mod call;
mod channel;
mod connection;
#[cfg(feature = "http1")]
mod http1;
mod service_config;
mod settings;
#[cfg(feature = "tower")]
mod tower;

pub use call::IntoStreamingRequest;
pub use call::path::{Path, PathRef};
pub use call::raw::{HttpAnswer, HttpFailure, HttpRequest, RawAnswer, RawReply, WireMessage};
pub use channel::target::{Address, Connector, NO_TLS, ONLY_TLS, Resolver, Traffic, UNTRUSTED};
pub use channel::{Builder, Channel};
pub use service_config::{
    HedgingPolicy, LoadBalancing, MethodConfig, Repeat, RetryPolicy, RetryThrottling, ServiceConfig, ServiceConfigError,
};
pub use settings::{ConnectError, HttpVersion, Protocol, Settings};
#[cfg(feature = "tower")]
pub use tower::HttpChannel;

pub use crate::failure::{TransportError, TransportFailure};
pub use crate::protocol::Codec;
