//! The pages that belong to no service: `/`, `/healthz`, `/metrics`, `/openapi` and `/openapi.json`.

use std::{
    fmt::{self, Write as _},
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
};

use axum::{
    Router,
    extract::{Request, State},
    http::{HeaderMap, StatusCode, header},
    response::{Html, IntoResponse},
    routing::get,
};
use bytes::Bytes;
use hosting::{Declared, Error, Front, Part, Route, Service, Site};
use operate::ServiceHealth;
use prometheus_client::{encoding::text, registry::Registry};
use quire_rpc::server::Builder;
use serde_json::{Value, json};
use tokio::sync::watch::Receiver;
use tower_service::Service as _;

use crate::process::SHORT;

/// The opened services.
pub(crate) type Services = Arc<[Box<dyn Service>]>;

/// `/healthz` and `/metrics`.
pub(crate) fn site(services: Services, short: Receiver<bool>, metrics: Arc<Registry>) -> Site {
    let health = [("/healthz", get(healthz), "ok, or 503 and what failed")];
    let metrics_page = [("/metrics", get(metrics_page), "counters and levels, for Prometheus")];
    Site::new((services, short), health).and(Site::new(metrics, metrics_page))
}

/// The services, and whether memory is short.
type Health = (Services, Receiver<bool>);

async fn healthz(State((services, short)): State<Health>) -> impl IntoResponse {
    let short = short.borrow().then(|| SHORT.to_owned());
    let page = health(short.into_iter().chain(services.iter().filter_map(|service| service.trouble())));
    if page.is_empty() { (StatusCode::OK, "ok\n".to_owned()) } else { (StatusCode::SERVICE_UNAVAILABLE, page) }
}

/// One line per failure.
fn health(troubles: impl Iterator<Item = String>) -> String {
    troubles.map(|trouble| trouble + "\n").collect()
}

/// The page `/metrics` as operators' figures read it; empty if it cannot be written.
pub(crate) fn metrics(metrics: Arc<Registry>) -> Box<dyn Fn() -> String + Send + Sync> {
    Box::new(move || {
        let mut page = String::new();
        text::encode(&mut page, &metrics).map(|()| page).unwrap_or_default()
    })
}

/// The health of each service, with the failures of `/healthz`.
pub(crate) fn health_of_each(
    services: Services,
    declared: Vec<Declared>,
    short: Receiver<bool>,
) -> Box<dyn Fn() -> Vec<ServiceHealth> + Send + Sync> {
    Box::new(move || {
        let server = ServiceHealth { name: "server", is_healthy: false, trouble: Some(SHORT.to_owned()) };
        let each = services.iter().zip(&declared).map(|(service, declared)| ServiceHealth {
            name: declared.name(),
            is_healthy: *service.healthy().borrow(),
            trouble: service.trouble(),
        });
        short.borrow().then_some(server).into_iter().chain(each).collect()
    })
}

/// `OpenMetrics` if the client accepts it, as Prometheus does; otherwise the format before it, which `promtool` reads.
async fn metrics_page(State(metrics): State<Arc<Registry>>, headers: HeaderMap) -> impl IntoResponse {
    let mut page = String::new();
    if let Err(error) = text::encode(&mut page, &metrics) {
        return (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response();
    }
    let (format, page) = if accepts(&headers, "application/openmetrics-text") {
        ("application/openmetrics-text; version=1.0.0; charset=utf-8", page)
    } else {
        ("text/plain; version=0.0.4; charset=utf-8", without_open_metrics(&page))
    };
    ([(header::CONTENT_TYPE, format), (header::VARY, "accept")], page).into_response()
}

/// The page in Prometheus' text format 0.0.4, whose families have their samples' names.
fn without_open_metrics(page: &str) -> String {
    let (mut text, mut help) = (String::with_capacity(page.len()), "");
    for line in page.lines() {
        // Writing to a string cannot fail.
        let _ = if let Some(found) = line.strip_prefix("# HELP ") {
            help = found;
            Ok(())
        } else if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|found| found.split_once(' ')) {
            let (suffix, kind) = match kind {
                "counter" => ("_total", "counter"),
                "info" => ("_info", "gauge"),
                kind => ("", kind),
            };
            let help = help.strip_prefix(name).unwrap_or_default();
            writeln!(text, "# HELP {name}{suffix}{help}\n# TYPE {name}{suffix} {kind}")
        } else if line.starts_with('#') {
            Ok(())
        } else {
            writeln!(text, "{line}")
        };
    }
    text
}

