//! HTTP/1.1 for operators and machines: is the server well, and what has it counted.

use std::sync::Arc;

use axum::{Router, extract::State, http::StatusCode, http::header, response::IntoResponse, routing::get};
use bookstore::Bookstore;
use prometheus_client::{encoding::text, registry::Registry};

/// What the pages show.
#[derive(Clone)]
pub(crate) struct Pages {
    pub store: Bookstore,
    pub registry: Arc<Registry>,
}

pub(crate) fn router(pages: Pages) -> Router {
    Router::new().route("/healthz", get(healthz)).route("/metrics", get(metrics_page)).with_state(pages)
}

async fn healthz(State(pages): State<Pages>) -> impl IntoResponse {
    if *pages.store.sound().borrow() {
        (StatusCode::OK, "ok\n")
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "the store failed and is being read back; purchases are refused\n")
    }
}

async fn metrics_page(State(pages): State<Pages>) -> impl IntoResponse {
    let mut page = String::new();
    match text::encode(&mut page, &pages.registry) {
        Ok(()) => ([(header::CONTENT_TYPE, FORMAT)], page).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

/// What Prometheus asks for since version 2.5.
const FORMAT: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
