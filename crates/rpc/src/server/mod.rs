//! The server: services behind a listener, and what else speaks HTTP there.
//!
//! Must not know any service of the application.
//!
//! Implements: no specification; its modules do.

mod builder;
mod call;
mod calls;
mod contracts;
mod cors;
mod dialect;
mod discard;
mod driver;
#[cfg(feature = "http1")]
mod exchange;
mod first_bytes;
mod gather;
#[cfg(feature = "http1")]
mod http1;
mod http_calls;
mod limits;
mod listen;
mod method;
mod observer;
mod plan;
mod reply;
mod report;
#[cfg(feature = "http1")]
mod request_head;
mod run;
mod running;
mod service;
mod shared;
mod sink;
mod slot;

pub use builder::Builder;
pub use call::{Answer, Answered, Call, Later};
pub(crate) use contracts::Contracts;
pub use cors::Cors;
pub use limits::Limits;
pub use listen::Server;
pub use method::Method;
pub use observer::{CallReport, NoObserver, Observer, Refusal};
pub use service::{RefusedService, Service};