/// Contents of the page.
#[derive(Debug)]
pub(crate) struct Index<'a> {
    pub pages: &'a [Route<&'static str>],
    /// `/package.Service/Method`, grouped by service.
    pub methods: &'a [&'a str],
    pub ports: &'a [Route<SocketAddr>],
}

impl Index<'_> {
    /// Adds the page, and an answer for unknown paths.
    pub(crate) fn add_to(&self, router: Router) -> Router {
        let (mut text, mut html) = (String::new(), String::new());
        // Writing to a string cannot fail.
        let _ = self.write(&mut text, str::to_owned);
        let link = |path: &str| format!("<a href=\"{path}\">{path}</a>");
        let _ = self.write(&mut html, |path| if path.contains('{') { path.to_owned() } else { link(path) });
        let html =
            format!("<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>quire</title><pre>{html}</pre>");
        let page = async move |headers: HeaderMap| {
            let (kind, body) = if accepts(&headers, "text/html") { ("text/html", html) } else { ("text/plain", text) };
            let headers =
                [(header::CONTENT_TYPE, format!("{kind}; charset=utf-8")), (header::VARY, "accept".to_owned())];
            (headers, body)
        };
        router.route("/", get(page)).fallback(nothing_here)
    }

    fn write(&self, page: &mut String, link: impl Fn(&str) -> String) -> fmt::Result {
        writeln!(page, "quire {}", env!("CARGO_PKG_VERSION"))?;
        writeln!(page, "\nHTTP, on this port:")?;
        for (path, what) in self.pages {
            let path = &shown(path);
            let space = " ".repeat(20_usize.saturating_sub(path.len()));
            writeln!(page, "  {}{space} {what}", link(path))?;
        }
        writeln!(page, "\ngRPC, gRPC-Web and Connect, on this port; reflection and /openapi list the messages:")?;
        let service = |path: &str| path.trim_start_matches('/').split('/').next().unwrap_or_default().to_owned();
        for methods in self.methods.chunk_by(|one, next| service(one) == service(next)) {
            let names: Vec<_> = methods.iter().filter_map(|path| path.rsplit('/').next()).collect();
            writeln!(page, "  {}: {}", service(methods[0]), names.join(", "))?;
        }
        if !self.ports.is_empty() {
            writeln!(page, "\nOther ports:")?;
        }
        for (address, what) in self.ports {
            writeln!(page, "  {:<20} {what}", address.to_string())?;
        }
        Ok(())
    }
}

/// True if the client lists this media type; browsers list HTML.
fn accepts(headers: &HeaderMap, kind: &str) -> bool {
    let accepted = headers.get_all(header::ACCEPT).iter();
    accepted.filter_map(|accept| accept.to_str().ok()).any(|accept| accept.contains(kind))
}

