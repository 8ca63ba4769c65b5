//! HTTP/1.1 for operators and machines: is the server well, and what has it counted.

use std::sync::Arc;

use axum::{
    Router,
    extract::State,
    http::{StatusCode, header},
    response::IntoResponse,
    routing::get,
};
use bookstore::Bookstore;
use prometheus_client::{encoding::text, registry::Registry};

use crate::services::kv::Kv;

use crate::index::Page;

/// What the pages show.
#[derive(Clone)]
pub(crate) struct Pages {
    pub store: Bookstore,
    /// `None` when the key-value service is off.
    pub kv: Option<Kv>,
    pub registry: Arc<Registry>,
}

/// What is answered over HTTP, with a line about each path for the page that lists them.
#[derive(Default)]
pub(crate) struct Site {
    pub router: Router,
    pub pages: Vec<Page>,
}

impl Site {
    pub(crate) fn of_operators(state: Pages) -> Self {
        let site = [
            ("/healthz", get(healthz), "ok, or 503 and what failed"),
            ("/metrics", get(metrics_page), "counters and levels, for Prometheus"),
        ];
        let pages = site.iter().map(|(path, _, what)| (*path, *what)).collect();
        let router = site.into_iter().fold(Router::new(), |router, (path, answer, _)| router.route(path, answer));
        Self { router: router.with_state(state), pages }
    }

    /// Adds what a service answers.
    pub(crate) fn and(self, other: Self) -> Self {
        Self { router: self.router.merge(other.router), pages: [self.pages, other.pages].concat() }
    }
}

async fn healthz(State(pages): State<Pages>) -> impl IntoResponse {
    let words = unsound(*pages.store.sound().borrow(), pages.kv.as_ref().and_then(Kv::trouble).as_deref());
    if words.is_empty() { (StatusCode::OK, "ok\n".to_owned()) } else { (StatusCode::SERVICE_UNAVAILABLE, words) }
}

/// What is not well, a line each.
fn unsound(store: bool, kv: Option<&str>) -> String {
    let store = (!store).then_some("the store failed and is being read back; purchases are refused");
    [store, kv].into_iter().flatten().map(|line| format!("{line}\n")).collect()
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

#[cfg(test)]
mod tests {
    use super::unsound;

    #[test]
    fn health_names_whatever_failed() {
        assert_eq!(unsound(true, None), "");
        assert_eq!(unsound(true, Some("keys are damaged")), "keys are damaged\n");
        assert!(unsound(false, None).starts_with("the store failed"));
        assert_eq!(unsound(false, Some("keys are damaged")).lines().count(), 2);
    }
}
