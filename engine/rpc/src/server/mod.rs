//! The server: services behind a listener, and an HTTP service beside them.

mod accept;
mod browser;
mod builder;
mod call;
mod connection;
mod deadlines;
#[cfg(any(feature = "http1", feature = "tower"))]
mod http1;
mod limits;
mod memory;
mod observer;
mod registry;
mod reply;
#[cfg(feature = "channelz")]
mod shown;
#[cfg(feature = "channelz")]
mod shown_servers;
#[cfg(feature = "tower")]
mod tower;

pub use accept::Server;
pub use accept::incoming::Incoming;
pub use browser::Cors;
pub use builder::Builder;
pub(crate) use call::plan::Contracts;
pub use call::service::{Answer, AnswerStream, Answered, Call, Later, LocalArc, Method, RefusedService, Service};
pub use deadlines::Deadlines;
pub use limits::Limits;
pub use memory::{CUT, Charge, Memory};
pub use observer::{CallDetails, CallReport, CallSpan, CallTimes, NoObserver, Observer, Refusal};
pub use quire_net::{Client, Live, Share, Shares};
pub(crate) use registry::ConnectionState;
pub use registry::{ConnectionRegistry, ListedCaller, ListedConnection, Metered, OpenConnection};
#[cfg(feature = "channelz")]
pub(crate) use shown::ShownSocket;
#[cfg(feature = "channelz")]
pub(crate) use shown_servers::{ShownServer, ShownServers};
#[cfg(feature = "tower")]
pub use tower::HttpCalls;