/// Gives requests of browsers to the pages that are made for them, and all others to `pages`.
pub(crate) fn with_fronts(pages: Router, fronts: Vec<Front>) -> Router {
    if fronts.is_empty() {
        return pages;
    }
    let choose = move |request: Request| {
        let is_below = |front: &&Front| {
            let below = request.uri().path().strip_prefix(front.folder);
            below.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let is_start = request.uri().path() == "/" && accepts(request.headers(), "text/html");
        let front = if is_start { fronts.first() } else { fronts.iter().find(is_below) };
        // A router is always ready.
        front.map_or(&pages, |front| &front.router).clone().call(request)
    };
    Router::new().fallback(choose)
}

async fn nothing_here() -> impl IntoResponse {
    (StatusCode::NOT_FOUND, "there is nothing at this path; / lists what is here\n")
}

/// The document, rebuilt when a service's part changes with the data it has loaded.
struct Document {
    fixed: Value,
    parts: Vec<Part>,
    /// The parts, and the document made of them.
    written: Mutex<(Vec<Value>, Bytes)>,
}

impl Document {
    fn written(&self) -> Bytes {
        let parts: Vec<Value> = self.parts.iter().map(|part| part()).collect();
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        let (known, bytes) = &mut *written;
        if bytes.is_empty() || *known != parts {
            let mut document = self.fixed.clone();
            for part in &parts {
                openapi::add(&mut document, part);
            }
            (*known, *bytes) = (parts, document.to_string().into());
        }
        bytes.clone()
    }
}

/// Adds both pages to a site. The document describes the methods of `builder`, and the parts and pages of the site.
pub(crate) fn describe(mut site: Site, builder: &Builder) -> Result<Site, Error> {
    let mut fixed = openapi::document("Quire", env!("CARGO_PKG_VERSION"), &builder.descriptors(), builder.services())?;
    let own = [("/openapi", "every method and path, to try out"), ("/openapi.json", "the same as an OpenAPI document")];
    let parts = std::mem::take(&mut site.parts);
    let described: Vec<Value> = parts.iter().map(|part| part()).collect();
    let is_described = |path: &str| described.iter().any(|part| part["paths"].get(path).is_some());
    for (path, what) in site.pages.iter().chain(&own).filter(|(path, _)| !is_described(path)) {
        let path = shown(path);
        fixed["paths"][&path] = path_entry(&path, what);
    }
    let document = Arc::new(Document { fixed, parts, written: Mutex::default() });
    let [(page_path, about_page), (document_path, about_document)]: [Route<&str>; 2] = own;
    let links: Vec<(&str, &str)> = site.fronts.iter().map(|front| (front.name, front.folder)).collect();
    let page = get(Html(openapi::page(&links)));
    let handlers = [(page_path, page, about_page), (document_path, get(openapi_json), about_document)];
    Ok(site.and(Site::new(document, handlers)))
}

/// A path as documents have it.
fn shown(path: &str) -> String {
    path.replace("{*", "{")
}

/// Entry of a path without details.
fn path_entry(path: &str, what: &str) -> Value {
    let responses = json!({ "default": { "description": what } });
    let names = path.split('{').skip(1).filter_map(|rest| rest.split('}').next());
    let parameter = |name| json!({ "name": name, "in": "path", "required": true, "schema": { "type": "string" } });
    let parameters: Vec<Value> = names.map(parameter).collect();
    json!({ "get": { "operationId": path, "summary": what, "parameters": parameters, "responses": responses } })
}

async fn openapi_json(State(document): State<Arc<Document>>) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "application/json")], document.written())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn health_names_everything_that_failed() {
        let page = |troubles: &[&str]| health(troubles.iter().map(|trouble| (*trouble).to_owned()));
        assert_eq!(page(&[]), "");
        assert_eq!(page(&["keys are damaged"]), "keys are damaged\n");
        assert_eq!(page(&["the store failed", "keys are damaged"]).lines().count(), 2);
    }

    #[test]
    fn what_there_is_is_listed_by_service_and_by_port() {
        let index = Index {
            pages: &[("/healthz", "ok, or what failed")],
            methods: &["/a.B/One", "/a.B/Two", "/c.D/Three"],
            ports: &[(([127, 0, 0, 1], 80).into(), "tasks")],
        };
        let mut page = String::new();
        index.write(&mut page, |path| format!("<{path}>")).expect("a page");
        let lines: Vec<&str> = page.lines().skip(1).filter(|line| !line.is_empty()).collect();
        assert_eq!(
            lines,
            [
                "HTTP, on this port:",
                "  </healthz>             ok, or what failed",
                "gRPC, gRPC-Web and Connect, on this port; reflection and /openapi list the messages:",
                "  a.B: One, Two",
                "  c.D: Three",
                "Other ports:",
                "  127.0.0.1:80         tasks",
            ]
        );
        let nothing = Index { pages: &[], methods: &[], ports: &[] };
        let mut page = String::new();
        nothing.write(&mut page, str::to_owned).expect("a page");
        assert!(!page.contains("Other ports"), "{page}");
    }
}
