//! The storefront: the bookstore as pages for browsers, at `/` and below `/shop`.
//!
//! [`browse`] and [`purchase`] turn requests into calls of the [`Bookstore`](bookstore::Bookstore), [`views`] answers into
//! pages. These are templates, rendered from the catalogue in memory. Must not know a transport of the bookstore, nor another
//! service.

mod assets;
mod browse;
mod keys;
mod live;
mod locale;
mod purchase;
mod request;
mod routes;
mod service;
mod shop;
mod views;
mod visit;

pub use live::STREAMS_MAX;
pub use service::{Settings, WebService};
