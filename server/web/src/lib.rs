//! Pages for browsers: the storefront, at `/` and below `/shop`, and the operator's [`room`], below `/admin`.
//!
//! In the storefront [`browse`] and [`purchase`] turn requests into calls of the [`Bookstore`](bookstore::Bookstore), [`views`]
//! answers into pages. These are templates, rendered from the catalogue in memory. Only the room knows services beside the
//! bookstore, and neither knows a transport of any.

mod assets;
mod browse;
mod keys;
mod live;
mod locale;
mod purchase;
mod request;
mod room;
mod routes;
mod service;
mod shop;
mod views;
mod visit;

pub use live::STREAMS_MAX;
pub use room::STREAMS_MAX as ROOM_STREAMS_MAX;
pub use service::{Settings, WebService};
