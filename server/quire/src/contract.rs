//! `/openapi.json`, the description of the HTTP interface, and the page `/openapi` that explores it.

use std::sync::{Arc, Mutex, PoisonError};

use axum::{
    extract::State,
    http::header,
    response::{Html, IntoResponse},
    routing::get,
};
use bytes::Bytes;
use hosting::{Error, Part, Route, Site};
use quire_rpc::server::Builder;
use serde_json::{Value, json};

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
pub(crate) fn add_to(mut site: Site, builder: &Builder) -> Result<Site, Error> {
    let mut fixed = openapi::document("Quire", env!("CARGO_PKG_VERSION"), &builder.descriptors(), builder.services())?;
    let own = [("/openapi", "every method and path, to try out"), ("/openapi.json", "the same as an OpenAPI document")];
    let parts = std::mem::take(&mut site.parts);
    let described: Vec<Value> = parts.iter().map(|part| part()).collect();
    let is_described = |path: &str| described.iter().any(|part| part["paths"].get(path).is_some());
    for (path, what) in site.pages.iter().chain(&own).filter(|(path, _)| !is_described(path)) {
        fixed["paths"][path] = page(path, what);
    }
    let document = Arc::new(Document { fixed, parts, written: Mutex::default() });
    let [(page_path, about_page), (document_path, about_document)]: [Route<&str>; 2] = own;
    let handlers = [(page_path, get(Html(openapi::PAGE)), about_page), (document_path, get(answer), about_document)];
    Ok(site.and(Site::new(document, handlers)))
}

/// Entry of a path without details.
fn page(path: &str, what: &str) -> Value {
    let responses = json!({ "default": { "description": what } });
    json!({ "get": { "operationId": path, "summary": what, "responses": responses } })
}

async fn answer(State(document): State<Arc<Document>>) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "application/json")], document.written())
}
