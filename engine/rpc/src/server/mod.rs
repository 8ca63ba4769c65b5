//! The server: services behind a listener, and an HTTP service beside them.

mod builder;
mod call;
mod calls;
mod contracts;
mod cors;
mod dialect;
mod driver;
mod encoded;
#[cfg(any(feature = "http1", feature = "tower"))]
mod exchange;
mod first_bytes;
mod held;
mod hosts;
#[cfg(feature = "http1")]
mod http1;
#[cfg(feature = "http1")]
mod http1_io;
mod http_calls;
#[cfg(any(feature = "http1", feature = "tower"))]
mod http_request;
mod limits;
mod listen;
mod memory;
mod method;
mod observer;
mod place;
mod plan;
mod reply;
mod request;
mod run;
mod running;
mod service;
mod shared;
mod sink;
mod source;
#[cfg(feature = "tower")]
mod tower;
mod turn;

pub use builder::Builder;
pub use call::{Answer, Answered, Call, Later};
pub(crate) use contracts::Contracts;
pub use cors::Cors;
pub use held::Held;
pub use limits::Limits;
pub use listen::Server;
pub use memory::{CUT, Charge, Memory};
pub use method::{AnswerStream, Method};
pub use observer::{CallReport, NoObserver, Observer, Refusal};
pub use quire_net::{Client, Share, Shares};
pub use service::{RefusedService, Service};
#[cfg(feature = "tower")]
pub use tower::HttpCalls;
