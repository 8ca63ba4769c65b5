//! HTTP/1.1 for operators and machines: health and metrics.

use std::sync::Arc;

use axum::{
    extract::State,
    http::{StatusCode, header},
    response::IntoResponse,
    routing::get,
};
use hosting::{Service, Site};
use prometheus_client::{encoding::text, registry::Registry};
use tokio::sync::watch::Receiver;

use crate::memory;

/// The opened services.
pub(crate) type Services = Arc<[Box<dyn Service>]>;

/// `/healthz` and `/metrics`.
pub(crate) fn site(services: Services, short: Receiver<bool>, metrics: Registry) -> Site {
    let health = [("/healthz", get(healthz), "ok, or 503 and what failed")];
    let metrics_page = [("/metrics", get(metrics_page), "counters and levels, for Prometheus")];
    Site::new((services, short), health).and(Site::new(Arc::new(metrics), metrics_page))
}

/// The services, and whether memory is short.
type Health = (Services, Receiver<bool>);

async fn healthz(State((services, short)): State<Health>) -> impl IntoResponse {
    let short = short.borrow().then(|| memory::SHORT.to_owned());
    let page = health(short.into_iter().chain(services.iter().filter_map(|service| service.trouble())));
    if page.is_empty() { (StatusCode::OK, "ok\n".to_owned()) } else { (StatusCode::SERVICE_UNAVAILABLE, page) }
}

/// One line per failure.
fn health(troubles: impl Iterator<Item = String>) -> String {
    troubles.map(|trouble| trouble + "\n").collect()
}

async fn metrics_page(State(metrics): State<Arc<Registry>>) -> impl IntoResponse {
    let mut page = String::new();
    match text::encode(&mut page, &metrics) {
        Ok(()) => ([(header::CONTENT_TYPE, FORMAT)], page).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

/// Format that Prometheus requests since version 2.5.
const FORMAT: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

#[cfg(test)]
mod tests {
    use super::health;

    #[test]
    fn health_names_everything_that_failed() {
        let page = |troubles: &[&str]| health(troubles.iter().map(|trouble| (*trouble).to_owned()));
        assert_eq!(page(&[]), "");
        assert_eq!(page(&["keys are damaged"]), "keys are damaged\n");
        assert_eq!(page(&["the store failed", "keys are damaged"]).lines().count(), 2);
    }
}
